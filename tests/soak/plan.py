"""What a soak does, how long, and what it is judged by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True)
class Topic:
    """A topic that is there from the beginning to the end."""

    name: str
    partitions: int
    configs: dict[str, str]


# Segments are small (yet hold the largest batch that the clients make) and soon deleted, so that hours of this see many thousands of them.
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
# Where batches are sent again and again; nobody keeps books of it.
REPEATED = Topic("repeated", 1, {**_DELETED, "segment.bytes": "65536", "retention.bytes": "65536"})

# Housekeeping of all kinds comes round often; what clients leave behind is forgotten within a minute or two.
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
    """One soak. Times in seconds unless they say otherwise. It lasts longer than `duration_s` when something has not been done by then."""

    duration_s: float
    seed: str
    records_per_s: float = 100.0
    """Of each producer; there are five or so at a time."""
    say: Callable[[str], None] = print

    @property
    def is_short(self) -> bool:
        """Whether everything happens more often, so that all of it happens in the short time."""
        return self.duration_s < 900

    @property
    def client_life_s(self) -> tuple[float, float]:
        """How long a client runs: at least and at most."""
        return (4.0, 12.0) if self.is_short else (15.0, 100.0)

    @property
    def hang_s(self) -> tuple[float, float]:
        """How long a stopped client stays stopped, at least and at most: some for longer than a session of six seconds."""
        return (3.0, 8.0) if self.is_short else (3.0, 20.0)

    @property
    def administrator_pause_s(self) -> float:
        """Between two actions of the administrator."""
        return 0.3 if self.is_short else 2.0

    @property
    def wait_s_max(self) -> float:
        """How long a connection stays as it is, at most."""
        return 4.0 if self.is_short else 15.0

    @property
    def sample_s(self) -> float:
        """Between two samples."""
        return min(5.0, max(1.0, self.duration_s / 240))

    @property
    def progress_s(self) -> float:
        """Between two lines of progress."""
        return min(60.0, max(10.0, self.duration_s / 60))
