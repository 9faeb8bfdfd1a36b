"""The data of a broker is copied and restored, under real clients."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from twisted.internet.defer import Deferred, fail, maybeDeferred
from twisted.python.failure import Failure

from tests.support.cache import CHECKOUT
from tests.support.waiting import PATIENCE_S, until
from txbroker.client.blocking_connection import connect_to_any
from txbroker.errors import StartInterrupted
from txbroker.testing import Kafka, KitError, Record
from txbroker.testing.snapshots import Snapshots
from txbroker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

pytestmark = pytest.mark.process


def values(kafka: Kafka, topic: str) -> list[bytes | None]:
    return [each.value for each in kafka.records(topic)]


def topic_id(kafka: Kafka, topic: str) -> bytes:
    with connect_to_any([("127.0.0.1", kafka.port)]) as connection:
        (found,) = connection.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic)])).topics
    assert not found.error_code
    return bytes(found.topic_id)


def settings(kafka: Kafka, group: str | None = None) -> dict[str, Any]:
    return {**kafka.client_config("confluent", group), "log_level": 0, "reconnect.backoff.ms": 1, "reconnect.backoff.max.ms": 50}


def committed(kafka: Kafka, group: str, topic: str) -> Any:
    """Read one record with a group, and commit it; its value."""
    consumer = Consumer({**settings(kafka, group), "enable.auto.commit": False})
    consumer.subscribe([topic])
    (message,) = consumer.consume(1, PATIENCE_S)
    consumer.commit(message=message, asynchronous=False)
    consumer.close()
    return message.value()


def test_the_data_of_a_snapshot_comes_back(kafka: Kafka, tmp_path: Path) -> None:
    kafka.create_topic("kept", 2, cleanup_policy="compact")
    kafka.create_topic("changed")
    kafka.produce("changed", "one")
    kafka.produce("changed", "two")
    kafka.produce("kept", Record("1", key="key", partition=1))
    assert committed(kafka, "group", "changed") == b"one"
    ids, address, pid = {name: topic_id(kafka, name) for name in ("kept", "changed")}, kafka.bootstrap_servers, kafka.pid
    rule = kafka.when("Produce", topic="changed").error("NOT_LEADER_OR_FOLLOWER")
    kafka.snapshot(tmp_path / "snapshot")
    for _ in range(2):
        kafka.recreate_topic("kept")
        kafka.produce("changed", "three")
        kafka.create_topic("new")
        assert committed(kafka, "group", "changed") == b"two"
        kafka.restore(tmp_path / "snapshot")
        assert values(kafka, "kept") == [b"1"] and values(kafka, "changed") == [b"one", b"two"]
        assert {name: topic_id(kafka, name) for name in ids} == ids
        with connect_to_any([("127.0.0.1", kafka.port)]) as connection:
            found = connection.call(MetadataRequest(topics=None)).topics
        assert sorted(each.name for each in found if not each.is_internal) == ["changed", "kept"]
    assert (kafka.bootstrap_servers, kafka.pid) == (address, pid)
    producer = Producer({**settings(kafka), "retry.backoff.ms": 1})
    producer.produce("changed", b"three")
    assert producer.flush(PATIENCE_S) == 0 and rule.hits == 1, "rules and journal remain"
    produced = kafka.journal.where(api="Produce", topic="changed", client_id="rdkafka")
    assert [each.errors for each in produced] == [("NOT_LEADER_OR_FOLLOWER",), ()]
    kafka.kill()
    kafka.start()
    assert values(kafka, "changed") == [b"one", b"two", b"three"]


def test_clients_go_on_after_a_restore(tmp_path: Path) -> None:
    with Kafka(topics={"topic": 1}) as kafka:
        consumer = Consumer({**settings(kafka, "group"), "enable.auto.commit": False, "session.timeout.ms": 6000})
        producer = Producer(settings(kafka))
        consumer.subscribe(["topic"])
        for value in (b"one", b"two"):
            producer.produce("topic", value)
            assert producer.flush(PATIENCE_S) == 0
            (arrived,) = consumer.consume(1, PATIENCE_S)
            assert arrived.value() == value
            consumer.commit(message=arrived, asynchronous=False)
            if value == b"one":
                kafka.snapshot(tmp_path / "one")
        kafka.restore(tmp_path / "one")
        assert values(kafka, "topic") == [b"one"]
        producer.produce("topic", b"three")
        assert producer.flush(PATIENCE_S) == 0
        assert values(kafka, "topic") == [b"one", b"three"]
        again = Consumer(settings(kafka, "another"))
        again.subscribe(["topic"])
        assert [each.value() for each in again.consume(2, PATIENCE_S)] == [b"one", b"three"]
        again.close()
        consumer.close()


def test_another_broker_is_restored_from_a_snapshot(kafka: Kafka, tmp_path: Path) -> None:
    kafka.create_topic("moved")
    kafka.produce("moved", "one")
    kafka.broker(0).refuse()
    kafka.snapshot(tmp_path / "snapshot")
    assert kafka.broker(0).state == "running"
    with Kafka(data=tmp_path / "data") as other:
        other.advance(timedelta(days=1))
        other.restore(tmp_path / "snapshot")
        assert values(other, "moved") == [b"one"] and topic_id(other, "moved") == topic_id(kafka, "moved")
        assert (other.now - kafka.now).total_seconds() > 80_000, "the clock stays ahead"
        other.advance(timedelta(days=8))
        assert values(other, "moved") == []
        assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "snapshot"]
    assert values(kafka, "moved") == [b"one"]


def test_what_is_no_snapshot_changes_nothing(kafka: Kafka, tmp_path: Path) -> None:
    kafka.create_topic("untouched")
    kafka.produce("untouched", "one")
    with pytest.raises(KitError, match=r"absent is no snapshot: it has no snapshot.json that can be read"):
        kafka.restore(tmp_path / "absent")
    (tmp_path / "wrong").mkdir()
    (tmp_path / "wrong" / "snapshot.json").write_text('{"format": 2}')
    with pytest.raises(KitError, match="wrong is no snapshot of this version of txbroker"):
        kafka.restore(tmp_path / "wrong")
    with pytest.raises(KitError, match="wrong exists: specify a new or an empty directory"):
        kafka.snapshot(tmp_path / "wrong")
    (tmp_path / "file").touch()
    with pytest.raises(KitError, match=r"file/snapshot cannot be written: Not a directory; nothing was copied, and the broker serves"):
        kafka.snapshot(tmp_path / "file" / "snapshot")
    shared = Kafka.connect(kafka.bootstrap_servers, kafka.control_url, is_shared=True)
    with pytest.raises(KitError, match="the data of all would be replaced: take a broker of txbroker_factory"):
        shared.restore(tmp_path / "absent")
    with Kafka(settings={"broker.id": 7}) as other:
        other.snapshot(tmp_path / "other")
    with pytest.raises(KitError, match="other is a snapshot of broker 7, and this is broker 0"):
        kafka.restore(tmp_path / "other")
    assert values(kafka, "untouched") == [b"one"]


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b"])
def test_a_path_that_no_file_can_have_does_not_stop_the_broker(name: str, tmp_path: Path) -> None:
    snapshots = Snapshots(str(tmp_path / "data"), 0, lambda between: pytest.fail("the broker stops"), maybeDeferred)
    for call in (snapshots.take, snapshots.restore):
        failures: list[Failure] = []
        Deferred.fromCoroutine(call(f"{tmp_path}/{name}")).addErrback(failures.append)
        assert "cannot be a path: it has a null character" in str(failures[0].check(KitError) and failures[0].value)


def test_a_damaged_snapshot_leaves_the_data_for_the_next_start(tmp_path: Path) -> None:
    with Kafka(topics={"topic": 1}) as kafka:
        kafka.produce("topic", "one")
        kafka.snapshot(tmp_path / "snapshot")
        (tmp_path / "snapshot" / "data" / "txbroker-metadata.sqlite").write_bytes(b"damaged" * 1000)
        with pytest.raises(KitError, match=r"cannot start with the data of .*snapshot, and has ended .*start it again with its own"):
            kafka.restore(tmp_path / "snapshot")
        until(lambda: not kafka.running, "the broker has ended")
        kafka.start()
        assert values(kafka, "topic") == [b"one"]


@pytest.mark.parametrize("error", [StartInterrupted("stopped"), RuntimeError("a defect")])
@pytest.mark.parametrize("before", [True, False])
def test_a_start_that_fails_leaves_the_data(error: Exception, before: bool, tmp_path: Path) -> None:
    data, snapshot = tmp_path / "data", tmp_path / "snapshot"
    for path, text in ((data, "own"), (snapshot / "data", "restored")):
        path.mkdir(parents=True)
        (path / "log").write_text(text)
    (snapshot / "snapshot.json").write_text('{"format": 1, "broker.id": 0}')
    present = []

    def restart(between: Callable[[], Any]) -> Deferred[None]:
        if not before:
            between()
        present.append((data / "log").read_text())
        return fail(error)

    failures: list[Failure] = []
    Deferred.fromCoroutine(Snapshots(str(data), 0, restart, maybeDeferred).restore(str(snapshot))).addErrback(failures.append)
    assert present == ["own" if before else "restored"] and (data / "log").read_text() == "own"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "snapshot"]
    assert failures[0].check(KitError if isinstance(error, StartInterrupted) else RuntimeError)


@pytest.mark.parametrize("killed", ["between the two renames", "after them", "after the end"])
def test_the_next_start_ends_what_a_killed_process_has_begun(killed: str, tmp_path: Path) -> None:
    """Of a directory for data the names beside it say how far a restore had come."""
    data = tmp_path / "data"
    with Kafka(data=data, topics={"topic": 1}) as kafka:
        kafka.produce("topic", "own")
        kafka.kill()
        own, fresh = data.with_name("data.txbroker-replaced"), data.with_name("data.txbroker-restored")
        if killed == "after the end":
            shutil.copytree(data, data.with_name("data.txbroker-removed"))
        else:
            data.rename(own)
            (data if killed == "after them" else fresh).mkdir()
        kafka.start()
        assert values(kafka, "topic") == [b"own"]
        assert [path.name for path in tmp_path.iterdir()] == ["data"]


RESTARTS_WHILE_IT_STOPS = """
import os, signal, sys
from twisted.internet import reactor
from txbroker.startup import read_startup
from txbroker.broker_service import BrokerService

startup = read_startup([], ["listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={sys.argv[1]}"])

def restart():
    os.kill(os.getpid(), signal.SIGTERM)
    done = service.restart(startup, lambda: print("between", flush=True))
    done.addErrback(lambda failure: print(failure.type.__name__, failure.getErrorMessage(), flush=True))

service = BrokerService(startup, refuse=print, on_ready=lambda broker: reactor.callLater(0, restart))
service.startService()
reactor.addSystemEventTrigger("before", "shutdown", service.stopService)
reactor.run()
sys.exit(service.exit_status)
"""


def test_a_process_that_stops_does_not_start_its_broker_again(tmp_path: Path) -> None:
    command = [sys.executable, "-c", RESTARTS_WHILE_IT_STOPS, str(tmp_path / "data")]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    ended = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (ended.returncode, ended.stdout) == (0, "StartInterrupted the broker is not started again: the process stops\n"), ended.stderr
