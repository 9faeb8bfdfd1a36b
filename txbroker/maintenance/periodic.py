"""Periodic tasks of a broker: retention, flushes, checkpoints, expiry of producers. Kafka's keys set their intervals."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from twisted.internet.task import LoopingCall

from txbroker.clock import Clock, DelayedCall
from txbroker.cluster.replicas import Replicas
from txbroker.config.resolve import BrokerConfig
from txbroker.log.directories import LogDirectories
from txbroker.maintenance.retention import Retention

log = logging.getLogger("txbroker.broker")

# Kafka's log.flush.scheduler.interval.ms disables the scheduler by default, and with it flush.ms of topics. Here flush.ms has effect.
FLUSH_CHECK_MS_MAX = 1_000
PRODUCER_EXPIRATION_CHECK_MS = 600_000  # an internal key of Kafka, with this default
INITIAL_DELAY_MS = 30_000  # Kafka's LogManager.InitialTaskDelayMs


class Periodic:
    """Looping calls. For the reactor's thread only."""

    def __init__(
        self,
        clock: Clock,
        config: BrokerConfig,
        directories: LogDirectories,
        replicas: Replicas,
        retention: Retention,
        now_ms: Callable[[], int],
    ) -> None:
        self._clock = clock
        self._directories = directories
        self._replicas = replicas
        self._retention = retention
        self._now_ms = now_ms
        self._calls: list[LoopingCall] = []
        self._starts: list[DelayedCall] = []
        checkpoints = directories.checkpoints
        self._jobs: list[tuple[str, int, Callable[[], object]]] = [
            ("retention", config.int("log.retention.check.interval.ms"), retention.begin),
            ("flush", min(config.int("log.flush.scheduler.interval.ms"), FLUSH_CHECK_MS_MAX), self._flush),
            ("recovery point checkpoint", config.int("log.flush.offset.checkpoint.interval.ms"), checkpoints.write_recovery_points),
            ("log start checkpoint", config.int("log.flush.start.offset.checkpoint.interval.ms"), checkpoints.write_log_start_offsets),
            ("high watermark checkpoint", config.int("replica.high.watermark.checkpoint.interval.ms"), self.checkpoint_high_watermarks),
            # As in Kafka, a follower leaves the ISR at the latest after one and a half times the limit.
            ("check of followers", max(1, config.int("replica.lag.time.max.ms") // 2), replicas.check_followers),
            ("producer expiry", PRODUCER_EXPIRATION_CHECK_MS, self._expire_producers),
        ]

    def start(self) -> None:
        """Start the tasks. Each first runs after its interval, or after Kafka's initial delay if that is shorter."""
        for name, interval_ms, job in self._jobs:
            call = LoopingCall(self._guarded, name, job)
            clock: Any = self._clock
            call.clock = clock
            self._calls.append(call)
            self._starts.append(self._clock.callLater(min(interval_ms, INITIAL_DELAY_MS) / 1000, call.start, interval_ms / 1000))

    def stop(self) -> None:
        """Stop all tasks."""
        self._retention.stop()
        for start in self._starts:
            if start.active():
                start.cancel()
        for call in self._calls:
            if call.running:
                call.stop()
        self._starts.clear()
        self._calls.clear()

    def _guarded(self, name: str, job: Callable[[], object]) -> None:
        try:
            job()
        except Exception:
            log.exception("periodic task failed: %s; it runs again after its interval", name)

    def _flush(self) -> None:
        self._directories.flush_due(self._clock.seconds())

    def checkpoint_high_watermarks(self) -> None:
        """Write replication-offset-checkpoint in every directory."""
        self._directories.checkpoints.write_high_watermarks(self._replicas.high_watermarks())

    def _expire_producers(self) -> None:
        self._directories.expire_producers(self._now_ms())
