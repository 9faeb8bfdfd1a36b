"""Committed offsets of groups on the target: the group continues there with the record that it would have read next on the source."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.cli.commands import run
from tests.client.test_twisted_connection import Turning
from tests.handover.feeding import send
from tests.mirror.mirroring import Running, mirror
from tests.support.raw_admin import KEEP, create_topic
from tests.support.records import numbered
from tests.support.server import Server
from tests.support.waiting import until

pytestmark = pytest.mark.process
Both = tuple[Server, Server]


def consumer(server: Server, group: str) -> Consumer:
    return Consumer({"bootstrap.servers": server.address, "group.id": group, "enable.auto.commit": False, "log_level": 0,
                     "auto.offset.reset": "error", "session.timeout.ms": 6000})  # fmt: skip


def commit(server: Server, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
    member = consumer(server, group)
    wanted = [TopicPartition(*partition, offset, metadata=f"at {offset}") for partition, offset in offsets.items()]
    member.commit(offsets=wanted, asynchronous=False)
    member.close()


def committed(server: Server, group: str, *partitions: tuple[str, int]) -> list[tuple[int, str | None]]:
    member = consumer(server, group)
    found = member.committed([TopicPartition(*each) for each in partitions], timeout=30)
    member.close()
    assert all(each.error is None and each.leader_epoch is None for each in found)
    return [(each.offset, each.metadata) for each in found]


def test_groups_at_every_offset(turning: Turning, both: Both, name: str) -> None:
    """In a compacted topic whose offsets differ on both sides; the groups commit before the mirror begins, and while it runs."""
    source, target = both
    create_topic(source, name, 1, {**KEEP, "cleanup.policy": "compact"})
    send(source, name, [each._replace(key=b"%d" % (index % 7 or index)) for index, each in enumerate(numbered(30))])
    run("log-cleaner", "--bootstrap-server", source.address, "--compact-now", name, "--roll", "--wait")
    send(source, name, [each._replace(key=b"new") for each in numbered(3, start=30)])
    for offset in range(34):
        commit(source, f"{name}-{offset:02}", {(name, 0): offset})
    done = mirror(turning, source, target, name, groups=re.compile(f"{name}-.*"))
    assert len(done.report["groups"]) == 34 and not any(each["problem"] for each in done.report["groups"].values())
    theirs = {offset: values(source, name, offset) for offset in range(34)}
    assert len(theirs[0]) == 14 and len(theirs[33]) == 0
    for offset, expected in theirs.items():
        ((translated, metadata),) = committed(target, f"{name}-{offset:02}", (name, 0))
        assert metadata == f"at {offset}" and values(target, name, translated) == expected, offset


def values(server: Server, topic: str, start: int) -> list[bytes | None]:
    """What a consumer reads from this offset on."""
    reader = consumer(server, "none")
    low, high = reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    reader.assign([TopicPartition(topic, 0, max(start, low))])
    found: list[bytes | None] = []
    position = start
    while position < high:
        message = reader.poll(30)
        assert message is not None and message.error() is None
        found.append(message.value())
        position = message.offset() + 1
    reader.close()
    return found


def test_what_a_group_commits_later(turning: Turning, both: Both, name: str) -> None:
    source, target = both
    create_topic(source, name, 2)
    send(source, name, numbered(40))
    commit(source, name, {(name, 0): 5})
    running = Running(turning, source, target, topics=[name], groups=re.compile(re.escape(name)), groups_every_s=0.1)
    groups = running.mirror.groups
    assert groups is not None
    running.until(lambda: name in groups.statuses and groups.statuses[name].commits == 1, "the first offset is committed")
    commit(source, name, {(name, 0): 8, (name, 1): 20})
    running.until(lambda: groups.statuses[name].commits == 3, "the next offsets are committed")
    commit(source, name, {(name, 0): 2})
    assert running.end() is None
    assert committed(target, name, (name, 0), (name, 1)) == [(8, "at 8"), (20, "at 20")], "never back"
    assert "it has moved" in groups.statuses[name].problem


def test_groups_that_are_active_on_the_target(turning: Turning, both: Both, name: str) -> None:
    source, target = both
    create_topic(source, name)
    send(source, name, numbered(20))
    mirror(turning, source, target, name)
    commit(source, name, {(name, 0): 15})
    commit(target, name, {(name, 0): 3})
    member = consumer(target, name)
    member.subscribe([name])
    until(lambda: member.poll(0.1) is not None, "the group reads on the target")
    done = mirror(turning, source, target, name, groups=re.compile(re.escape(name)))
    assert "it has members on the target (state Stable)" in done.report["groups"][name]["problem"]
    member.close()
    assert committed(target, name, (name, 0))[0][0] == 3
    assert mirror(turning, source, target, name, groups=re.compile(re.escape(name))).report["groups"][name]["commits"] == 1
    assert committed(target, name, (name, 0)) == [(15, "at 15")]
    commit(target, name, {(name, 0): 18})
    assert "it has moved" in mirror(turning, source, target, name, groups=re.compile(re.escape(name))).report["groups"][name]["problem"]
    assert committed(target, name, (name, 0)) == [(18, "at 18")]


def test_a_topic_of_the_target_that_is_no_copy(turning: Turning, both: Both, name: str) -> None:
    """It has other records: no offset of the source has a meaning there."""
    source, target = both
    for server, count in ((source, 20), (target, 30)):
        create_topic(server, name)
        send(server, name, numbered(count))
    commit(source, name, {(name, 0): 15})
    done = mirror(turning, source, target, name, groups=re.compile(re.escape(name)))
    assert done.report["states"] == {"stopped": 1} and done.report["groups"][name]["commits"] == 0
    assert committed(target, name, (name, 0))[0][0] == -1001, "none"
