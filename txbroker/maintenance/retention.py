"""Retention of all logs, in short slices: a pass must not block the reactor when there are thousands of them."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from txbroker.clock import Clock, DelayedCall
from txbroker.cluster.replicas import Replicas
from txbroker.log.directories import LogDirectories
from txbroker.log.log_expiry import Expired, lag_ms
from txbroker.names import TopicPartition, amount

log = logging.getLogger("txbroker.broker")

# How long one slice takes. One log takes a tenth of that, unless segments are deleted.
SLICE_S = 0.001
# In how many logs workers may search for the first record that has not expired, at a time.
SEARCHES_MAX = 8


class Retention:
    """Deletes expired segments and records, one pass at a time. `pass_s`: how long the last pass took; None before the first has ended."""

    def __init__(self, clock: Clock, directories: LogDirectories, replicas: Replicas, now_ms: Callable[[], int]) -> None:
        self._clock = clock
        self._directories = directories
        self._replicas = replicas
        self._now_ms = now_ms
        self._waiting: deque[TopicPartition] = deque()
        self._searching = 0
        self._next_slice: DelayedCall | None = None
        self._in_slice = False
        self._pass_begun_s: float | None = None
        self._deleted_segments = 0
        self.pass_s: float | None = None

    def begin(self) -> None:
        """Begin a pass, unless one is running."""
        if self._pass_begun_s is not None:
            return
        self._pass_begun_s = self._clock.seconds()
        self._deleted_segments = 0
        self._waiting.extend(self._directories.logs())
        self._slice()

    def stop(self) -> None:
        """Stop the pass that is running."""
        self._waiting.clear()
        if self._next_slice is not None:
            self._next_slice.cancel()
            self._next_slice = None

    def expire(self, topic_partition: TopicPartition, done: Callable[[Expired | None], None]) -> None:
        """Delete what has expired in one log now. `done` is always called, with None when the log cannot be read or written."""

        def expired(outcome: Expired | None) -> None:
            try:
                if outcome is not None and (outcome.segments or outcome.records):
                    self._start_moved(topic_partition)
            finally:
                done(outcome)

        self._directories.expire(topic_partition, self._now_ms(), self._replicas.high_watermark(topic_partition), expired)

    def lag_ms(self, topic_partition: TopicPartition) -> int | None:
        """By how much the first record of a log has exceeded its retention, in ms; None when that is not known, or nothing expires."""
        found = self._directories.get(topic_partition)
        return None if found is None else lag_ms(found, self._now_ms())

    def _slice(self) -> None:
        self._next_slice = None
        end = self._clock.seconds() + SLICE_S
        self._in_slice = True
        while self._waiting and self._searching < SEARCHES_MAX:
            topic_partition = self._waiting.popleft()
            self._searching += 1
            self._expire_once(topic_partition)
            if self._clock.seconds() >= end:
                break
        self._in_slice = False
        self._schedule()

    def _expire_once(self, topic_partition: TopicPartition) -> None:
        """An internal error of one log must not end the passes."""
        done = False

        def expired(outcome: Expired | None) -> None:
            nonlocal done
            if not done:
                done = True
                self._expired(topic_partition, outcome)

        try:
            self.expire(topic_partition, expired)
        except Exception:
            log.exception("internal error while records of %s expire; the next pass tries again", topic_partition)
            expired(None)

    def _expired(self, topic_partition: TopicPartition, outcome: Expired | None) -> None:
        self._searching -= 1
        if outcome is not None:
            self._deleted_segments += outcome.segments
        if not self._in_slice:
            self._schedule()

    def _schedule(self) -> None:
        if self._waiting:
            if self._next_slice is None and self._searching < SEARCHES_MAX:
                self._next_slice = self._clock.callLater(0, self._slice)
        elif not self._searching and self._pass_begun_s is not None:
            self.pass_s = self._clock.seconds() - self._pass_begun_s
            self._pass_begun_s = None
            if self._deleted_segments:
                log.info("retention deleted %s", amount(self._deleted_segments, "segment"))

    def _start_moved(self, topic_partition: TopicPartition) -> None:
        partition = self._replicas.find(*topic_partition)
        if partition is not None:
            partition.start_moved()
