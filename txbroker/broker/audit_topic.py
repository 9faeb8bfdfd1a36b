"""The topic of the audit log: lines are collected, and sent to the leaders of its partitions, so that no request waits for them."""

from __future__ import annotations

import json
import logging
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from twisted.internet.defer import Deferred, succeed

from txbroker.backoff import Backoff
from txbroker.broker.audit_queue import BACKOFF_MAX_S, BACKOFF_S, Line, Outcome, PartitionQueue
from txbroker.clock import Clock, DelayedCall
from txbroker.errors import BrokerError, ErrorCode
from txbroker.repeated_lines import RepeatedLines

log = logging.getLogger("txbroker.security")

# Lines that wait for their leader, or for its answer; what comes then is dropped, and counted. A line has some 400 bytes.
WAITING_MAX = 20_000
COLLECTED_S = 0.1  # for how long lines are collected
STOP_S = 3.0  # how long a stop waits


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

    A partition whose leader is slow, or away, does not delay the lines of others. `dropped`: lines that were lost. `report` makes a line
    of such a number, which is sent as soon as lines can be sent again.
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
        self._chance = chance
        self._now_ms = now_ms
        self._report = report
        self._backoff = Backoff(chance, BACKOFF_S, BACKOFF_MAX_S)  # while the topic does not exist
        self._logged = RepeatedLines(clock.seconds)
        self._leaders: Leaders | None = None
        self._unassigned: deque[Line] = deque()  # to a partition
        self._queues: list[PartitionQueue] = []
        self._count = 0  # of all lines
        self._unreported = 0
        self._turn = 0  # which partition gets lines without a key
        self._is_closed = False
        self._timer: DelayedCall | None = None  # of lines that have no partition
        self._finished: Deferred[None] | None = None
        self._deadline: DelayedCall | None = None

    def write(self, line: bytes) -> None:
        """Send a line soon."""
        if self._is_closed:
            self._drop(1)
            return
        principal = json.loads(line).get("principal")
        key = None if principal is None else principal.encode(errors="replace")
        queue = self._queue_of(key)
        if self._count >= WAITING_MAX and not self._make_room(queue):
            self._drop(1)
            return
        self._count += 1
        (self._unassigned if queue is None else queue.waiting).append(Line(self._now_ms(), key, line.rstrip(b"\n")))
        self._begin(queue)

    def open(self, leaders: Leaders) -> None:
        """Lines can be sent from now on; those of the start wait until then."""
        self._leaders = leaders
        self._begin(None)

    def finish(self) -> Deferred[None]:
        """Send what waits, now; fires when that is done, or after STOP_S. Without a topic there is nothing to wait for."""
        if self._leaders is None or not self._leaders.partition_count() or not self._count:
            return succeed(None)
        finished = self._finished = Deferred[None]()
        self._deadline = self._clock.callLater(STOP_S, self._end_finish)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = self._clock.callLater(0, self._assign)
        for queue in self._queues:
            queue.hasten()
        return finished

    def close(self) -> None:
        """Send no more."""
        self._is_closed = True
        self._end_finish()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for queue in self._queues:
            queue.stop()
        leaders, self._leaders = self._leaders, None
        lost = self._count
        if leaders is not None:
            leaders.close()
        if lost:
            self.dropped += lost
            log.error("the broker stops before topic %s has all lines of the audit log: %d are lost", self.name, lost)

    def _queue_of(self, key: bytes | None) -> PartitionQueue | None:
        """Where a line belongs; None if it is not known how many partitions there are, or will be when others were added."""
        if self._leaders is None or not self._queues or self._unassigned or self._leaders.partition_count() != len(self._queues):
            return None
        return self._queues[(self._turn if key is None else zlib.crc32(key)) % len(self._queues)]

    def _make_room(self, queue: PartitionQueue | None) -> bool:
        """Drop the newest line of the partition with the most, for one of another partition: a leader that is away costs others none."""
        longest = max(self._queues, key=lambda each: len(each.waiting), default=None)
        if queue is None or longest is None or len(longest.waiting) <= len(queue) + 1 or longest.waiting[-1].lost:
            return False
        longest.waiting.pop()
        self._count -= 1
        self._drop(1)
        return True

    def _begin(self, queue: PartitionQueue | None) -> None:
        if self._leaders is None:
            return
        if queue is not None:
            queue.begin(COLLECTED_S)
        elif self._unassigned and self._timer is None:
            self._timer = self._clock.callLater(max(COLLECTED_S, self._backoff.wait_s(self._clock.seconds())), self._assign)

    def _assign(self) -> None:
        """Give lines their partitions, when no line of theirs is on its way to another one."""
        self._timer = None
        assert self._leaders is not None
        count = self._leaders.partition_count()
        if not count:
            self._leaders.create()
            self._backoff.failed(self._clock.seconds())
            self._log_failure("it does not exist; create it, if auto.create.topics.enable is false")
            self._begin(None)
            return
        self._backoff.succeeded()
        if count != len(self._queues):
            if any(queue.sending for queue in self._queues):
                self._begin(None)
                return
            for queue in reversed(self._queues):
                queue.stop()
                self._unassigned.extendleft(reversed(queue.waiting))
            self._queues = [
                PartitionQueue(self._clock, self._chance, partial(self._append, partition), self._ended) for partition in range(count)
            ]
        lines, self._unassigned = self._unassigned, deque()
        for line in lines:
            queue = self._queues[(self._turn if line.key is None else zlib.crc32(line.key)) % count]
            queue.waiting.append(line)
        for queue in self._queues:
            queue.begin(0)

    def _append(self, partition: int, lines: Sequence[Line]) -> Deferred[None]:
        leaders = self._leaders
        assert leaders is not None
        if not leaders.partition_count():
            leaders.create()
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self._turn += 1
        return leaders.append(partition, lines)

    def _ended(self, queue: PartitionQueue, outcome: Outcome) -> None:
        self._count = len(self._unassigned) + sum(map(len, self._queues))
        if outcome.defect is not None:
            log.error("internal error while the audit log is sent: %s", outcome.defect.getTraceback())
        if outcome.lost:
            self._unreported += sum(line.lost for line in outcome.lost)
            self._drop(sum(not line.lost for line in outcome.lost))
        if self._leaders is None:
            return
        if outcome.failure:
            self._log_failure(f"partition {self._queues.index(queue)}: {outcome.failure}")
        elif self._unreported and not outcome.lost:
            queue.waiting.appendleft(self._report_of(queue))
        if not (self._unassigned and self._leaders.partition_count() != len(self._queues)):
            queue.begin(0)
        if not self._count:
            self._end_finish()

    def _report_of(self, queue: PartitionQueue) -> Line:
        """A line with the number of those that were lost, also of a report that could not be sent yet."""
        lost, self._unreported = self._unreported, 0
        self._count += 1
        if queue.waiting and queue.waiting[0].lost:
            lost += queue.waiting.popleft().lost
            self._count -= 1
        return Line(self._now_ms(), None, self._report(lost).rstrip(b"\n"), lost)

    def _log_failure(self, why: str) -> None:
        if self._logged.left_out("failed") is not None:
            log.warning("topic %s cannot get lines of the audit log, %d wait: %s", self.name, self._count, why)

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
