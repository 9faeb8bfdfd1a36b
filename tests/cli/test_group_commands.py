"""`txbroker groups` on a real broker, with real members."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.structs import OffsetAndMetadata

from tests.cli.commands import fill, on_terminal, run
from tests.support.raw_admin import create_topic
from tests.support.server import Server
from tests.support.waiting import until

pytestmark = pytest.mark.process


class Groups:
    """Runs the command on one broker."""

    def __init__(self, broker: Server) -> None:
        self._command = ("groups", "--bootstrap-server", broker.address)

    def lines(self, *flags: str, status: int = 0) -> list[str]:
        """The output for scripts."""
        return run(*self._command, *flags, status=status)[0].splitlines()

    def rows(self, *flags: str, status: int = 0) -> list[dict[str, Any]]:
        """The output with --json."""
        return [json.loads(line) for line in self.lines(*flags, "--json", status=status)]

    def complaint(self, *flags: str, status: int = 1) -> str:
        """The messages on standard error."""
        return run(*self._command, *flags, status=status)[1]

    def shown(self, *flags: str, columns: int) -> str:
        """The output on a terminal."""
        return on_terminal(*self._command, *flags, columns=columns)


@pytest.fixture
def groups(broker: Server) -> Groups:
    return Groups(broker)


@contextmanager
def member(broker: Server, group: str, topic: str) -> Iterator[Any]:
    """Runs a member of the group, which has partitions, until the end of the block."""
    consumer = KafkaConsumer(topic, bootstrap_servers=broker.address, group_id=group, group_instance_id="one", enable_auto_commit=False)
    try:
        # kafka-python forgets an assignment that arrives just as a poll times out.
        until(lambda: consumer.poll(2000) is not None and bool(consumer.assignment()), "partitions are assigned")
        yield consumer
    finally:
        consumer.close()


def commit(broker: Server, group: str, topic: str, offsets: dict[int, int]) -> None:
    """Commit offsets for a group without members."""
    consumer = KafkaConsumer(bootstrap_servers=broker.address, group_id=group, enable_auto_commit=False)
    consumer.assign([TopicPartition(topic, partition) for partition in offsets])
    consumer.commit({TopicPartition(topic, partition): OffsetAndMetadata(offset, "", -1) for partition, offset in offsets.items()})
    consumer.close()


def committed(groups: Groups, group: str) -> dict[int, int]:
    return {row["partition"]: row["current_offset"] for row in groups.rows("--describe", "--group", group)}


def test_groups_are_listed_and_described(broker: Server, groups: Groups, name: str) -> None:
    create_topic(broker, name, 3)
    fill(broker, name, {0: 10, 1: 20})
    busy, idle = f"{name}-busy", f"{name}-idle"
    commit(broker, idle, name, {0: 4, 1: 20})
    with member(broker, busy, name) as consumer:
        consumer.commit({TopicPartition(name, 1): OffsetAndMetadata(15, "", -1)})
        listed = {row["group"]: row for row in groups.rows("--list")}
        assert [listed[group]["state"] for group in (busy, idle)] == ["Stable", "Empty"]
        assert {busy, idle} <= set(groups.lines("--list"))
        assert idle not in groups.lines("--list", "--state", "Stable")[1:]
        assert groups.lines("--list", "--state")[0].split() == ["GROUP", "STATE"]

        blank, heading, *rows = groups.lines("--describe", "--group", busy)
        assert blank == ""
        headings = "GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID"
        assert " ".join(heading.split()) == headings
        assert [line.split()[:6] for line in rows] == [
            [busy, name, "0", "-", "10", "-"], [busy, name, "1", "15", "20", "5"], [busy, name, "2", "-", "0", "-"],
        ]  # fmt: skip
        assert all("kafka-python" in line for line in rows)
        (found,) = groups.rows("--describe", "--group", busy, "--members")
        assert (found["group_instance_id"], found["partition_count"]) == ("one", 3)
        assert found["assignment"] == [{"topic": name, "partitions": [0, 1, 2]}]
        verbose = groups.lines("--describe", "--group", busy, "--members", "--verbose")
        assert verbose[2].split()[-4:] == ["-", f"{name}:0,1,2", "-", "-"]
        (state,) = groups.rows("--describe", "--group", busy, "--state")
        assert (state["state"], state["member_count"], state["coordinator"]["port"]) == ("Stable", 1, broker.port)
        for columns in (40, 100):
            assert all(len(line) <= columns for line in groups.shown("--describe", "--group", busy, columns=columns).splitlines())

    lines, complaint = run("groups", "--bootstrap-server", broker.address, "--describe", "--group", idle)
    assert [line.split() for line in lines.splitlines()[2:]] == [
        [idle, name, "0", "4", "10", "6", "-", "-", "-"], [idle, name, "1", "20", "20", "0", "-", "-", "-"],
    ]  # fmt: skip
    assert complaint == f"Consumer group '{idle}' has no active members.\n"
    everything = {row["group"] for row in groups.rows("--describe", "--all-groups")}
    assert idle in everything
    missing = groups.complaint("--describe", "--group", f"no-{name}")
    assert missing == f"Consumer group 'no-{name}' does not exist; see `txbroker groups --list`\n"


def test_offsets_are_reset(broker: Server, groups: Groups, name: str, tmp_path: Path) -> None:
    create_topic(broker, name, 2)
    fill(broker, name, {0: 100, 1: 50})  # timestamps are 1 ms apart
    commit(broker, name, name, {0: 40, 1: 30})

    def reset(*flags: str, scope: tuple[str, ...] = ("--all-topics",)) -> dict[int, int]:
        rows = groups.rows("--reset-offsets", "--group", name, *scope, *flags)
        assert {row["executed"] for row in rows} == {"--execute" in flags}
        return {row["partition"]: row["new_offset"] for row in rows}

    assert reset("--to-earliest", "--dry-run") == {0: 0, 1: 0}
    assert reset("--to-latest") == {0: 100, 1: 50}
    assert reset("--shift-by", "-35") == {0: 5, 1: 0}
    assert reset("--to-offset", "70") == {0: 70, 1: 50}
    assert reset("--to-datetime", "2023-11-14T22:13:20.060Z") == {0: 60, 1: 50}, "without a later record: the end"
    assert reset("--by-duration", "PT1H") == {0: 100, 1: 50}
    assert reset("--to-current", scope=("--topic", f"{name}:1")) == {1: 30}
    assert committed(groups, name) == {0: 40, 1: 30}, "nothing of this was executed"

    exported = groups.lines("--reset-offsets", "--group", name, "--all-topics", "--shift-by", "1", "--export", "--dry-run")
    assert exported == [f"{name},0,41", f"{name},1,31"]
    plan = tmp_path / "plan.csv"
    plan.write_text("\n".join(exported))
    assert reset("--to-earliest", "--execute", scope=("--topic", f"{name}:0")) == {0: 0}
    assert committed(groups, name) == {0: 0, 1: 30}
    assert reset("--from-file", str(plan), "--execute", scope=()) == {0: 41, 1: 31}
    assert committed(groups, name) == {0: 41, 1: 31}

    fresh = f"{name}-fresh"
    blank, heading, *rows = groups.lines("--reset-offsets", "--group", fresh, "--topic", name, "--to-current", "--execute")
    assert (blank, heading.split()) == ("", ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"])
    assert [line.split() for line in rows] == [[fresh, name, "0", "100"], [fresh, name, "1", "50"]]
    assert committed(groups, fresh) == {0: 100, 1: 50}, "a new group"

    nothing = groups.complaint("--reset-offsets", "--group", f"no-{name}", "--topic", name, "--shift-by", "1")
    assert f"there is no committed offset of partition {name}-0 to shift" in nothing
    warning = groups.complaint("--reset-offsets", "--group", name, "--all-topics", "--to-latest", status=0)
    assert "use --dry-run to hide this warning" in warning


def test_a_group_with_members_is_refused(broker: Server, groups: Groups, name: str) -> None:
    create_topic(broker, name, 1)
    fill(broker, name, {0: 10})
    with member(broker, name, name) as consumer:
        consumer.commit({TopicPartition(name, 0): OffsetAndMetadata(5, "", -1)})
        reset = groups.complaint("--reset-offsets", "--group", name, "--all-topics", "--to-earliest", "--execute")
        assert reset.startswith(f"Assignments can only be reset if the group '{name}' is inactive, but the current state is Stable")
        deleted = groups.complaint("--delete", "--group", name)
        assert deleted == f"Group '{name}' could not be deleted: non empty group (NON_EMPTY_GROUP); stop its members first\n"
        (row,) = groups.rows("--delete-offsets", "--group", name, "--topic", name, status=1)
        assert row["status"] == "Error: GROUP_SUBSCRIBED_TO_TOPIC"
        assert committed(groups, name) == {0: 5}


def test_groups_and_offsets_are_deleted(broker: Server, groups: Groups, name: str) -> None:
    create_topic(broker, name, 2)
    commit(broker, name, name, {0: 0, 1: 0})
    lines = groups.lines("--delete-offsets", "--group", name, "--topic", f"{name}:0")
    assert lines[0] == f"Request succeeded for deleting offsets from group {name}."
    assert lines[-1].split() == [name, "0", "Successful"]
    assert committed(groups, name) == {1: 0}
    both = groups.lines("--delete", "--group", name, "--group", f"no-{name}", status=1)
    assert both == [f"These consumer groups were deleted successfully: '{name}'"]
    assert name not in groups.lines("--list")
    missing = groups.complaint("--delete", "--group", name)
    assert missing == f"Group '{name}' could not be deleted: group id not found (GROUP_ID_NOT_FOUND); see `txbroker groups --list`\n"
    assert "(GROUP_ID_NOT_FOUND)" in groups.complaint("--delete-offsets", "--group", name, "--topic", name)
