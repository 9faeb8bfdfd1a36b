"""kafka-consumer-groups, on a group without members and on one with a member."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from compat.adapter import until
from compat.samples import PARTITIONS, equal, sample_records
from compat.tools.bench import Bench, table

COUNT = 60  # twenty records in each partition; record i is of 2023-11-14 22:13:20 UTC and i tenths of a second
_EACH = COUNT // PARTITIONS
_AT_END = {"0": _EACH, "1": _EACH, "2": _EACH}

Offsets = Mapping[str, int]


def consumer_groups(bench: Bench, topic: str) -> None:
    group = f"{topic}-group"
    bench.filled(topic, COUNT)
    bench.plain.read_in_group(topic, group, COUNT)
    _without_members(bench, topic, group)
    _with_a_member(bench, topic, group)
    _resets(bench, topic, group)
    _deletions(bench, topic, group)


def _without_members(bench: Bench, topic: str, group: str) -> None:
    assert group in bench.out("consumer-groups", "--list").split(), "the group is not in the list"
    states = table(bench.out("consumer-groups", "--list", "--state"))
    assert {"GROUP": group, "STATE": "Empty"} in states, "the group's state is not in the list"
    assert group in bench.out("consumer-groups", "--list", "--state", "empty").split()
    assert group not in bench.out("consumer-groups", "--list", "--state", "stable").split()
    rows = _rows(bench, group)
    equal({row["PARTITION"]: (row["TOPIC"], row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"], row["CONSUMER-ID"]) for row in rows},
          dict.fromkeys(_AT_END, (topic, "20", "20", "0", "-")), "the described offsets")
    state = bench.out("consumer-groups", "--describe", "--group", group, "--state")
    assert state.split()[-2:] == ["Empty", "0"] and f"{bench.address}  ({bench.broker_id})" in state, state
    assert group in bench.out("consumer-groups", "--describe", "--all-groups", "--state").split()
    unknown = bench.run("consumer-groups", "--describe", "--group", f"{group}-none")
    assert re.search("GroupIdNotFoundException|does not exist", unknown.out + unknown.err), unknown


def _with_a_member(bench: Bench, topic: str, group: str) -> None:
    with bench.events("verifiable-consumer", "--topic", topic, "--group-id", group, "--session-timeout", "30000") as member:
        member.until(lambda: bool(member.named("partitions_assigned")), "the member has its partitions")
        members = table(bench.out("consumer-groups", "--describe", "--group", group, "--members", "--verbose"))
        (found,) = members
        equal(found["#PARTITIONS"], "3", "partitions of the member")
        assert re.search(r"\(0,1,2\)|:0,1,2", " ".join(found.values())), found  # 3.9.1 leaves out the topic
        bench.plain.produce(topic, [record._replace(offset=record.offset + _EACH) for record in sample_records(3)])
        member.until(lambda: sum(event["count"] for event in member.named("records_consumed")) == 3, "the member reads three records")
        until(lambda: bench.group_offsets(group) == {0: 21, 1: 21, 2: 21}, "the member commits")
        rows = _rows(bench, group)
        equal({row["CURRENT-OFFSET"] + row["LAG"] for row in rows}, {"210"}, "offset and lag")
        assert all(row["CONSUMER-ID"].startswith(row["CLIENT-ID"]) and row["HOST"].startswith("/") for row in rows), rows
        state = bench.out("consumer-groups", "--describe", "--group", group, "--state")
        assert state.split()[-3:] == ["range", "Stable", "1"], state
        refused = bench.run("consumer-groups", "--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute")
        assert "inactive" in refused.out + refused.err, refused
        assert "GroupNotEmptyException" in bench.out("consumer-groups", "--delete", "--group", group)
        equal(bench.group_offsets(group), {0: 21, 1: 21, 2: 21}, "offsets after a refused reset")
        member.stop()
    until(lambda: bench.plain.group_state(group) == "empty", "the group is empty")


def _resets(bench: Bench, topic: str, group: str) -> None:
    def reset(wanted: Offsets, *how: str, topics: tuple[str, ...] = ("--topic", topic), execute: bool = True) -> None:
        before = bench.group_offsets(group)
        really = "--execute" if execute else "--dry-run"
        printed = table(bench.out("consumer-groups", "--reset-offsets", "--group", group, *topics, *how, really))
        equal({row["PARTITION"]: int(row["NEW-OFFSET"]) for row in printed}, wanted, f"new offsets by {' '.join(how)}")
        after = {**before, **{int(partition): offset for partition, offset in wanted.items()}} if execute else before
        equal(bench.group_offsets(group), after, f"committed offsets after {' '.join(how)}")

    ends = dict.fromkeys(_AT_END, 21)
    starts = dict.fromkeys(_AT_END, 0)
    reset(starts, "--to-earliest", execute=False)
    reset(starts, "--to-earliest")
    reset(ends, "--to-latest")
    reset({"0": 5, "1": 5}, "--to-offset", "5", topics=("--topic", f"{topic}:0,1"))
    reset({"0": 5, "1": 5, "2": 21}, "--to-current")
    reset({"0": 2, "1": 2, "2": 18}, "--shift-by", "-3")
    reset({"0": 6, "1": 6, "2": 21}, "--shift-by", "4", topics=("--all-topics",))
    # Two seconds after the first record: number 20 is offset 6 of partition 2. What was sent later has the times of the first three.
    reset({"0": 7, "1": 7, "2": 6}, "--to-datetime", "2023-11-14T22:13:22.000Z")
    reset(starts, "--by-duration", "P3650D")
    reset(ends, "--by-duration", "PT1S")
    _from_file(bench, topic, group)


def _from_file(bench: Bench, topic: str, group: str) -> None:
    exported = bench.out("consumer-groups", "--reset-offsets", "--group", group, "--topic", topic, "--to-offset", "9", "--export",
                         "--dry-run")
    lines = exported.replace('"', "").split()
    equal(sorted(lines), sorted(f"{topic},{partition},9" for partition in range(PARTITIONS)), "exported offsets")
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "offsets.csv"
        path.write_text("".join(f"{line}\n" for line in lines[:2]))
        bench.out("consumer-groups", "--reset-offsets", "--group", group, "--from-file", str(path), "--execute")
    wanted = dict.fromkeys(range(PARTITIONS), 21) | {int(line.split(",")[1]): 9 for line in lines[:2]}
    equal(bench.group_offsets(group), wanted, "offsets from a file")
    read = bench.plain.read_in_group(topic, group, 24)
    equal({record.partition for record in read}, {int(line.split(",")[1]) for line in lines[:2]}, "partitions that the group reads again")
    equal({record.offset for record in read}, set(range(9, 21)), "offsets that the group reads again")


def _deletions(bench: Bench, topic: str, group: str) -> None:
    deleted = table(bench.out("consumer-groups", "--delete-offsets", "--group", group, "--topic", f"{topic}:0"))
    equal(deleted, [{"TOPIC": topic, "PARTITION": "0", "STATUS": "Successful"}], "the deletion of offsets")
    equal(sorted(bench.group_offsets(group)), [1, 2], "partitions with offsets")
    assert "successful" in bench.out("consumer-groups", "--delete", "--group", group)
    assert group not in bench.out("consumer-groups", "--list").split(), "the group is still in the list"
    assert group not in bench.plain.groups(), "the group is still there"
    assert "GroupIdNotFoundException" in bench.out("consumer-groups", "--delete", "--group", group)


def _rows(bench: Bench, group: str) -> list[Mapping[str, str]]:
    rows = table(bench.out("consumer-groups", "--describe", "--group", group))
    equal(sorted(row["PARTITION"] for row in rows), ["0", "1", "2"], "described partitions")
    return rows
