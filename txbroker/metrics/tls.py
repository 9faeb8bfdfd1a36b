"""Metrics of TLS: handshakes, and the certificates of listeners."""

from __future__ import annotations

from collections.abc import Iterator

from txbroker.metrics.families import Piece, Sample, counter, counters, gauges, labels
from txbroker.metrics.sources import MetricSources


def tls(sources: MetricSources) -> Iterator[Piece]:
    """Handshakes, and how long each loaded certificate is still valid."""
    yield from counter("txbroker_tls_handshakes", "Completed TLS handshakes", sources.hub.handshakes.count)
    reloads: list[Sample] = [(labels(result=result), count) for result, count in sources.tls.reloads.items()]
    yield from counters("txbroker_tls_reloads", "Attempts to load changed certificates of a listener, by result", reloads)
    soonest: dict[str, float] = {}
    for listener, kind, certificate, days in sources.tls.certificates():
        text = labels(listener=listener, kind=kind, subject=certificate.subject)
        soonest[text] = min(days, soonest.get(text, days))
    documentation = "Days until a certificate of a listener ends, of its own (with the authorities that it sends) and of the trusted ones"
    yield from gauges("txbroker_certificate_days", documentation, sorted(soonest.items()))
