"""The lines of the audit log for one partition of its topic: one batch at a time is on its way to the leader."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.python.failure import Failure

from txbroker.backoff import Backoff
from txbroker.client.client_errors import ClientError
from txbroker.clock import Clock, DelayedCall
from txbroker.errors import BrokerError, ErrorCode

BATCH_BYTES = 262_144  # of the lines of one batch; the topic may take less
BATCH_GROWTH = 4_096  # after a batch that was taken: the topic may take more than it did
BACKOFF_S, BACKOFF_MAX_S = 0.2, 5.0

_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
_REFUSED = frozenset({ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP})  # repeating does not help


class Line(NamedTuple):
    """One record of the topic. `key`: the principal; `lost`: how many lost lines it reports."""

    time_ms: int
    key: bytes | None
    value: bytes
    lost: int = 0


class Outcome(NamedTuple):
    """What came of a batch. `lost`: lines that no leader takes; `failure`: why lines wait; `defect`: an error of another kind."""

    lost: Sequence[Line] = ()
    failure: str = ""
    defect: Failure | None = None


class PartitionQueue:
    """`waiting`: lines that are not on their way; they may be taken from its end. `sending`: those on their way.

    `append` appends one batch, and fails as `audit_topic.Leaders.append`. `ended` is called after each batch with what came of it, and
    calls `begin` if the next one is to be sent.
    """

    def __init__(
        self,
        clock: Clock,
        chance: Callable[[], float],
        append: Callable[[Sequence[Line]], Deferred[None]],
        ended: Callable[[PartitionQueue, Outcome], None],
    ) -> None:
        self.waiting: deque[Line] = deque()
        self.sending: list[Line] = []
        self.batch_bytes = BATCH_BYTES
        self._clock = clock
        self._append = append
        self._ended = ended
        self._backoff = Backoff(chance, BACKOFF_S, BACKOFF_MAX_S)
        self._timer: DelayedCall | None = None

    def __len__(self) -> int:
        return len(self.waiting) + len(self.sending)

    def begin(self, delay_s: float) -> None:
        """Send what waits after this time, or later after failures; unless that is to happen already."""
        if self.waiting and not self.sending and self._timer is None:
            self._timer = self._clock.callLater(max(delay_s, self._backoff.wait_s(self._clock.seconds())), self._send)

    def hasten(self) -> None:
        """Send what waits now, also after failures."""
        self.stop()
        if self.waiting and not self.sending:
            self._send()

    def stop(self) -> None:
        """Begin no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _send(self) -> None:
        self._timer = None
        size = 0
        while self.waiting and (not self.sending or size + len(self.waiting[0].value) <= self.batch_bytes):
            line = self.waiting.popleft()
            size += len(line.value)
            self.sending.append(line)
        maybeDeferred(self._append, self.sending).addCallbacks(self._taken, self._failed)

    def _taken(self, _: None) -> None:
        self.sending = []
        self.batch_bytes = min(self.batch_bytes + BATCH_GROWTH, BATCH_BYTES)
        self._backoff.succeeded()
        self._ended(self, Outcome())

    def _failed(self, failure: Failure) -> None:
        lines, self.sending = self.sending, []
        error = failure.value
        code = error.code if isinstance(error, BrokerError) else None
        if not isinstance(error, BrokerError | ClientError):
            self._ended(self, Outcome(lines, defect=failure))
        elif code in _REFUSED or (code in _TOO_LARGE and len(lines) == 1):
            self._ended(self, Outcome(lines))
        else:
            self.waiting.extendleft(reversed(lines))
            if code in _TOO_LARGE:
                self.batch_bytes = min(self.batch_bytes, sum(len(line.value) for line in lines)) // 2
                self._ended(self, Outcome())
            else:
                self._backoff.failed(self._clock.seconds())
                self._ended(self, Outcome(failure=str(error)))
