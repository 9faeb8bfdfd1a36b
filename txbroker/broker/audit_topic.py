"""The topic of the audit log: lines are collected, and sent to the leaders of its partitions, so that no request waits for them."""

from __future__ import annotations

import json
import logging
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from txbroker.backoff import Backoff
from txbroker.client.client_errors import ClientError
from txbroker.clock import Clock, DelayedCall
from txbroker.errors import BrokerError, ErrorCode
from txbroker.repeated_lines import RepeatedLines

log = logging.getLogger("txbroker.security")

# Lines that wait for their leader, or for its answer; what comes then is dropped, and counted. A line has some 400 bytes.
WAITING_MAX = 20_000
COLLECTED_S = 0.1  # for how long lines are collected
BATCH_BYTES = 262_144  # of the lines of one batch; the topic may take less
BACKOFF_S, BACKOFF_MAX_S = 0.2, 5.0
STOP_S = 3.0  # how long a stop waits

_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
_REFUSED = frozenset({ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP})  # repeating does not help


class Line(NamedTuple):
    """One record of the topic. `key`: the principal; `lost`: how many lost lines it reports."""

    time_ms: int
    key: bytes | None
    value: bytes
    lost: int = 0


class Leaders(Protocol):
    """The way to the partitions of the topic."""

    def partition_count(self) -> int:
        """0 while the topic does not exist."""

    def create(self) -> None:
        """Create the topic, if that is allowed; without waiting for it."""

    def append(self, partition: int, lines: Sequence[Line]) -> Deferred[None]:
        """Append one batch with acks=all. BrokerError, ClientError; the batch may then be in the log all the same."""

    def close(self) -> None:
        """End the connections."""


class AuditTopic:
    """Sends lines in their order for each principal. What a leader did not acknowledge is sent again, and may then be there twice.

    `dropped`: lines that were lost. `report` makes a line of such a number, which is sent as soon as lines can be sent again.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        chance: Callable[[], float],
        now_ms: Callable[[], int],
        report: Callable[[int], bytes],
    ) -> None:
        self.name = name
        self.dropped = 0
        self._clock = clock
        self._now_ms = now_ms
        self._report = report
        self._backoff = Backoff(chance, BACKOFF_S, BACKOFF_MAX_S)
        self._logged = RepeatedLines(clock.seconds)
        self._leaders: Leaders | None = None
        self._waiting: deque[Line] = deque()
        self._sending: list[Line] = []
        self._unreported = 0
        self._turn = 0  # which partition gets lines without a key
        self._batch_bytes = BATCH_BYTES
        self._is_closed = False
        self._timer: DelayedCall | None = None
        self._finished: Deferred[None] | None = None
        self._deadline: DelayedCall | None = None

    def write(self, line: bytes) -> None:
        """Send a line soon."""
        if self._is_closed or len(self._waiting) + len(self._sending) >= WAITING_MAX:
            self._drop(1)
            return
        principal = json.loads(line).get("principal")
        self._waiting.append(Line(self._now_ms(), None if principal is None else principal.encode(errors="replace"), line.rstrip(b"\n")))
        self._begin(COLLECTED_S)

    def open(self, leaders: Leaders) -> None:
        """Lines can be sent from now on; those of the start wait until then."""
        self._leaders = leaders
        self._begin(COLLECTED_S)

    def finish(self) -> Deferred[None]:
        """Send what waits, now; fires when that is done, or after STOP_S. Without a topic there is nothing to wait for."""
        if self._leaders is None or not self._leaders.partition_count() or not (self._waiting or self._sending):
            return succeed(None)
        self._finished = Deferred()
        self._deadline = self._clock.callLater(STOP_S, self._end_finish)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._begin(0)
        return self._finished

    def close(self) -> None:
        """Send no more."""
        self._is_closed = True
        self._end_finish()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        leaders, self._leaders = self._leaders, None
        if leaders is not None:
            leaders.close()
        lost = len(self._waiting) + len(self._sending)
        if lost:
            self._waiting.clear()
            self.dropped += lost
            log.error("the broker stops before topic %s has all lines of the audit log: %d are lost", self.name, lost)

    def _begin(self, delay_s: float) -> None:
        if self._leaders is not None and self._waiting and not self._sending and self._timer is None:
            self._timer = self._clock.callLater(delay_s, self._send)

    def _send(self) -> None:
        """Send a batch to each partition that has lines."""
        self._timer = None
        leaders = self._leaders
        assert leaders is not None
        count = leaders.partition_count()
        if not count:
            leaders.create()
            self._failed("it does not exist; create it, if auto.create.topics.enable is false")
            return
        if self._unreported:
            lost, self._unreported = self._unreported, 0
            if self._waiting[0].lost:
                lost += self._waiting.popleft().lost  # one that could not be sent yet
            self._waiting.appendleft(Line(self._now_ms(), None, self._report(lost).rstrip(b"\n"), lost))
        batches = self._take(count)
        self._sending = [line for lines in batches.values() for line in lines]
        _Round(leaders, batches).run().addCallback(self._sent, batches).addErrback(self._broken)

    def _take(self, count: int) -> dict[int, list[Line]]:
        """Remove as many of the waiting lines as one batch of each partition may have."""
        self._turn += 1
        batches: dict[int, list[Line]] = {}
        sizes: dict[int, int] = {}
        left: deque[Line] = deque()
        for line in self._waiting:
            partition = (self._turn if line.key is None else zlib.crc32(line.key)) % count
            size = sizes.get(partition, 0) + len(line.value)
            sizes[partition] = size  # also of a line that is left, so that later ones are left, too
            if partition in batches and size > self._batch_bytes:
                left.append(line)
            else:
                batches.setdefault(partition, []).append(line)
        self._waiting = left
        return batches

    def _sent(self, failures: dict[int, Failure], batches: dict[int, list[Line]]) -> None:
        again: list[Line] = []
        why = ""
        is_smaller = False
        for partition, failure in failures.items():
            lines = batches[partition]
            code = failure.value.code if isinstance(failure.value, BrokerError) else None
            if not isinstance(failure.value, BrokerError | ClientError):
                log.error("internal error while the audit log is sent: %s", failure.getTraceback())
                self._lose(lines)
            elif code in _REFUSED or (code in _TOO_LARGE and len(lines) == 1):
                self._lose(lines)
            elif code in _TOO_LARGE:
                is_smaller = True
                again += lines
            else:
                again += lines
                why = f"partition {partition}: {failure.value}"
        self._sending = []
        self._waiting.extendleft(reversed(again))
        if is_smaller:
            self._batch_bytes //= 2
        if self._leaders is None:
            return
        if why:
            self._failed(why)
        else:
            self._backoff.succeeded()
            self._begin(0)
        if not self._waiting:
            self._end_finish()

    def _broken(self, failure: Failure) -> None:
        log.error("internal error while the audit log is sent: %s", failure.getTraceback())
        lines, self._sending = self._sending, []
        self._lose(lines)
        self._begin(BACKOFF_MAX_S)

    def _failed(self, why: str) -> None:
        now_s = self._clock.seconds()
        self._backoff.failed(now_s)
        if self._logged.left_out("failed") is not None:
            log.warning("topic %s cannot get lines of the audit log, %d wait: %s", self.name, len(self._waiting), why)
        self._begin(self._backoff.wait_s(now_s))

    def _lose(self, lines: Sequence[Line]) -> None:
        reports = sum(line.lost for line in lines)
        self._unreported += reports
        self._drop(sum(not line.lost for line in lines))

    def _drop(self, count: int) -> None:
        self.dropped += count
        self._unreported += count
        if count and self._logged.left_out("dropped") is not None:
            log.error("lines of the audit log for topic %s are lost, %d since the start", self.name, self.dropped)

    def _end_finish(self) -> None:
        if self._deadline is not None and self._deadline.active():
            self._deadline.cancel()
        self._deadline = None
        finished, self._finished = self._finished, None
        if finished is not None:
            finished.callback(None)


class _Round:
    """Batches of several partitions, sent together."""

    def __init__(self, leaders: Leaders, batches: dict[int, list[Line]]) -> None:
        self._leaders = leaders
        self._batches = batches
        self._missing = set(batches)
        self._failures: dict[int, Failure] = {}
        self._done: Deferred[dict[int, Failure]] = Deferred()

    def run(self) -> Deferred[dict[int, Failure]]:
        """Fires with the failures by partition when all are answered."""
        for partition, lines in self._batches.items():
            try:
                appended = self._leaders.append(partition, lines)
            except Exception:
                self._ended(Failure(), partition)
            else:
                appended.addBoth(self._ended, partition)
        return self._done

    def _ended(self, result: Any, partition: int) -> None:
        if isinstance(result, Failure):
            self._failures[partition] = result
        self._missing.discard(partition)
        if not self._missing:
            self._done.callback(self._failures)
