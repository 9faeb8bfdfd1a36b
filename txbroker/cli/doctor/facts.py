"""What brokers and files report about a topic: the input of `expiry_checks` and `compaction_checks`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True, frozen=True)
class SegmentFacts:
    """One segment, from its files. `first_ms` and `largest_ms` are record timestamps, None without any."""

    base_offset: int
    size: int
    first_ms: int | None
    largest_ms: int | None
    modified_ms: int
    active: bool

    @property
    def expires_by_ms(self) -> int:
        """The time that retention.ms counts from: the largest timestamp, or the file's modification time if there is none."""
        return self.modified_ms if self.largest_ms is None else self.largest_ms


@dataclass(slots=True, frozen=True)
class CleaningFacts:
    """The state of a partition's compaction, as a txbroker reports it.

    `why` and `sentence` are the reason why it is not compacted now, as a code and as text; both are empty when it is, or is about to be.
    """

    state: str
    dirty_ratio: float
    why: str
    sentence: str


@dataclass(slots=True)
class PartitionFacts:
    """One partition. `segments` is empty unless its files were read; None: not known. Only a txbroker reports `cleaning`."""

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
        """Whether it has no records."""
        return self.end_offset <= self.start_offset

    @property
    def name(self) -> str:
        """Its name in findings."""
        return f"partition {self.index}"


@dataclass(slots=True, frozen=True)
class Configs:
    """Configuration values of the topic and of a broker. A missing value stands for Kafka's default."""

    topic: Mapping[str, str | None]
    broker: Mapping[str, str | None]

    def number(self, key: str, default: int) -> int:
        """A number in the topic's configuration."""
        return _number(self.topic.get(key), default)

    def broker_number(self, key: str, default: int) -> int:
        """A number in the broker's configuration."""
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
