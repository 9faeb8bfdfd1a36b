"""The offset map against a list of pairs, and what is stored of it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txbroker.errors import CorruptRecords
from txbroker.mirror import partition as partition_module
from txbroker.mirror.map_records import MapContent, Owner, TopicMark, owner_pair, topic_pair
from txbroker.mirror.offset_map import OffsetMap
from txbroker.mirror.partition import PartitionCopy
from txbroker.names import TopicPartition

SOURCE = "cluster"
PARTITION = TopicPartition("t", 3)
# How many offsets have no record, and how many have one after them; or the target got so many records of another origin.
STEPS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), max_size=12)


def built(steps: list[tuple[int, int]], offset_map: OffsetMap, pairs: list[tuple[int, int]]) -> None:
    for gap, length in steps:
        source = offset_map.position + gap
        pairs += [(source + index, offset_map.target_end + index) for index in range(length)]
        offset_map.add(source, length)


def check(offset_map: OffsetMap, pairs: list[tuple[int, int]]) -> None:
    for source in range(offset_map.position + 3):
        assert offset_map.target_of(source) == next((target for each, target in pairs if each >= source), offset_map.target_end)
    assert [(run.source + index, run.target + index) for run in offset_map.runs() for index in range(run.length)] == pairs
    for target in range(offset_map.target_start, offset_map.target_end):
        expected = next((source for source, each in pairs if each >= target), offset_map.position)
        assert offset_map.source_of(target) == expected


@given(steps=STEPS, skipped=st.integers(0, 3), later=STEPS, kept=st.floats(0, 1), last=STEPS)
def test_against_a_list(
    steps: list[tuple[int, int]], skipped: int, later: list[tuple[int, int]], kept: float, last: list[tuple[int, int]]
) -> None:
    offset_map, pairs = OffsetMap(5, 7), list[tuple[int, int]]()
    built(steps, offset_map, pairs)
    offset_map.skip_to(offset_map.target_end + skipped)
    built(later, offset_map, pairs)
    check(offset_map, pairs)
    offset_map.truncate(7 + round(kept * (offset_map.target_end - 7)))
    pairs = [pair for pair in pairs if pair[1] < offset_map.target_end]
    check(offset_map, pairs)
    built(last, offset_map, pairs)
    check(offset_map, pairs)


@given(parts=st.lists(st.tuples(STEPS, st.sampled_from(["add", "truncate", "skip"])), max_size=6))
def test_what_is_stored_is_the_map(parts: list[tuple[list[tuple[int, int]], str]]) -> None:
    copy = PartitionCopy(PARTITION, keep_offsets=False)
    copy.new_map(5, 7, 1000)
    assert copy.map is not None
    stored = dict(copy.unsaved(SOURCE))
    pairs: list[tuple[int, int]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition_module, "RUNS_IN_A_RECORD", 3)
        for steps, then in parts:
            built(steps, copy.map, pairs)
            if then == "truncate":
                stored.update(copy.unsaved(SOURCE))
                stored.update(copy.truncated(SOURCE, (7 + copy.map.target_end) // 2))
                pairs = [pair for pair in pairs if pair[1] < copy.map.target_end]
            elif then == "skip":
                copy.skip_to(copy.map.target_end + 2, 1001)
            stored.update(copy.unsaved(SOURCE))
            content = MapContent()
            for pair in stored.items():
                content.take(*pair)
            found = content.partitions[SOURCE, PARTITION]
            restored = found.offset_map()
            assert restored is not None and found.progress is not None
            check(restored, pairs)
            ends = (restored.position, restored.target_end, found.progress.producer_id, found.progress.sequence_start)
            assert ends == (copy.map.position, copy.map.target_end, copy.producer_id, copy.sequence_start)
            if then == "add":  # a new run of the mirror goes on
                copy = PartitionCopy(PARTITION, keep_offsets=False)
                copy.restore(restored, found.progress)
                assert copy.map is not None and not list(copy.unsaved(SOURCE))


def test_only_what_has_changed_is_stored() -> None:
    copy = PartitionCopy(PARTITION, keep_offsets=False)
    copy.new_map(0, 0, 1000)
    assert copy.map is not None
    assert len(list(copy.unsaved(SOURCE))) == 1 and not list(copy.unsaved(SOURCE))
    copy.map.add(0, 10)
    assert len(list(copy.unsaved(SOURCE))) == 2, "the first run"
    copy.map.add(10, 10)
    assert len(list(copy.unsaved(SOURCE))) == 1, "the progress alone: the run goes on"


def test_owners_and_topics() -> None:
    owner = Owner("m", "run", 5, 2, 6)
    mark = TopicMark("m", b"a" * 16, b"b" * 16, ("x", "y"), same_offsets=True)
    content = MapContent()
    for pair in (owner_pair(SOURCE, owner), topic_pair(SOURCE, "t", mark)):
        content.take(*pair)
    assert content.owners == {(SOURCE, "m"): owner} and content.topics == {(SOURCE, "t"): mark}
    assert content.copies("t") == [(SOURCE, mark)] and not content.copies("u")
    content.take(topic_pair(SOURCE, "t", mark)[0], None)
    assert not content.topics


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b"{", b"{}"),
        (b"[]", b"{}"),
        (b"[" * 100_000, None),
        ({"kind": "progress", "source": "s", "topic": "t", "partition": "0"}, {"version": 1}),
        ({"kind": "progress", "source": "s", "topic": "t", "partition": 0}, {"version": 1, "position": -5}),
        ({"kind": "runs", "source": "s", "topic": "t", "partition": 0, "first": 0}, {"version": 1, "runs": [[1, 2]]}),
        ({"kind": "runs", "source": "s", "topic": "t", "partition": 0, "first": 0}, {"version": 1, "runs": [[1, 2, 2**70]]}),
        ({"kind": "owner", "source": "s", "name": "m"}, {"version": 2}),
        ({"kind": "other", "source": "s", "topic": "t", "partition": 0}, {"version": 1}),
        ({"kind": "topic", "source": "s", "topic": "t"}, {"version": 1, "origins": [], "name": "m", "source_topic_id": "x"}),
    ],
)
def test_records_that_are_none_of_ours(key: object, value: object) -> None:
    given = [each if isinstance(each, bytes | None) else json.dumps(each).encode() for each in (key, value)]
    with pytest.raises(CorruptRecords):
        MapContent().take(*given)


def test_runs_that_contradict_each_other() -> None:
    content = MapContent()
    for first, runs in ((0, [[0, 0, 5]]), (3, [[9, 3, 1]])):
        key = {"kind": "runs", "source": "s", "topic": "t", "partition": 0, "first": first}
        content.take(json.dumps(key).encode(), json.dumps({"version": 1, "runs": runs}).encode())
    progress = {"version": 1, "position": 9, "target_start": 0, "mapped_end": 4, "target_end": 4, "producer_id": 1, "sequence_start": 0}
    content.take(json.dumps({"kind": "progress", "source": "s", "topic": "t", "partition": 0}).encode(), json.dumps(progress).encode())
    with pytest.raises(CorruptRecords):
        content.partitions["s", TopicPartition("t", 0)].offset_map()
