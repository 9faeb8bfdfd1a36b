"""The keys that verify tokens, read from a file or a web server at the start, at intervals, and for a token with an unknown key.

As Kafka's RefreshingHttpsJwks: a read that fails leaves the keys as they were, and is repeated after a back-off. An unknown key causes a
read at most once a minute, and only a few keys are remembered; other than there, more unknown keys in that minute cause none. Other than
Kafka, the broker starts without keys, and refuses tokens until it has them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from txbroker.backoff import Backoff
from txbroker.client.web_document import NoDocument
from txbroker.clock import Clock, DelayedCall
from txbroker.errors import StorageError
from txbroker.names import amount
from txbroker.retrying import retrying
from txbroker.security.jwks import InvalidJwks, VerificationKey, parse_jwks, select

log = logging.getLogger("txbroker.security")

MISSING_AGAIN_S = 60.0
MISSING_MAX = 16
KID_LENGTH_MAX = 1000


class JwksSource:
    """`shown`: the URL for the log. `read` returns the document; it runs in a worker, and raises NoDocument or StorageError."""

    def __init__(
        self,
        shown: str,
        read: Callable[[], bytes],
        clock: Clock,
        in_worker: Callable[[Callable[[], Any]], Deferred[Any]],
        refresh_s: float,
        backoff: Backoff,
    ) -> None:
        self._shown = shown
        self._read = read
        self._clock = clock
        self._in_worker = in_worker
        self._refresh_s = refresh_s
        self._backoff = backoff
        self._missing: dict[str, float] = {}  # when an unknown key caused a read
        self._timer: DelayedCall | None = None
        self._reading: Deferred[None] | None = None
        self._first: Deferred[None] = Deferred()
        self.keys: tuple[VerificationKey, ...] | None = None  # None: not yet

    def start(self) -> Deferred[None]:
        """Read them; fires when the first attempt has ended."""
        self._refresh()
        return self._first

    def stop(self) -> None:
        """Read them no more."""
        self._cancel_timer()
        if self._reading is not None:
            self._reading.cancel()

    def find(self, kid: str | None, algorithm: str) -> VerificationKey | None:
        """See `Keys`."""
        found = select(self.keys or (), kid, algorithm)
        if found is None and kid is not None:
            self._is_missing(kid)
        return found

    def _is_missing(self, kid: str) -> None:
        now_s = self._clock.seconds()
        self._missing = {each: read_s for each, read_s in self._missing.items() if read_s + MISSING_AGAIN_S > now_s}
        if self._reading is None and kid not in self._missing and len(self._missing) < MISSING_MAX and len(kid) <= KID_LENGTH_MAX:
            self._missing[kid] = now_s
            self._refresh()

    def _refresh(self) -> None:
        self._cancel_timer()
        self._reading = Deferred.fromCoroutine(retrying(self._attempt, self._clock, self._backoff, self._failed))
        self._reading.addCallbacks(self._have_read, self._cancelled)

    async def _attempt(self) -> None:
        try:
            self._use(await self._in_worker(lambda: parse_jwks(self._read())))
        finally:
            if not self._first.called:
                self._first.callback(None)

    def _use(self, keys: tuple[VerificationKey, ...]) -> None:
        names = [key.kid for key in keys]
        if self.keys is None or names != [key.kid for key in self.keys] or self._backoff.failures:
            if keys:
                log.info("tokens are verified by %s of %s", amount(len(keys), "key"), self._shown)
            else:
                log.error("all tokens are refused: %s has no key that can verify one", self._shown)
        self.keys = keys
        self._backoff.succeeded()

    def _failed(self, error: Exception) -> None:
        expected = isinstance(error, NoDocument | StorageError | InvalidJwks)
        effect = "all tokens are refused" if self.keys is None else "the keys stay as they were"
        log.error("the keys that verify tokens cannot be read from %s, so %s: %s", self._shown, effect,
                  error if expected else f"internal error: {error!r}", exc_info=None if expected else error)  # fmt: skip

    def _have_read(self, _: None) -> None:
        self._reading = None
        self._timer = self._clock.callLater(self._refresh_s, self._refresh)

    def _cancelled(self, failure: Failure) -> None:
        failure.trap(CancelledError)
        self._reading = None

    def _cancel_timer(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None
