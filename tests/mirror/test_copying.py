"""What a copy is: batches byte for byte where they can be, the same records in the same order everywhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE

from tests.cli.commands import run
from tests.client.test_twisted_connection import Turning
from tests.handover.feeding import CODECS, content, send
from tests.mirror.mirroring import batches, mirror, without_renumbering
from tests.spark.kafka_samples import serve
from tests.support.broker import BrokerProcess
from tests.support.raw_admin import KEEP, create_topic, delete_records
from tests.support.records import samples
from tests.support.server import Server

SAMPLES = re.compile("s-.*")
pytestmark = pytest.mark.process
Both = tuple[Server, Server]


@pytest.mark.parametrize("codec", CODECS)
def test_batches_pass_through(turning: Turning, both: Both, name: str, codec: str) -> None:
    source, target = both
    create_topic(source, name, 2)
    send(source, name, samples(150, seed=3), codec=codec)
    done = mirror(turning, source, target, name)
    for partition in range(2):
        sent, copied = batches(source, name, partition), batches(target, name, partition)
        assert [without_renumbering(each) for each in copied] == [without_renumbering(each) for each in sent]
        assert len(sent) > 1 and [each.header.base_offset for each in copied] == [each.header.base_offset for each in sent]
        assert {each.header.producer_id for each in copied} == {done.partition(name, partition).producer_id}
    report = done.report
    assert report["records"] == 150 and report["batches"]["re_encoded"] == 0 and report["states"] == {"copying": 2}


def test_a_copy_is_continued(turning: Turning, both: Both, name: str) -> None:
    source, target = both
    create_topic(source, name)
    for number in range(3):
        send(source, name, samples(20, seed=number), codec="lz4")
        assert mirror(turning, source, target, name).report["records"] == 20
    assert mirror(turning, source, target, name).report["records"] == 0
    assert [without_renumbering(each) for each in batches(target, name)] == [without_renumbering(each) for each in batches(source, name)]


def test_a_source_that_begins_within_a_batch(turning: Turning, both: Both, name: str) -> None:
    source, target = both
    create_topic(source, name)
    send(source, name, samples(30, seed=5), codec="gzip", **{"linger.ms": 500})
    delete_records(source, name, 7)
    done = mirror(turning, source, target, name)
    assert done.report["batches"]["re_encoded"] == 1 and done.report["records"] == 23
    theirs, ours = (content(server).records["read_committed", name, 0] for server in both)
    assert [each[1:] for each in ours] == [each[1:] for each in theirs] and [each[0] for each in ours] == list(range(23))
    assert [done.partition(name).map.target_of(offset) for offset in (0, 7, 8, 29, 30)] == [0, 0, 1, 22, 23]


def test_configurations_and_what_the_target_changes(
    turning: Turning, both: Both, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    source, target = both
    create_topic(source, name, 1, {**KEEP, "cleanup.policy": "compact", "max.message.bytes": "2000000", "min.insync.replicas": "1"})
    create_topic(source, f"{name}-other", 1, KEEP)
    create_topic(target, f"{name}-other", 1, {"max.message.bytes": "1000", "message.timestamp.type": "LogAppendTime",
                                              "compression.type": "zstd", "message.timestamp.before.max.ms": "1000"})  # fmt: skip
    mirror(turning, source, target, name, f"{name}-other")
    assert content(target).configs[name] == {"cleanup.policy": "compact", "max.message.bytes": "2000000", "retention.ms": "-1"}
    said = [record.message for record in caplog.records if f"{name}-other:" in record.message]
    assert [each.split(": ")[1].split(" is ")[0] for each in said] == [
        "max.message.bytes", "compression.type", "message.timestamp.type", "retention.ms"]  # fmt: skip


@pytest.fixture(scope="module")
def kafka_samples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Apache Kafka's own log directories: aborted transactions, compacted topics, LogAppendTime, and formats 0 and 1."""
    server = serve(tmp_path_factory.mktemp("samples") / "broker")
    yield server
    server.close()


def test_every_kind_of_log_of_apache_kafka(turning: Turning, both: Both, kafka_samples: BrokerProcess) -> None:
    target = both[1]
    done = mirror(turning, kafka_samples, target, include=SAMPLES)
    theirs, ours = content(kafka_samples), content(target)
    copied = [key for key in theirs.records if key[0] == "read_committed"]
    assert len(copied) == 13
    for key in copied:
        assert [_time_of(each) for each in ours.records[key]] == [_time_of(each) for each in theirs.records[key]], key
        assert [each[0] for each in ours.records[key]] == list(range(len(ours.records[key]))), "the copy has no gaps"
        assert ours.records[key] == ours.records["read_uncommitted", *key[1:]], "no transaction is open or aborted there"
        _check_map(done.partition(*key[1:]).map, [each[0] for each in theirs.records[key]], theirs.starts[key[1:]])
    counts = done.report["batches"]
    assert all(counts[kind] for kind in ("passed", "re_encoded", "converted", "control", "aborted")), counts
    assert mirror(turning, kafka_samples, target, include=SAMPLES).report["records"] == 0


def _time_of(record: tuple[Any, ...]) -> tuple[Any, ...]:
    """A record without its offset and without its timestamp's type: the copy has what was LogAppendTime as CreateTime."""
    _, (kind, timestamp), *rest = record
    return (-1 if kind == TIMESTAMP_NOT_AVAILABLE else timestamp, *rest)


def _check_map(offset_map: Any, offsets: list[int], bounds: tuple[int, int]) -> None:
    """A consumer at any offset of the source continues in the target with the same record."""
    for source in range(bounds[0], bounds[1] + 1):
        assert offset_map.target_of(source) == sum(offset < source for offset in offsets), source


def test_a_log_that_txbroker_compacted(turning: Turning, both: Both, name: str) -> None:
    source, target = both
    create_topic(source, name, 1, {**KEEP, "cleanup.policy": "compact"})
    for number in range(4):
        send(source, name, [each._replace(key=each.key or b"none") for each in samples(50, seed=number)], codec="zstd")
    run("log-cleaner", "--bootstrap-server", source.address, "--compact-now", name, "--roll", "--wait")
    send(source, name, [each._replace(key=b"new") for each in samples(10, seed=9)], codec="zstd")
    done = mirror(turning, source, target, name)
    theirs, ours = (content(server).records["read_committed", name, 0] for server in both)
    assert [each[1:] for each in ours] == [each[1:] for each in theirs]
    _check_map(done.partition(name).map, [each[0] for each in theirs], (0, 210))
    assert done.report["batches"]["re_encoded"]
