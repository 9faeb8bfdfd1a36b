"""Which offsets a load reads, what it refuses, and the offsets in a table's commits."""

from __future__ import annotations

import json
from typing import Any

import pytest

from txbroker.console.failures import BadUsage, CommandFailed
from txbroker.spark import kafka_source
from txbroker.spark.offset_ranges import OffsetRange, Plan, TableOffsets, WrongData, plan
from txbroker.spark.snapshot import PartitionOffsets, Snapshot, TopicSnapshot
from txbroker.spark.tables.load_commit import KEY, LoadCommit, parse

TABLE = TableOffsets("C", {"t": "id"}, {"t": {0: 10, 1: 0}})


def snapshot(*partitions: PartitionOffsets, topic_id: str = "id", cluster_id: str = "C") -> Snapshot:
    return Snapshot(cluster_id, [TopicSnapshot("t", topic_id, dict(enumerate(partitions)))])


def test_a_first_load_begins_at_the_start_of_the_log() -> None:
    found = plan(snapshot(PartitionOffsets(5, 9, 12), PartitionOffsets(3, 3, 3)), None, skip_expired=False)
    assert found == Plan([OffsetRange("t", 0, 5, 9)], [])


def test_a_later_load_continues_and_takes_new_partitions() -> None:
    found = plan(snapshot(PartitionOffsets(0, 15, 15), PartitionOffsets(0, 0, 0), PartitionOffsets(2, 4, 4)), TABLE, skip_expired=False)
    assert found.ranges == [OffsetRange("t", 0, 10, 15), OffsetRange("t", 2, 2, 4)]


def test_another_topic_of_the_same_table_has_its_own_offsets() -> None:
    other = Snapshot("C", [TopicSnapshot("u", "id of u", {0: PartitionOffsets(0, 3, 3)})])
    found = plan(other, TABLE, skip_expired=False)
    after = TABLE.after(found.ranges, {"u": "id of u"})
    assert after == TableOffsets("C", {"t": "id", "u": "id of u"}, {"t": {0: 10, 1: 0}, "u": {0: 3}})
    assert after.version == 13 > TABLE.version


def test_offsets_that_expired() -> None:
    later = snapshot(PartitionOffsets(12, 15, 15), PartitionOffsets(0, 0, 0))
    with pytest.raises(CommandFailed, match=r"begins at offset 12, and the table has it up to 10: deleted before .*: 2 offsets"):
        plan(later, TABLE, skip_expired=False)
    assert plan(later, TABLE, skip_expired=True) == Plan([OffsetRange("t", 0, 12, 15)], [OffsetRange("t", 0, 10, 12)])


@pytest.mark.parametrize(
    ("now", "expected", "text"),
    [
        (snapshot(PartitionOffsets(0, 15, 15), topic_id="new"), CommandFailed, "deleted and created again"),
        (snapshot(PartitionOffsets(0, 15, 15), cluster_id="D"), CommandFailed, "has data of the cluster C, and this is D"),
        (snapshot(PartitionOffsets(0, 9, 9), PartitionOffsets(0, 0, 0)), WrongData, "the log lost records"),
        (snapshot(PartitionOffsets(0, 15, 15)), WrongData, "has no partition 1"),
    ],
)
def test_what_is_refused(now: Snapshot, expected: type[Exception], text: str) -> None:
    with pytest.raises(CommandFailed, match=text) as caught:
        plan(now, TABLE, skip_expired=True)
    assert type(caught.value) is expected


def test_a_last_stable_offset_below_what_was_loaded_is_nothing_new() -> None:
    assert plan(snapshot(PartitionOffsets(0, 8, 11), PartitionOffsets(0, 0, 0)), TABLE, skip_expired=False) == Plan([], [])


COMMIT = LoadCommit("run", "read_committed", TABLE, [OffsetRange("t", 0, 5, 10)], [OffsetRange("t", 0, 3, 5)])


def test_a_commit_survives_its_text_form() -> None:
    checked = COMMIT._replace(checked=[{"topic": "t", "rows": 5}])
    assert parse(COMMIT.to_json()) == COMMIT
    assert parse(checked.to_json()) == checked
    assert COMMIT.version < checked.version < COMMIT._replace(table=TABLE.after([OffsetRange("t", 1, 0, 1)], {})).version


@pytest.mark.parametrize("text", [None, "", "{}", "[]", "1", "offsets", '{"spark": 1}'])
def test_metadata_of_other_programs_is_none_of_ours(text: str | None) -> None:
    assert parse(text) is None


@pytest.mark.parametrize(
    "change", [{"offsets": {}}, {"offsets": {"t": {"0": ""}}}, {"offsets": ""}, {"topic_ids": {}}, {"ranges": [["t", 1]]}, {"schema": 2}]
)
def test_offsets_that_cannot_be_read_are_an_error_and_no_first_load(change: dict[str, Any]) -> None:
    content = json.loads(COMMIT.to_json())
    content[KEY].update(change)
    with pytest.raises(CommandFailed, match=r"cannot be read|newer version"):
        parse(json.dumps(content))


def test_options_of_the_source() -> None:
    ranges = [OffsetRange("t", 0, 1, 5), OffsetRange("t", 2, 3, 4), OffsetRange("u", 0, 0, 9)]
    assert json.loads(kafka_source.offsets_json(ranges, end=False)) == {"t": {"0": 1, "2": 3}, "u": {"0": 0}}
    assert json.loads(kafka_source.offsets_json(ranges, end=True)) == {"t": {"0": 5, "2": 4}, "u": {"0": 9}}
    short = {"kafka.fetch.max.wait.ms": str(kafka_source.FETCH_WAIT_MS)}
    assert kafka_source.client_options({"fetch.max.bytes": "1000"}) == {**short, "kafka.fetch.max.bytes": "1000"}
    assert kafka_source.client_options({"fetch.max.wait.ms": "50"}) == {"kafka.fetch.max.wait.ms": "50"}
    with pytest.raises(BadUsage, match=r"isolation\.level cannot be set"):
        kafka_source.client_options({"isolation.level": "read_committed"})
