"""One scrape after the other, each made in slices, so that nobody else has to wait for it."""

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

# The reactor turns to others after so long. A piece (families.PIECE_LINES) takes less.
SLICE_S = 0.001

_END = b"# EOF\n"


class _Some:
    """What prometheus-client's encoders take for a registry."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        return [self._metric]


class Scrapes:
    """Makes the text of `/metrics`. Whoever asks for a format that is being made already is given the same text."""

    def __init__(self, reactor: Any, seconds: Callable[[], float], collect: Callable[[], Deferred[Iterator[Piece]]]) -> None:
        """`collect` gives all families, piece by piece."""
        self._reactor = reactor
        self._seconds = seconds
        self._collect = collect
        self._under_way: dict[str, list[Deferred[list[bytes]]]] = {}

    def scrape(self, accept: str) -> tuple[str, Deferred[list[bytes]]]:
        """The content type for this Accept header, and the text in parts."""
        encode, content_type = choose_encoder(accept)
        done: Deferred[list[bytes]] = Deferred()
        waiting = self._under_way.setdefault(content_type, [])
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
                yield encode(_Some(head)).removesuffix(_END)
            yield lines.encode()
        if content_type.startswith("application/openmetrics-text"):
            yield _END

    def _go_on(self, content_type: str, text: Iterator[bytes], parts: list[bytes]) -> None:
        end = self._seconds() + SLICE_S
        try:
            for part in text:
                parts.append(part)
                if self._seconds() >= end:
                    self._reactor.callLater(0, self._go_on, content_type, text, parts)
                    return
        except Exception:
            self._failed(content_type, Failure())
            return
        self._end(content_type, parts)

    def _failed(self, content_type: str, failure: Failure) -> None:
        log.error("the metrics cannot be told: a bug\n%s", failure.getTraceback())
        self._end(content_type, failure)

    def _end(self, content_type: str, result: list[bytes] | Failure) -> None:
        for done in self._under_way.pop(content_type):
            if isinstance(result, Failure):
                done.errback(result)
            else:
                done.callback(result)
