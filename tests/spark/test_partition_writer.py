"""Records of a replay in one partition of the target: each exactly once, however its writers end and overtake each other."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.partitioner.default import murmur2 as murmur2_of_kafka_python

from tests.support.raw_admin import create_topic
from tests.support.server import Server
from txbroker.client.blocking_connection import BlockingConnection
from txbroker.client.client_errors import Closed
from txbroker.client.group_commits import Committed, GroupCommits
from txbroker.console.failures import CommandFailed
from txbroker.spark.brokers import Brokers
from txbroker.spark.key_partitioners import PARTITIONERS, explained, fnv1a, murmur2
from txbroker.spark.partition_writer import PartitionWriter, ReplayStopped, Target
from txbroker.spark.replay_progress import METADATA_MAX, SEQUENCES, ReplayProgress
from txbroker.spark.replay_target import begin, describe_target
from txbroker.wire.messages.produce import ProduceRequest
from txbroker.wire.records import Record

RECORDS = [Record(0, 1_600_000_000_000 + number, b"key", b"%d" % number, (("h", None), ("h", b"x"))) for number in range(20)]


class Killed(BaseException):
    """A writer ends here."""


@pytest.fixture
def target(broker: Server, name: str) -> Target:
    return new_target(broker, name)


def new_target(broker: Server, name: str) -> Target:
    """A topic, and a replay into it that has begun."""
    create_topic(broker, name)
    made = Target(Brokers.of(broker.address), name, f"txbroker-replay-{name}", 1 << 20, 3)
    begin(made.brokers, describe_target(made.brokers, name), made.group, {0: "source"}, {0: {0: 0}})
    return made


def write(target: Target, records: list[Record] = RECORDS) -> int:
    """All records, as a task does; the number of those that were written."""
    writer = PartitionWriter(target, 0)
    try:
        for offset, record in enumerate(records):
            writer.add(0, offset, record)
        writer.finish({0: len(records)})
    finally:
        writer.close()
    return writer.added


def found(target: Target) -> list[Any]:
    host, port = target.brokers.addresses[0]
    consumer = KafkaConsumer(bootstrap_servers=f"{host}:{port}", auto_offset_reset="earliest")
    partition = TopicPartition(target.topic, 0)
    consumer.assign([partition])
    records = []
    while consumer.position(partition) < consumer.end_offsets([partition])[partition]:
        records += [one for polled in consumer.poll(1000).values() for one in polled]
    consumer.close()
    return records


def assert_once(target: Target, records: list[Record] = RECORDS) -> None:
    there = [(one.timestamp, one.key, one.value, tuple(one.headers)) for one in found(target) if one.value != b"other"]
    assert there == [one[1:] for one in records]


def at(step: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kill at a batch before or after its progress is committed, or after it was written."""
    counts = {"commit": itertools.count(), "produce": itertools.count()}
    commit, produce = GroupCommits.commit, PartitionWriter._produce

    def counted_commit(self: GroupCommits, topic: str, offsets: dict[int, Committed]) -> None:
        turn = next(counts["commit"])
        if step == "before the commit" and turn == number:
            raise Killed
        commit(self, topic, offsets)
        if step == "after the commit" and turn == number:
            raise Killed

    def counted_produce(self: PartitionWriter, batch: bytes) -> int:
        base_offset = produce(self, batch)
        if step == "after the batch" and next(counts["produce"]) == number:
            raise Killed
        return base_offset

    monkeypatch.setattr(GroupCommits, "commit", counted_commit)
    monkeypatch.setattr(PartitionWriter, "_produce", counted_produce)


@pytest.mark.parametrize("number", [0, 3, 6])
@pytest.mark.parametrize("step", ["before the commit", "after the commit", "after the batch"])
def test_a_writer_that_ends(broker: Server, target: Target, step: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        at(step, number, patched)
        with pytest.raises(Killed):
            write(target)
    with KafkaProducer(bootstrap_servers=broker.address) as other:
        other.send(target.topic, b"other", partition=0).get(30)
    assert write(target) == max(len(RECORDS) - 3 * (number + (step == "after the batch")), 0)
    assert_once(target)
    assert write(target) == 0


@pytest.mark.parametrize("turns", [1, 2, 4])
def test_a_writer_that_goes_on_beside_the_next_one(target: Target, turns: int) -> None:
    """As an executor that the driver believes lost: both write in turns until the broker refuses one of them."""
    writers = [PartitionWriter(target, 0)]
    for offset in range(6):
        writers[0].add(0, offset, RECORDS[offset])
    writers.append(PartitionWriter(replace(target, batch_records=2), 0))
    positions = [6, 0]
    stopped: set[int] = set()
    for turn in itertools.count():
        index = turn // turns % 2
        if len(stopped) == 2 or all(position == len(RECORDS) or number in stopped for number, position in enumerate(positions)):
            break
        if index in stopped or positions[index] == len(RECORDS):
            continue
        try:
            writers[index].add(0, positions[index], RECORDS[positions[index]])
            writers[index].flush()
            positions[index] += 1
        except ReplayStopped as problem:
            assert "another run of this replay writes to" in str(problem)
            stopped.add(index)
    for writer in writers:
        writer.close()
    write(target)
    assert_once(target)


def test_an_answer_that_is_lost_with_a_restart(start_broker: Callable[[], Server], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker has the batch, and does not know the producer any more: one with these timestamps has expired."""
    server = start_broker()
    target = new_target(server, name)
    call = BlockingConnection.call
    answers = itertools.count()

    def lost(self: BlockingConnection, request: Any, **options: Any) -> Any:
        answer = call(self, request, **options)
        if isinstance(request, ProduceRequest) and next(answers) == 2:
            server.restart()
            raise Closed("the answer is lost")
        return answer

    monkeypatch.setattr(BlockingConnection, "call", lost)
    assert write(target) == len(RECORDS)
    assert_once(target)


def test_a_batch_that_is_not_taken(broker: Server, name: str) -> None:
    create_topic(broker, name, 1, {"message.timestamp.before.max.ms": "1000", "retention.ms": "-1"})
    target = Target(Brokers.of(broker.address), name, f"txbroker-replay-{name}", 1 << 20, 3)
    begin(target.brokers, describe_target(target.brokers, name), target.group, {0: "source"}, {0: {0: 0}})
    with pytest.raises(ReplayStopped, match=r"refuses a batch of 3 records \(INVALID_TIMESTAMP\); the source is at 0:0 .*before.max.ms"):
        write(target)


def test_a_group_of_something_else(broker: Server, target: Target) -> None:
    described = describe_target(target.brokers, target.topic)
    with pytest.raises(CommandFailed, match="the progress of another replay"):
        begin(target.brokers, described, target.group, {0: "other source"}, {0: {0: 0}})
    commits = target.brokers.commits(target.group)
    commits.commit(target.topic, {0: Committed(5, "")})
    commits.close()
    with pytest.raises(CommandFailed, match="has offsets that are not those of a replay"):
        begin(target.brokers, described, target.group, {0: "source"}, {0: {0: 0}})


def progress(**changes: Any) -> ReplayProgress:
    return ReplayProgress("s", 7, 10, 3, {0: 5, 1: 8}, {0: 8, 1: 8}, 100)._replace(**changes)


def test_where_a_replay_continues() -> None:
    assert progress().resume([]) == (progress(in_flight=0, after={0: 5, 1: 8}), 0), "the batch was not written"
    assert progress().resume([(4, 6), (10, 3)]) == (progress(written=13, in_flight=0, before={0: 8, 1: 8}), 0), "it was"
    assert progress().resume([(10, 3), (13, 2)]) == (progress(in_flight=0, after={0: 5, 1: 8}), 5), "and more, by another process"
    wrapped = progress(written=SEQUENCES - 1)
    assert wrapped.resume([(SEQUENCES - 1, 3)])[0].written == SEQUENCES + 2
    assert ReplayProgress.of(progress().committed(), "g") == progress()
    with pytest.raises(CommandFailed, match="do not fit into an offset's"):
        progress(before=dict.fromkeys(range(METADATA_MAX), 0)).committed()


@given(st.binary(max_size=40))
def test_java_murmur2(key: bytes) -> None:
    assert murmur2(key) == murmur2_of_kafka_python(key) & 0xFFFFFFFF


def test_functions_of_other_clients() -> None:
    assert fnv1a(b"foobar") == 0xBF9CF968  # a vector of the function's authors
    with_confluent: Callable[[bytes, int], int] = PARTITIONERS["crc32"]
    assert with_confluent(b"123456789", 1 << 32) == 0xCBF43926  # the check value of CRC-32
    assert PARTITIONERS["fnv1a"](b"foobar", 1000) == (0x100000000 - 0xBF9CF968) % 1000, "signed"
    keys = [(b"%d" % number, PARTITIONERS["crc32"](b"%d" % number, 12)) for number in range(50)]
    counts = explained(keys, 12)
    assert counts["crc32"] == 50 and max(counts["murmur2"], counts["fnv1a"]) < 50
