"""Metrics of logins, denials and the audit log."""

from __future__ import annotations

from collections.abc import Iterator

from txbroker.metrics.families import Piece, Sample, counter, counters, labels
from txbroker.metrics.sources import MetricSources
from txbroker.security.audit_trail import Kind


def security(sources: MetricSources) -> Iterator[Piece]:
    """Who was let in, who was not, and what the audit log has of it."""
    logins = [(labels(listener=listener, mechanism=mechanism, result=result), count)
              for (listener, mechanism, result), count in sorted(sources.sasl.counts().items())]  # fmt: skip
    documentation = "Logins by SASL, by listener, mechanism and result; a client that failed may not have named a mechanism"
    yield from counters("txbroker_logins", documentation, logins)
    failures: list[Sample] = [(labels(listener=listener, mechanism=mechanism, cause=cause), count)
                              for (listener, mechanism, cause), count in sorted(sources.sasl.failures.counts.items())]  # fmt: skip
    documentation = "Failed logins by SASL, by listener, mechanism and cause"
    yield from counters("txbroker_login_failures", documentation, failures)
    denials: list[Sample] = [(labels(api=api, operation=operation), count)
                             for (api, operation), count in sorted(sources.registry.authorizer.denials.items())]  # fmt: skip
    documentation = "Resources that the authorizer denied to a request, by API and operation; not those that a list leaves out"
    yield from counters("txbroker_denials", documentation, denials)
    trail = sources.audit.trail
    lines: list[Sample] = [] if trail is None else [(labels(event=kind), trail.lines[kind]) for kind in Kind]
    yield from counters("txbroker_audit_lines", "Lines of the audit log, by event", lines)
    left_out: list[Sample] = [] if trail is None else [(labels(event=kind), trail.left_out[kind]) for kind in Kind]
    documentation = "Events without a line of their own in the audit log: repeated ones, which a line counts, and those beyond the limits"
    yield from counters("txbroker_audit_left_out", documentation, left_out)
    documentation = "Lines of the audit log that are lost, because the file or the topic could not be written, or not as fast as they came"
    yield from counter("txbroker_audit_lost", documentation, sources.audit.dropped)
