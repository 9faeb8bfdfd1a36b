"""Formats `/metrics` in slices, so that it does not block the reactor."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from txbroker.metrics.families import Piece

log = logging.getLogger("txbroker.metrics")

# The length of one slice. A piece (families.PIECE_LINES) takes less.
SLICE_S = 0.001

_END = b"# EOF\n"


class _OneMetric:
    """A registry of one metric, for prometheus-client's encoders."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        return [self._metric]


class Scrapes:
    """Formats `/metrics`. Requests for a format that is in progress share its result."""

    def __init__(self, reactor: Any, monotonic_s: Callable[[], float], collect: Callable[[], Deferred[Iterator[Piece]]]) -> None:
        """`collect` returns all families, in pieces."""
        self._reactor = reactor
        self._monotonic_s = monotonic_s
        self._collect = collect
        self._in_progress: dict[str, list[Deferred[list[bytes]]]] = {}

    def scrape(self, accept: str) -> tuple[str, Deferred[list[bytes]]]:
        """The content type for this Accept header, and the text in parts."""
        encode, content_type = choose_encoder(accept)
        done: Deferred[list[bytes]] = Deferred()
        waiting = self._in_progress.setdefault(content_type, [])
        waiting.append(done)
        if len(waiting) == 1:
            self._collect().addCallbacks(
                lambda pieces: self._go_on(content_type, self._text(pieces, encode, content_type), []),
                lambda failure: self._failed(content_type, failure),
            )
        return content_type, done

    def _text(self, pieces: Iterator[Piece], encode: Callable[[Any], bytes], content_type: str) -> Iterator[bytes]:
        for head, lines in pieces:
            if head is not None:
                yield encode(_OneMetric(head)).removesuffix(_END)
            yield lines.encode()
        if content_type.startswith("application/openmetrics-text"):
            yield _END

    def _go_on(self, content_type: str, text: Iterator[bytes], parts: list[bytes]) -> None:
        end = self._monotonic_s() + SLICE_S
        try:
            for part in text:
                parts.append(part)
                if self._monotonic_s() >= end:
                    self._reactor.callLater(0, self._go_on, content_type, text, parts)
                    return
        except Exception:
            self._failed(content_type, Failure())
            return
        self._end(content_type, parts)

    def _failed(self, content_type: str, failure: Failure) -> None:
        log.error("internal error while formatting metrics\n%s", failure.getTraceback())
        self._end(content_type, failure)

    def _end(self, content_type: str, result: list[bytes] | Failure) -> None:
        for done in self._in_progress.pop(content_type):
            if isinstance(result, Failure):
                done.errback(result)
            else:
                done.callback(result)
