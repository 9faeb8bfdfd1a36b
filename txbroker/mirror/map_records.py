"""The records of the mirror's own topic on the target: JSON objects as keys and values.

The topic is compacted: the last record of a key applies. Four kinds of records, each for one source cluster:

- `owner`: the producer ids of a mirror, and its last run. A run that begins takes the next epoch, which fences the run before it.
- `topic`: a topic is a copy: of which topic id, by which mirror, and which clusters its records come from.
- `progress`: how far a partition is copied.
- `runs`: a part of a partition's offset map, by the target's first offset in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from txbroker.errors import CorruptRecords
from txbroker.mirror.offset_map import MappedRun, OffsetMap
from txbroker.names import NULL_TOPIC_ID, TopicPartition, id_from_text, id_to_text

VERSION = 1
RUNS_IN_A_RECORD = 2000  # some 50 KB of JSON


@dataclass(slots=True, frozen=True)
class Owner:
    """A mirror, by its name. `producer_id` and `epoch` write the mirror's topic, `data_producer_id` (epoch 0) the copies."""

    name: str
    run_id: str
    producer_id: int
    epoch: int
    data_producer_id: int


@dataclass(slots=True, frozen=True)
class TopicMark:
    """A topic that is a copy. `origins`: the ids of the clusters that its records come from, the first one first."""

    name: str  # of the mirror
    source_topic_id: bytes
    target_topic_id: bytes
    origins: tuple[str, ...]
    same_offsets: bool = False
    promoted: bool = False


@dataclass(slots=True, frozen=True)
class Progress:
    """How far a partition is copied: see OffsetMap. The target's record at `sequence_start` has the producer's sequence 0."""

    position: int
    target_start: int
    mapped_end: int
    target_end: int
    producer_id: int
    sequence_start: int


@dataclass(slots=True)
class Mapped:
    """What is stored for one partition. `runs` by the first target offset of each part."""

    progress: Progress | None = None
    runs: dict[int, list[MappedRun]] = field(default_factory=dict)

    def offset_map(self) -> OffsetMap | None:
        """The map that they make; CorruptRecords if parts do not fit together."""
        if self.progress is None:
            return None
        found = OffsetMap(self.progress.position, self.progress.target_start)
        stored = [run for first in sorted(self.runs) for run in self.runs[first]]
        try:
            found.restore(stored, self.progress.mapped_end, self.progress.target_end)
        except ValueError as error:
            raise CorruptRecords(str(error)) from None
        found.position = self.progress.position
        return found


@dataclass(slots=True)
class MapContent:
    """Everything in the topic. Keys begin with the id of the source cluster."""

    owners: dict[tuple[str, str], Owner] = field(default_factory=dict)
    topics: dict[tuple[str, str], TopicMark] = field(default_factory=dict)
    partitions: dict[tuple[str, TopicPartition], Mapped] = field(default_factory=dict)

    def copies(self, topic: str) -> list[tuple[str, TopicMark]]:
        """The marks of a topic, with the cluster that each is copied from, but for those that were promoted."""
        return [(source, mark) for (source, name), mark in self.topics.items() if name == topic and not mark.promoted]

    def take(self, key: bytes | None, value: bytes | None) -> None:
        """One record, the next after those before; CorruptRecords."""
        try:
            _take(self, _Fields(json.loads(key or b"null")), None if value is None else _Fields(json.loads(value)))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CorruptRecords(f"key {(key or b'')[:100]!r}: {error}") from None


class _Fields:
    """An object of JSON, whose values are checked when they are read."""

    def __init__(self, found: Any) -> None:
        if not isinstance(found, dict):
            raise ValueError("not an object")
        self._found = found

    def number(self, name: str) -> int:
        value = self._found[name]
        if not isinstance(value, int) or isinstance(value, bool) or not -1 <= value < 2**63:
            raise ValueError(f"{name} is {value!r}")
        return value

    def text(self, name: str) -> str:
        value = self._found[name]
        if not isinstance(value, str):
            raise ValueError(f"{name} is {value!r}")
        return value

    def truth(self, name: str) -> bool:
        return self._found[name] is True

    def list(self, name: str) -> list[Any]:
        value = self._found[name]
        if not isinstance(value, list):
            raise ValueError(f"{name} is no list")
        return value


def _take(content: MapContent, key: _Fields, value: _Fields | None) -> None:
    if value is not None and value.number("version") != VERSION:
        raise ValueError(f"version {value.number('version')} is not known here; use a newer txbroker")
    source, kind = key.text("source"), key.text("kind")
    if kind == "owner":
        name = key.text("name")
        if value is None:
            content.owners.pop((source, name), None)
        else:
            ids = (value.number("producer_id"), value.number("epoch"), value.number("data_producer_id"))
            content.owners[source, name] = Owner(name, value.text("run"), *ids)
        return
    topic = key.text("topic")
    if kind == "topic":
        if value is None:
            content.topics.pop((source, topic), None)
        else:
            origins = tuple(str(each) for each in value.list("origins"))
            source_id, target_id = id_from_text(value.text("source_topic_id")), id_from_text(value.text("target_topic_id"))
            mark = TopicMark(value.text("name"), source_id, target_id, origins, value.truth("same_offsets"), value.truth("promoted"))
            content.topics[source, topic] = mark
        return
    mapped = content.partitions.setdefault((source, TopicPartition(topic, key.number("partition"))), Mapped())
    if kind == "progress":
        mapped.progress = None if value is None else Progress(*(value.number(name) for name in Progress.__slots__))
    elif kind == "runs":
        first = key.number("first")
        if value is None:
            mapped.runs.pop(first, None)
        else:
            mapped.runs[first] = [_run(each) for each in value.list("runs")]
    else:
        raise ValueError(f"{kind!r} is no kind of record")


def _run(found: Any) -> MappedRun:
    if not isinstance(found, list) or len(found) != 3 or not all(isinstance(each, int) and 0 <= each < 2**63 for each in found):
        raise ValueError(f"{found!r} is no run")
    return MappedRun(*found)


# --- keys and values, to be written ---

Pair = tuple[bytes, bytes | None]


def owner_pair(source: str, owner: Owner) -> Pair:
    """The record of an owner."""
    value = {"run": owner.run_id, "producer_id": owner.producer_id, "epoch": owner.epoch, "data_producer_id": owner.data_producer_id}
    return _encoded({"kind": "owner", "source": source, "name": owner.name}), _value(value)


def topic_pair(source: str, topic: str, mark: TopicMark) -> Pair:
    """The record of a topic."""
    value = {"name": mark.name, "source_topic_id": id_to_text(mark.source_topic_id or NULL_TOPIC_ID),
             "target_topic_id": id_to_text(mark.target_topic_id or NULL_TOPIC_ID), "origins": list(mark.origins),
             "same_offsets": mark.same_offsets, "promoted": mark.promoted}
    return _encoded({"kind": "topic", "source": source, "topic": topic}), _value(value)


def progress_pair(source: str, partition: TopicPartition, progress: Progress) -> Pair:
    """The record of a partition's progress."""
    value = {name: getattr(progress, name) for name in Progress.__slots__}
    return _encoded({"kind": "progress", "source": source, "topic": partition.topic, "partition": partition.partition}), _value(value)


def runs_pair(source: str, partition: TopicPartition, first: int, runs: Sequence[MappedRun] | None) -> Pair:
    """The record of a part of a partition's map; None deletes it."""
    key = {"kind": "runs", "source": source, "topic": partition.topic, "partition": partition.partition, "first": first}
    return _encoded(key), None if runs is None else _value({"runs": [list(run) for run in runs]})


def _value(found: Mapping[str, Any]) -> bytes:
    return _encoded({"version": VERSION, **found})


def _encoded(found: Mapping[str, Any]) -> bytes:
    return json.dumps(found, separators=(",", ":")).encode()
