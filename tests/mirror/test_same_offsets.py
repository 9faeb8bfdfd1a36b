"""`--same-offsets`: the target keeps the source's offsets; no other client may produce until the topic is promoted."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException

from tests.cli.commands import ENVIRONMENT, command
from tests.client.test_twisted_connection import Turning
from tests.handover.feeding import content, send
from tests.mirror.mirroring import Running, batches, mirror
from tests.spark.kafka_samples import serve
from tests.support.broker import BrokerProcess
from tests.support.cache import CHECKOUT
from tests.support.raw import RawConnection
from tests.support.raw_admin import KEEP, create_topic, delete_records, until_leaders
from tests.support.raw_log import batch, list_offset, produce
from tests.support.records import numbered, samples
from tests.support.server import Server
from txbroker.mirror.service import MirrorFailed

pytestmark = pytest.mark.process
Both = tuple[Server, Server]
SAMPLES = re.compile("s-.*")


@pytest.fixture(scope="module")
def kafka_samples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Apache Kafka's own log directories: aborted transactions, compacted topics, LogAppendTime, and formats 0 and 1."""
    server = serve(tmp_path_factory.mktemp("samples") / "broker")
    yield server
    server.close()


def test_every_kind_of_log_of_apache_kafka(turning: Turning, both: Both, kafka_samples: BrokerProcess) -> None:
    target = both[1]
    done = mirror(turning, kafka_samples, target, include=SAMPLES, same_offsets=True)
    counts = done.report["batches"]
    assert counts["re_encoded"] == 0 and counts["passed"] and counts["converted"] and counts["aborted"], counts
    theirs, ours = content(kafka_samples), content(target)
    for key, expected in theirs.records.items():
        if key[0] == "read_committed":
            found = ours.records[key]
            if key[1].startswith(("s-v", "s-mixed")):  # converted: format 0 has no timestamps
                found, expected = ([(each[0], *each[2:]) for each in records] for records in (found, expected))
            assert found == expected, key
    assert mirror(turning, kafka_samples, target, include=SAMPLES, same_offsets=True).report["records"] == 0
    target.restart()
    until_leaders(target, "s-txn", 2)
    assert content(target).records["read_committed", "s-compact", 0] == theirs.records["read_committed", "s-compact", 0]


def test_batches_are_equal(turning: Turning, both: Both, name: str) -> None:
    source, target = both
    create_topic(source, name)
    send(source, name, samples(100, seed=1), codec="zstd", **{"enable.idempotence": False})
    mirror(turning, source, target, name, same_offsets=True)
    sent, copied = batches(source, name), batches(target, name)
    assert [(each.header.crc, each.header.base_offset, each.payload) for each in copied] == [
        (each.header.crc, each.header.base_offset, each.payload) for each in sent]  # fmt: skip


def test_a_source_that_does_not_begin_at_0(turning: Turning, both: Both, name: str) -> None:
    source, target = both
    create_topic(source, name)
    for number in range(4):
        send(source, name, numbered(10, start=10 * number), **{"linger.ms": 500})
    delete_records(source, name, 15)
    mirror(turning, source, target, name, same_offsets=True)
    theirs, ours = (content(server) for server in both)
    assert ours.records["read_committed", name, 0] == theirs.records["read_committed", name, 0]
    assert ours.starts[name, 0] == theirs.starts[name, 0] == (15, 40)


def test_a_run_continues_at_the_targets_end(turning: Turning, both: Both, name: str) -> None:
    source, target = both
    create_topic(source, name)
    send(source, name, numbered(10))
    running = Running(turning, source, target, topics=[name], same_offsets=True)
    running.until_copied(10)
    running.crash()
    late = batches(source, name)[0]
    send(source, name, numbered(10, start=10))
    assert mirror(turning, source, target, name, same_offsets=True).report["records"] == 10
    with RawConnection(target.address, client_id="__txbroker_mirror") as connection:
        assert produce(connection, name, batch(numbered(10))).error_code == 45, "a batch of the first run that arrives late"
    assert late.header.base_offset == 0
    assert content(target).records["read_committed", name, 0] == content(source).records["read_committed", name, 0]


def test_other_producers_are_refused_until_the_topic_is_promoted(turning: Turning, both: Both, name: str) -> None:
    source, target = both
    create_topic(source, name)
    create_topic(target, name)  # an empty topic that exists is taken
    mirror(turning, source, target, name, same_offsets=True)
    with RawConnection(target.address) as connection:
        assert produce(connection, name, batch(numbered(1))).error_code == 44
    send(source, name, numbered(10))
    mirror(turning, source, target, name, same_offsets=True)
    with pytest.raises((AssertionError, KafkaException)):
        send(target, name, numbered(1))
    promote = command("mirror", "promote", "--to", target.address, "--topic", name)
    promoted = subprocess.run(promote, cwd=CHECKOUT, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert promoted.stdout == f"{name}: promoted; producers may write to it\n", promoted.stderr
    send(target, name, numbered(1))
    with RawConnection(target.address) as connection:
        assert list_offset(connection, name, -1).offset == 11
    with pytest.raises(MirrorFailed, match="was promoted"):
        mirror(turning, source, target, name, same_offsets=True)


def test_topics_that_cannot_have_the_same_offsets(turning: Turning, both: Both, name: str) -> None:
    source, target = both
    create_topic(source, name, 1, KEEP)
    send(source, name, numbered(10))
    create_topic(target, name)
    send(target, name, numbered(1))
    with pytest.raises(MirrorFailed, match="--same-offsets needs an empty topic"):
        mirror(turning, source, target, name, same_offsets=True)
    other = f"{name}-2"
    create_topic(source, other)
    send(source, other, numbered(10))
    mirror(turning, source, target, other)
    with pytest.raises(MirrorFailed, match="was copied without --same-offsets before"):
        mirror(turning, source, target, other, same_offsets=True)
