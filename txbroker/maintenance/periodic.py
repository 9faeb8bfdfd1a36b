"""What a broker does again and again: retention, flushes, checkpoints. Each with Kafka's key for its interval."""

from __future__ import annotations

import logging
from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import LoopingCall

from txbroker.cluster.replicas import Replicas
from txbroker.config.resolve import BrokerConfig
from txbroker.log.directories import LogDirectories
from txbroker.maintenance.retention import Retention

log = logging.getLogger("txbroker.broker")

# Kafka's flush scheduler is off by default, so that a topic's flush.ms does nothing until it is set. Here it works.
FLUSH_CHECK_MS_MAX = 1_000
PRODUCER_EXPIRATION_CHECK_MS = 600_000  # an internal key of Kafka, with this default
INITIAL_DELAY_MS = 30_000  # Kafka's LogManager.InitialTaskDelayMs


class Periodic:
    """Looping calls on one clock."""

    def __init__(
        self,
        clock: IReactorTime,
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
        self._starts: list[IDelayedCall] = []
        self._jobs: list[tuple[str, int, Callable[[], object]]] = [
            ("retention", config.int("log.retention.check.interval.ms"), retention.begin),
            ("flush", min(config.int("log.flush.scheduler.interval.ms"), FLUSH_CHECK_MS_MAX), self._flush),
            ("recovery points", config.int("log.flush.offset.checkpoint.interval.ms"), directories.checkpoint_recovery_points),
            ("log starts", config.int("log.flush.start.offset.checkpoint.interval.ms"), directories.checkpoint_log_start_offsets),
            ("high watermarks", config.int("replica.high.watermark.checkpoint.interval.ms"), self.checkpoint_high_watermarks),
            ("producers", PRODUCER_EXPIRATION_CHECK_MS, self._expire_producers),
        ]

    def start(self) -> None:
        """Begin; the first time of each is after its interval, or after Kafka's initial delay if that is shorter."""
        for name, interval_ms, job in self._jobs:
            call = LoopingCall(self._guarded, name, job)
            call.clock = self._clock
            self._calls.append(call)
            self._starts.append(_call_later(self._clock, min(interval_ms, INITIAL_DELAY_MS) / 1000, call.start, interval_ms / 1000))

    def stop(self) -> None:
        """End all."""
        self._retention.stop()
        for start in self._starts:
            if start.active():  # type: ignore[misc]
                start.cancel()  # type: ignore[misc]
        for call in self._calls:
            if call.running:
                call.stop()
        self._starts.clear()
        self._calls.clear()

    def _guarded(self, name: str, job: Callable[[], object]) -> None:
        try:
            job()
        except Exception:
            log.exception("%s failed this time; it is tried again", name)

    def _flush(self) -> None:
        self._directories.flush_due(self._now_ms())

    def checkpoint_high_watermarks(self) -> None:
        """Write replication-offset-checkpoint in every directory."""
        self._directories.checkpoint_high_watermarks(self._replicas.high_watermarks())

    def _expire_producers(self) -> None:
        self._directories.expire_producers(self._now_ms())


def _call_later(clock: IReactorTime, delay_s: float, function: Callable[..., object], *arguments: object) -> IDelayedCall:
    made: IDelayedCall = clock.callLater(delay_s, function, *arguments)  # type: ignore[arg-type]
    return made
