"""Retention passes: every log in its turn, so that a pass over thousands does not hold the reactor, and what the last one took."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial

from txbroker.clock import Clock, DelayedCall
from txbroker.cluster.replicas import Replicas
from txbroker.log.directories import LogDirectories
from txbroker.log.log_expiry import Expired, lag_ms
from txbroker.names import TopicPartition

log = logging.getLogger("txbroker.broker")

# The reactor turns to others after so long; one log takes a tenth of it, unless its segments go.
SLICE_S = 0.001
# Logs at once in which a worker looks for the first record that has not expired.
LOOKING_AT_ONCE = 8


class Retention:
    """Expires what is due in all logs, one pass at a time. `pass_s`: how long the last pass took, None before it is over."""

    def __init__(self, clock: Clock, directories: LogDirectories, replicas: Replicas, now_ms: Callable[[], int]) -> None:
        self._clock = clock
        self._directories = directories
        self._replicas = replicas
        self._now_ms = now_ms
        self._waiting: deque[TopicPartition] = deque()
        self._looking = 0
        self._turn: DelayedCall | None = None
        self._in_turn = False
        self._begun_s: float | None = None
        self._segments = 0
        self.pass_s: float | None = None

    def begin(self) -> None:
        """Begin a pass; nothing while the last one is under way."""
        if self._begun_s is not None:
            return
        self._begun_s = self._clock.seconds()
        self._segments = 0
        self._waiting.extend(self._directories.logs())
        self._go_on()

    def stop(self) -> None:
        """Begin nothing more."""
        self._waiting.clear()
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None

    def expire(self, topic_partition: TopicPartition, done: Callable[[Expired | None], None]) -> None:
        """Expire what is due in one log now, as a pass does; `done` is called in any case, with None when the log cannot be used."""

        def expired(outcome: Expired | None) -> None:
            if outcome is not None and (outcome.segments or outcome.records):
                self._start_moved(topic_partition)
            done(outcome)

        self._directories.expire(topic_partition, self._now_ms(), self._replicas.high_watermark(topic_partition), expired)

    def lag_ms(self, topic_partition: TopicPartition) -> int | None:
        """For how long the first record of a log has expired; None where that is not known or nothing expires."""
        found = self._directories.get(topic_partition)
        return None if found is None else lag_ms(found, self._now_ms())

    def _go_on(self) -> None:
        self._turn = None
        end = self._clock.seconds() + SLICE_S
        self._in_turn = True
        while self._waiting and self._looking < LOOKING_AT_ONCE:
            topic_partition = self._waiting.popleft()
            self._looking += 1
            self.expire(topic_partition, partial(self._expired, topic_partition))
            if self._clock.seconds() >= end:
                break
        self._in_turn = False
        self._plan()

    def _expired(self, topic_partition: TopicPartition, outcome: Expired | None) -> None:
        self._looking -= 1
        if outcome is not None:
            self._segments += outcome.segments
        if not self._in_turn:
            self._plan()

    def _plan(self) -> None:
        if self._waiting:
            if self._turn is None and self._looking < LOOKING_AT_ONCE:
                self._turn = self._clock.callLater(0, self._go_on)
        elif not self._looking and self._begun_s is not None:
            self.pass_s = self._clock.seconds() - self._begun_s
            self._begun_s = None
            if self._segments:
                log.info("retention deleted %d segments", self._segments)

    def _start_moved(self, topic_partition: TopicPartition) -> None:
        partition = self._replicas.find(*topic_partition)
        if partition is not None:
            partition.start_moved()
