"""The topics, the configuration and the duration of a soak test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True)
class Topic:
    """A topic that exists during the whole soak test."""

    name: str
    partitions: int
    configs: dict[str, str]


# Segments are small (but not smaller than the largest batch) and deleted soon, so that there are many thousands of them in an hour.
_DELETED = {"file.delete.delay.ms": "1000"}
TOPICS = (
    Topic("sized", 4, {**_DELETED, "segment.bytes": "262144", "retention.bytes": "1048576"}),
    Topic("timed", 3, {**_DELETED, "segment.bytes": "131072", "segment.ms": "10000", "retention.ms": "30000"}),
    Topic("erased", 2, {**_DELETED, "segment.bytes": "262144", "retention.bytes": "4194304"}),
    Topic("stamped", 2, {**_DELETED, "segment.bytes": "262144", "retention.bytes": "1048576",
                         "message.timestamp.type": "LogAppendTime"}),
    Topic("recompressed", 1, {**_DELETED, "segment.bytes": "131072", "retention.bytes": "524288", "compression.type": "lz4"}),
)
ERASED = "erased"
# The topic for repeated batches, which has no ledger.
REPEATED = Topic("repeated", 1, {**_DELETED, "segment.bytes": "65536", "retention.bytes": "65536"})

# Background work runs often, and state of clients that are gone expires within two minutes.
OVERRIDES = {
    "log.retention.check.interval.ms": "2000",
    "log.flush.offset.checkpoint.interval.ms": "5000",
    "log.flush.start.offset.checkpoint.interval.ms": "5000",
    "producer.id.expiration.ms": "60000",
    "offsets.retention.minutes": "1",
    "offsets.retention.check.interval.ms": "10000",
    "offsets.topic.num.partitions": "8",
    "connections.max.idle.ms": "30000",
    "auto.create.topics.enable": "false",
}


@dataclass(frozen=True)
class Plan:
    """One soak test. It lasts longer than `duration_s` when an action has not happened by then."""

    duration_s: float
    seed: str
    records_per_s: float = 100.0
    """Of each producer; about five run at a time."""
    say: Callable[[str], None] = print

    @property
    def is_short(self) -> bool:
        """Whether actions happen more often, so that all of them happen in the short time."""
        return self.duration_s < 900

    @property
    def client_life_s(self) -> tuple[float, float]:
        """How long a client runs, minimum and maximum."""
        return (4.0, 12.0) if self.is_short else (15.0, 100.0)

    @property
    def hang_s(self) -> tuple[float, float]:
        """How long a client stays suspended, minimum and maximum: some longer than the session timeout of six seconds."""
        return (3.0, 8.0) if self.is_short else (3.0, 20.0)

    @property
    def administrator_pause_s(self) -> float:
        """The pause between two actions of the administrator."""
        return 0.3 if self.is_short else 2.0

    @property
    def wait_s_max(self) -> float:
        """How long a misbehaving connection stays open, at most."""
        return 4.0 if self.is_short else 15.0

    @property
    def sample_s(self) -> float:
        """The time between two samples."""
        return min(5.0, max(1.0, self.duration_s / 240))

    @property
    def progress_s(self) -> float:
        """The time between two lines of progress."""
        return min(60.0, max(10.0, self.duration_s / 60))
