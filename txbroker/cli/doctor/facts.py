"""What is known of a topic and its partitions, from the brokers or from files, for the reasoning in `expiry` and `compaction`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True, frozen=True)
class SegmentFacts:
    """One segment, as its files tell. `first_ms` and `largest_ms` are timestamps of records, None without any."""

    base_offset: int
    size: int
    first_ms: int | None
    largest_ms: int | None
    modified_ms: int
    active: bool

    @property
    def expires_by_ms(self) -> int:
        """What retention by time goes by: the largest timestamp, or when the file was written if there is none."""
        return self.modified_ms if self.largest_ms is None else self.largest_ms


@dataclass(slots=True, frozen=True)
class CleaningFacts:
    """What a txbroker itself says of the compaction of a partition: the reason why it is not compacted now, as a word and in a sentence.

    Both are empty when a pass is under way, or about to begin.
    """

    state: str
    dirty_ratio: float
    why: str
    sentence: str


@dataclass(slots=True)
class PartitionFacts:
    """One partition. `segments` is empty unless its files could be looked at; None stands for what is not known.

    `cleaning` is told by a txbroker only.
    """

    index: int
    start_offset: int = -1
    end_offset: int = -1
    oldest_ms: int | None = None
    newest_ms: int | None = None
    size: int | None = None
    segments: list[SegmentFacts] = field(default_factory=list)
    first_dirty_offset: int | None = None
    cleaning: CleaningFacts | None = None

    @property
    def empty(self) -> bool:
        """Whether there is no record."""
        return self.end_offset <= self.start_offset

    @property
    def name(self) -> str:
        """For sentences."""
        return f"partition {self.index}"


@dataclass(slots=True, frozen=True)
class Configs:
    """Configurations as texts, of the topic and of a broker. What a broker does not tell has Kafka's default."""

    topic: Mapping[str, str | None]
    broker: Mapping[str, str | None]

    def number(self, key: str, default: int) -> int:
        """A whole number of the topic."""
        return _number(self.topic.get(key), default)

    def broker_number(self, key: str, default: int) -> int:
        """A whole number of the broker."""
        return _number(self.broker.get(key), default)

    @property
    def policy(self) -> frozenset[str]:
        """cleanup.policy: delete, compact, both or none."""
        return frozenset(part.strip() for part in (self.topic.get("cleanup.policy") or "delete").split(",") if part.strip())


def _number(text: str | None, default: int) -> int:
    try:
        return default if text is None else int(text)
    except ValueError:
        return default
