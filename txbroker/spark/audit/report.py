"""What an audit found. Counts of each partition add up on both sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from txbroker.console.texts import json_value
from txbroker.names import amount
from txbroker.spark.audit.blocks import TimeCell
from txbroker.spark.gaps import GapCounts

WRONG = {
    "missing": "written and not delivered",
    "doubled": "delivered more than once",
    "changed": "delivered with another key, value, timestamp or headers",
    "out_of_order": "delivered at another place than written",
    "extra": "delivered and never written",
    "stale": "older than the latest record of their key",
    "lost": "without a record in the topic and without a reason",
    "lost_latest": "removed by compaction, though they are the latest of their keys",
    "unread": "deleted by retention before the group read them",
}
"""The kinds of findings, with what they say about records or offsets."""
LAWFUL = {
    "superseded": "compacted in the topic, with a later record of the key",
    "tombstone": "removed tombstones of the topic",
    "expired": "deleted from the topic by retention",
    "aborted": "of aborted transactions",
    "removed": "compacted or deleted by retention on the delivered side",
}
"""The kinds of differences that are not wrong."""
_ONLY_WRITTEN = ("missing", "changed", "out_of_order", "removed")
_ONLY_DELIVERED = ("changed", "out_of_order", "doubled", "extra", "stale", "lost", "lost_latest", "superseded", "tombstone", "expired",
                   "aborted")  # fmt: skip


class Example(NamedTuple):
    """One record. `other`: where it was written, if it is known and differs. `key` is None if the record has none."""

    offset: int
    other: int | None
    timestamp_ms: int | None
    key: bytes | None

    def as_json(self) -> dict[str, Any]:
        """A key that is not text is `{"base64": ...}`."""
        return {**self._asdict(), "key": json_value(self.key)}


@dataclass(frozen=True)
class Finding:
    """`count` records or offsets of one kind in a partition. `command` shows the first one."""

    kind: str
    topic: str
    partition: int
    count: int
    first_offset: int
    examples: Sequence[Example]
    command: str

    @property
    def sentence(self) -> str:
        """For people."""
        what = "offset" if self.kind in ("lost", "unread") else "record"
        found = f"{amount(self.count, what)} {WRONG[self.kind]}, the first at offset {self.first_offset}"
        return f"{self.topic}-{self.partition}: {found}; see it with: {self.command}"

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        fields = ("kind", "topic", "partition", "count", "first_offset", "command")
        return {**{name: getattr(self, name) for name in fields}, "examples": [one.as_json() for one in self.examples]}


class KeyCounts(NamedTuple):
    """Keys of a partition. `unseen`: their latest value was not delivered; `never`: nothing of them was."""

    keys: int = 0
    unseen: int = 0
    never: int = 0


@dataclass(frozen=True)
class PartitionResult:
    """The offsets [start, end) of a partition that were compared, of which [end, until) was not delivered yet.

    `delivered_end`: the end on the delivered side, whose offsets may differ. `waiting`: how many records were not delivered yet.
    `events`: how many records of each kind, wrong or lawful. `gaps`: offsets of the topic without a record; None if there are none, or the
    topic's log cannot be asked.
    """

    topic: str
    partition: int
    start: int
    end: int
    until: int
    delivered_end: int
    equal: int
    waiting: int
    written_bytes: int
    delivered_bytes: int
    events: Mapping[str, int]
    gaps: GapCounts | None
    keys: KeyCounts | None = None

    @property
    def written(self) -> int:
        """The topic's records: those that are equal, and those of `_ONLY_WRITTEN`."""
        return self.equal + sum(self.events.get(kind, 0) for kind in _ONLY_WRITTEN)

    @property
    def delivered(self) -> int:
        """The delivered records: those that are equal, and those of `_ONLY_DELIVERED`."""
        return self.equal + sum(self.events.get(kind, 0) for kind in _ONLY_DELIVERED)

    def with_delivered(self, delivered: int) -> PartitionResult:
        """With so many records on the delivered side: those that are in no event are equal."""
        return replace(self, equal=self.equal + delivered - self.delivered)

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        fields = ("topic", "partition", "start", "end", "until", "delivered_end", "written", "delivered", "equal", "waiting",
                  "written_bytes", "delivered_bytes")  # fmt: skip
        keys = None if self.keys is None else self.keys._asdict()
        gaps = None if self.gaps is None else self.gaps._asdict()
        return {**{name: getattr(self, name) for name in fields}, "events": dict(self.events), "gaps": gaps, "keys": keys}


class AgeBucket(NamedTuple):
    """Keys whose latest value was written in [from_ms, to_ms) before the audit; `to_ms` None: longer ago.

    `lag_ms`: of those whose latest value was not delivered, the longest time from the delivered value to the latest one, or since the
    latest one was written if nothing was delivered.
    """

    from_ms: int
    to_ms: int | None
    keys: int
    unseen: int
    never: int
    lag_ms: int


@dataclass(frozen=True)
class AuditReport:
    """`ages` and the partitions' `keys` only if keys were compared. `not_checked`: sentences."""

    kind: str
    topic: str
    delivered: str
    audited_ms: int
    isolation_level: str
    partitions: Sequence[PartitionResult]
    findings: Sequence[Finding]
    times: Sequence[TimeCell]
    ages: Sequence[AgeBucket]
    keys_table: str | None
    not_checked: Sequence[str]

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        fields = ("kind", "topic", "delivered", "audited_ms", "isolation_level", "keys_table")
        return {
            **{name: getattr(self, name) for name in fields},
            "findings": [one.as_json() for one in self.findings],
            "partitions": [one.as_json() for one in self.partitions],
            "times": [one._asdict() for one in self.times],
            "ages": [one._asdict() for one in self.ages],
            "not_checked": list(self.not_checked),
        }
