"""The TLS handshakes of all listeners: computed by workers, a few at a time, and counted if they fail.

OpenSSL releases Python's lock while it computes. A job takes all handshakes that wait, up to a limit: passing one job to a worker and back
costs nearly as much as a handshake.
"""

from __future__ import annotations

import logging
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from twisted.internet.defer import Deferred

from txbroker.api.request_context import Session
from txbroker.clock import Clock
from txbroker.names import amount
from txbroker.repeated_lines import RepeatedLines

log = logging.getLogger("txbroker.transport")

# Jobs at the same time, and handshakes of each. Others need the workers too: to read what is not in memory.
JOBS_MAX = 2
JOB_HANDSHAKES_MAX = 16

RunInWorker = Callable[[Callable[[], Any]], "Deferred[Any]"]

_ADVICE = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client sent no certificate, which ssl.client.auth=required needs",
    "CERTIFICATE_VERIFY_FAILED": "the client's certificate is not accepted",
    "NO_SHARED_CIPHER": "the client has none of the cipher suites of this listener",
    "UNSUPPORTED_PROTOCOL": "the client has no TLS version of ssl.enabled.protocols",
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust the issuer of this listener's certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client does not accept this listener's certificate: its issuer, its host names or its dates",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client does not accept this listener's certificate: its issuer, its host names or its dates",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the client does not accept this listener's certificate: it has expired",
    "HTTP_REQUEST": "the client sent an HTTP request",
}


def failure_text(error: Exception) -> str:
    """What a failed handshake means for an operator."""
    if not isinstance(error, ssl.SSLError):
        return str(error)
    text = _ADVICE.get(error.reason or "", f"TLS failed ({error.reason or error})")
    verified = getattr(error, "verify_message", None)
    return f"{text}: {verified}" if verified else text


class Waiting(Protocol):
    """A handshake that has received bytes."""

    def step(self) -> None:
        """Continue in a worker, as far as the received bytes go. Raises nothing."""

    def stepped(self) -> None:
        """The worker is done."""


class Handshakes:
    """Those of one reactor. What fails is counted by the hub, and logged here."""

    def __init__(self, run_in_worker: RunInWorker, clock: Clock) -> None:
        self._run_in_worker = run_in_worker
        self._lines = RepeatedLines(clock.seconds)
        self._waiting: deque[Waiting] = deque()
        self._jobs = 0
        self.count = 0
        """Completed handshakes."""

    def compute(self, handshake: Waiting) -> None:
        """Have a worker call `step`, and then call `stepped`."""
        self._waiting.append(handshake)
        if self._jobs < JOBS_MAX:
            self._run()

    def _run(self) -> None:
        batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), JOB_HANDSHAKES_MAX))]

        def step() -> None:
            for handshake in batch:
                handshake.step()

        self._jobs += 1
        self._run_in_worker(step).addBoth(self._done, batch)

    def _done(self, result: object, batch: list[Waiting]) -> None:
        self._jobs -= 1
        for handshake in batch:
            try:
                handshake.stepped()
            except Exception:
                log.exception("internal error after a TLS handshake")
        if self._waiting and self._jobs < JOBS_MAX:
            self._run()

    def failed(self, session: Session, text: str) -> None:
        """Log a failure: the first one of an address for this reason, and then how many there were, at most once a minute."""
        left_out = self._lines.left_out((session.peer_host, text))
        if left_out is None:
            return
        more = f" ({amount(left_out, 'connection')} more since the last such line)" if left_out else ""
        listener = f"{session.listener}://{session.local_host}:{session.local_port}"
        log.warning("closing the connection of %s:%d to listener %s: %s%s", session.peer_host, session.peer_port, listener, text, more)
