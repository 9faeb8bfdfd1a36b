"""`txbroker.testing.Kafka`: a broker from start to stop, its records, and how it ends with its process."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import unittest
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer

from tests.support.cache import CHECKOUT
from tests.support.waiting import PATIENCE_S, until
from tests.testing.leftovers import brokers_in
from txbroker.client.client_errors import RequestFailed, TopicMissing
from txbroker.testing import Journal, Kafka, KafkaMixin, KitError, Namespace, Record, Rule
from txbroker.testing.broker_control import BrokerControl
from txbroker.testing.brokers import ClusterMember, LoneBroker
from txbroker.testing.rules import When

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    with Kafka(topics={"first": 3}) as running:
        yield running


def test_records_are_read_as_they_were_written(kafka: Kafka) -> None:
    with kafka.namespace("records") as names:
        topic = names.topic(partitions=2)
        written = [
            Record("one", key="key", headers=[("name", b"content"), ("none", None)], timestamp=1_700_000_000_000, partition=1),
            Record(None, key=b"\xff", timestamp=5, partition=1),
        ]
        assert kafka.produce(topic, b"plain", *written, "last") == [0, 0, 1, 1]
        found = kafka.records(topic)
    places = [(each.partition, each.offset, each.value) for each in found]
    assert places == [(0, 0, b"plain"), (0, 1, b"last"), (1, 0, b"one"), (1, 1, None)]
    assert found[2] == Record(b"one", b"key", [("name", b"content"), ("none", None)], 1_700_000_000_000, 1, 0)
    assert (found[0].timestamp or 0) > 1_700_000_000_000, "without a timestamp it is the time of the write"


def test_more_records_than_fit_into_a_batch_keep_their_order(kafka: Kafka) -> None:
    with kafka.namespace("many") as names:
        topic = names.topic()
        assert kafka.produce(topic, *(b"%d" % number * 200 for number in range(3000))) == list(range(3000))
        assert [each.value for each in kafka.records(topic)] == [b"%d" % number * 200 for number in range(3000)]


def test_only_committed_records_are_read(kafka: Kafka) -> None:
    with kafka.namespace("transactions") as names:
        topic = names.topic()
        producer = Producer({**kafka.client_config("confluent"), "transactional.id": names.client_id("id")})
        producer.init_transactions(PATIENCE_S)
        for value, end in ((b"aborted", producer.abort_transaction), (b"committed", producer.commit_transaction)):
            producer.begin_transaction()
            producer.produce(topic, value)
            producer.flush(PATIENCE_S)
            assert value not in [each.value for each in kafka.records(topic)], "the transaction is open"
            end(PATIENCE_S)
        assert [each.value for each in kafka.consume(topic, timeout_s=PATIENCE_S)] == [b"committed"]


def read_by_confluent(kafka: Kafka, topic: str, group: str) -> list[Any]:
    consumer = Consumer(kafka.client_config("confluent", group))
    consumer.subscribe([topic])
    try:
        return [message.value() for message in consumer.consume(2, PATIENCE_S)]
    finally:
        consumer.close()


def read_by_kafka_python(kafka: Kafka, topic: str, group: str) -> list[Any]:
    settings = {"consumer_timeout_ms": PATIENCE_S * 1000}
    consumer = KafkaConsumer(topic, **kafka.client_config("kafka-python", group), **settings)
    try:
        return [next(consumer).value, next(consumer).value]
    finally:
        consumer.close()


def read_by_aiokafka(kafka: Kafka, topic: str, group: str) -> list[Any]:
    async def read() -> list[Any]:
        async with AIOKafkaConsumer(topic, **kafka.client_config("aiokafka", group)) as consumer:
            return [(await consumer.getone()).value, (await consumer.getone()).value]

    return asyncio.run(asyncio.wait_for(read(), PATIENCE_S))


@pytest.mark.parametrize("read", [read_by_confluent, read_by_kafka_python, read_by_aiokafka])
def test_a_client_reads_what_a_test_has_written(kafka: Kafka, read: Callable[[Kafka, str, str], list[Any]]) -> None:
    with kafka.namespace("clients") as names:
        topic = names.topic()
        kafka.produce(topic, "one", "two")
        assert read(kafka, topic, names.group()) == [b"one", b"two"]


def test_a_namespace_deletes_its_topics_and_groups(kafka: Kafka) -> None:
    with kafka.namespace("a name: with / other characters") as names:
        topic, group = names.topic("orders"), names.group("readers")
        kafka.produce(topic, "one")
        consumer = Consumer({**kafka.client_config("confluent", group), "enable.auto.commit": False})
        consumer.subscribe([topic])
        (message,) = consumer.consume(1, PATIENCE_S)
        consumer.commit(message, asynchronous=False)
        assert not kafka.delete_group(group), "it has a member"
        consumer.close()
        assert names.prefix.startswith("a-name-with-other-characters-")
    with pytest.raises(TopicMissing, match="does not exist"):
        kafka.produce(topic, "two")
    kafka.create_topic(topic)
    assert read_from_start(kafka, topic, group) == b"again", "the group's offset was deleted"
    kafka.delete_topics(topic, "one-that-does-not-exist")


def read_from_start(kafka: Kafka, topic: str, group: str) -> Any:
    kafka.produce(topic, "again")
    consumer = Consumer(kafka.client_config("confluent", group))
    consumer.subscribe([topic])
    try:
        (message,) = consumer.consume(1, PATIENCE_S)
        return message.value()
    finally:
        consumer.close()


def test_compaction_retention_and_trimming_on_request(kafka: Kafka) -> None:
    with kafka.namespace("log") as names:
        compacted, expired = names.topic("compacted", cleanup_policy="compact"), names.topic("expired", retention_ms=86_400_000)
        kafka.produce(compacted, *(Record(f"{number}", key=f"{number % 3}") for number in range(30)))
        kafka.compact(compacted)
        assert [each.value for each in kafka.records(compacted)] == [b"27", b"28", b"29"]
        kafka.produce(expired, Record("old", timestamp=1_700_000_000_000))
        kafka.expire(expired)
        assert kafka.records(expired) == []
        kafka.produce(expired, "new")
        kafka.expire(expired)
        assert [each.offset for each in kafka.records(expired)] == [1]
        assert kafka.trim(expired, 0, 1) == 1 and kafka.trim(expired, 0, -1) == 2
        assert kafka.records(expired) == []
        with pytest.raises(RequestFailed, match="has no offset 5 to delete the records before it: OFFSET_OUT_OF_RANGE"):
            kafka.trim(expired, 0, 5)
        with pytest.raises(RequestFailed, match=f"txbroker.compact=roll of topic {expired} failed"):
            kafka.compact(expired)
        with pytest.raises(KitError, match="has no partition 1; its partitions are 0"):
            kafka.trim(expired, 1, 0)


def test_a_consumer_whose_offset_was_trimmed_begins_again(kafka: Kafka) -> None:
    with kafka.namespace("trimmed") as names:
        topic, group = names.topic(), names.group()
        kafka.produce(topic, "one", "two", "three")
        consumer = Consumer({**kafka.client_config("confluent", group), "enable.auto.commit": False, "fetch.message.max.bytes": 1})
        consumer.subscribe([topic])
        (message,) = consumer.consume(1, PATIENCE_S)
        consumer.commit(message, asynchronous=False)
        consumer.close()
        kafka.trim(topic, 0, 2)
        consumer = Consumer(kafka.client_config("confluent", group))
        consumer.subscribe([topic])
        (message,) = consumer.consume(1, PATIENCE_S)
        consumer.close()
        assert message.value() == b"three", "auto.offset.reset"
        assert kafka.journal.where(api="Fetch", topic=topic, error="OFFSET_OUT_OF_RANGE")


def test_waiting_for_records_ends_with_what_is_there(kafka: Kafka) -> None:
    with kafka.namespace("wait") as names:
        topic = names.topic()
        kafka.produce(topic, "one")
        with pytest.raises(KitError, match=r"has 1 of 2 records after 0\.05 s: b'one'"):
            kafka.consume(topic, 2, timeout_s=0.05)
        with pytest.raises(KitError, match=f"topic {topic} has no partition 7; its partitions are 0"):
            kafka.produce(topic, Record("x", partition=7))
        with pytest.raises(RequestFailed, match="was not created"):
            kafka.create_topic(topic)
    with pytest.raises(KitError, match="no settings for the client 'sarama'; use one of confluent"):
        kafka.client_config("sarama")


def test_a_killed_broker_starts_again_with_its_data_and_port() -> None:
    with Kafka(settings={"num.partitions": 4, "auto.create.topics.enable": False}) as kafka:
        kafka.create_topic("kept", 2, cleanup_policy="compact", min_insync_replicas=1)
        kafka.produce("kept", Record("value", key="key"))
        address, process = kafka.bootstrap_servers, kafka.pid
        kafka.kill()
        kafka.start()
        assert (kafka.bootstrap_servers, kafka.pid != process) == (address, True)
        assert [each.value for each in kafka.records("kept")] == [b"value"]
        kafka.stop()
        kafka.start()
        assert [each.value for each in kafka.records("kept")] == [b"value"]
        assert kafka.log_path is not None
        directory = kafka.log_path.parent
        assert directory.exists()
    assert not directory.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(kafka.pid, 0)


def test_data_in_a_directory_remains_for_the_next_broker(tmp_path: Path) -> None:
    with Kafka(data=tmp_path / "data", topics={"kept": 1}) as kafka:
        kafka.produce("kept", "value")
        problem = "did not start: the log directory .*data is in use by another broker; stop that one, or specify another .* data="
        with pytest.raises(KitError, match=problem):
            Kafka(data=tmp_path / "data").start()
    with Kafka(data=tmp_path / "data") as kafka:
        assert [each.value for each in kafka.records("kept")] == [b"value"]


@pytest.mark.parametrize(("arguments", "problem"), [
    ({"settings": {"num.partitons": 3}}, r"num.partitons is not a known key \(did you mean num.partitions\?\); correct or remove it"),
    ({"settings": {"num.partitions": "x"}}, "num.partitions is 'x'; it must be a whole number"),
    ({"settings": {"log.dirs": "/x"}}, "settings has log.dirs, which the test kit sets: use data= of Kafka or txbroker_factory"),
    ({"settings": {"listeners": "PLAINTEXT://:1"}}, "use port= of Kafka or txbroker_factory, or --txbroker-port"),
    ({"settings": {"zookeeper.connect": "x:1"}}, "has zookeeper.connect, but .* no cluster of this kind: remove it, or use brokers="),
    ({"port": 65536}, "the port is 65536; it must be from 0 to 65535"),
    ({"topics": {"a b": 1}}, "topic a b was not created: .*invalid"),
])  # fmt: skip
def test_invalid_arguments(arguments: dict[str, Any], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises((KitError, RequestFailed), match=problem) as raised:
        Kafka(**arguments).start()
    assert "\n" not in str(raised.value)
    assert list(tmp_path.iterdir()) == [], "a failed start leaves nothing"


@pytest.mark.parametrize(("call", "problem"), [
    (lambda kafka: Kafka(brokers="3"), r"Kafka\(\): brokers is '3'; it must be a whole number"),
    (lambda kafka: Kafka(topics=["orders"]), r"topics is \['orders'\]; it must be a mapping of text to a whole number or None"),
    (lambda kafka: Kafka(topics={"orders": "3"}), "it must be a mapping of text to a whole number or None"),
    (lambda kafka: Kafka(settings=["num.partitions=3"]), "it must be a mapping of text to anything or None"),
    (lambda kafka: kafka.broker("0"), r"broker\(\): id is '0'; it must be a whole number"),
    (lambda kafka: kafka.trim("first", "0", 5), r"trim\(\): partition is '0'; it must be a whole number"),
    (lambda kafka: kafka.produce("first", 5), r"produce\(\): records is 5; it must be a Record or bytes or text"),
    (lambda kafka: Record(5), "a record has 5 as content; it must be text, bytes or None"),
    (lambda kafka: Record("x", partition="1"), "the partition of a record is '1'; it must be a whole number or None"),
    (lambda kafka: kafka.advance(8), r"advance\(\): by is 8; it must be a timedelta, such as timedelta\(days=8\)"),
    (lambda kafka: kafka.when("Produce", topic=3), r"when\(\): topic is 3; it must be text"),
    (lambda kafka: kafka.when().after(3), r"after\(\): other is 3; it must be a Rule"),
    (lambda kafka: kafka.when().delay("1"), r"delay\(\): seconds is '1'; it must be a number"),
    (lambda kafka: kafka.shrink_isr("first", 0, 1), r"shrink_isr\(\): to is 1; it must be a list of a whole number"),
    (lambda kafka: kafka.snapshot(3), r"snapshot\(\): to is 3; it must be text or a Path"),
])  # fmt: skip
def test_arguments_of_other_types(kafka: Kafka, call: Any, problem: str) -> None:
    with pytest.raises(KitError, match=problem) as raised:
        call(kafka)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("cls", [BrokerControl, Kafka, ClusterMember, LoneBroker, When, Rule, Journal, Namespace])
def test_all_annotations_can_be_checked(cls: type) -> None:
    found = [get_type_hints(member.__wrapped__) for member in vars(cls).values() if hasattr(member, "__wrapped__")]
    assert any(found)


def test_a_broker_that_takes_no_connections() -> None:
    with Kafka(topics={"t": 1}) as kafka:
        kafka.broker(0).refuse()
        with pytest.raises(KitError, match=r"no broker takes connections \(broker 0 is refusing\): call start\(\), resume"):
            kafka.produce("t", "value")
        kafka.broker(0).pause()
        with pytest.raises(KitError, match=r"the broker is paused: call resume\(\) first"):
            kafka.records("t")
        kafka.end_rules()
        assert kafka.produce("t", "value") == [0], "it is neither paused nor refuses"
        kafka.when("Fetch").disconnect()
        kafka.reset()
        kafka.end_rules()
        kafka.when("Fetch").disconnect()
        kafka.kill()
        kafka.end_rules()
        with pytest.raises(KitError, match=r"the broker does not run, as it was stopped or killed, .*: call start\(\) first"):
            kafka.create_topic("other")
        with pytest.raises(KitError, match="the broker does not run: start it first"):
            kafka.broker(0).refuse()


def test_a_class_that_does_not_call_the_mixin() -> None:
    class Wrong(unittest.TestCase, KafkaMixin):
        def test_it(self) -> None: ...

    with pytest.raises(AttributeError, match=r"Wrong has no namespace, .*: put KafkaMixin before TestCase in the bases"):
        Wrong("test_it").namespace  # noqa: B018
    with pytest.raises(AttributeError, match="'Wrong' object has no attribute 'kafak'"):
        Wrong("test_it").kafak  # noqa: B018


def test_a_port_in_use(kafka: Kafka) -> None:
    with pytest.raises(KitError, match=f"port {kafka.port} is in use; stop what uses it, or specify no port"):
        Kafka(port=kafka.port).start()


def test_the_port_is_kept_while_the_broker_does_not_run() -> None:
    with Kafka() as kafka:
        port = kafka.port
        kafka.kill()
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        kafka.start()
        assert kafka.port == port
        kafka.create_topic("again")
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))


def test_a_broker_that_does_not_run_or_was_not_started_here(kafka: Kafka) -> None:
    with pytest.raises(KitError, match="has not been started: use it in a with statement"):
        Kafka().bootstrap_servers  # noqa: B018
    other = Kafka.connect(kafka.bootstrap_servers)
    assert other.port == kafka.port
    for end in (other.kill, other.stop, Kafka().stop):
        with pytest.raises(KitError, match="was not started here"):
            end()
    other.close()
    Kafka().close()
    assert kafka.records("first") == []
    with pytest.raises(KitError, match="bootstrap_servers is 'x:y'; it must be comma-separated HOST:PORT"):
        Kafka.connect("x:y")


STARTS = """
import os, sys
from txbroker.testing import Kafka
kafka = {kafka}.start()
{then}
print(child, flush=True)
sys.stdin.read()
"""


@contextmanager
def started(tmp_path: Path, then: str, kafka: str = "Kafka()") -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that has started a broker, with its temporary files in `tmp_path`, and the number `child` that it has printed."""
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(CHECKOUT)}
    command = [sys.executable, "-c", STARTS.format(then=then, kafka=kafka)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def nothing_left(tmp_path: Path) -> bool:
    return not brokers_in(tmp_path) and not list(tmp_path.iterdir())


FORKS = """
child = os.fork()
if child == 0:
    import signal
    kafka.close()
    signal.pause()
"""


PAUSES = "child = 0; kafka.broker(0).pause()"


@pytest.mark.parametrize("how", ["killed", "killed, while a forked process goes on", "killed, while it is paused", "ended without a stop"])
def test_a_broker_ends_with_the_process_that_has_started_it(how: str, tmp_path: Path) -> None:
    then = FORKS if "forked" in how else PAUSES if "paused" in how else "child = 0"
    with started(tmp_path, then) as (process, child):
        try:
            (broker,) = brokers_in(tmp_path)
            if how == "ended without a stop":
                process.communicate("")
            else:
                process.kill()
                process.wait()
            until(lambda: nothing_left(tmp_path), f"broker {broker} has ended, and its directory is removed")
        finally:
            if child:
                os.kill(child, signal.SIGKILL)


def test_it_ends_with_its_process_where_processes_have_no_descriptors(tmp_path: Path) -> None:
    sleeper = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    directory = tmp_path / "broker"
    directory.mkdir()
    program = "import os; del os.pidfd_open; from txbroker.testing.server import main; main()"
    command = [sys.executable, "-c", program, "--directory", str(directory), "--stop-with", str(sleeper.pid), "--remove"]
    command += ["--override", "listeners=PLAINTEXT://127.0.0.1:0", "--override", f"log.dirs={directory}/data"]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as broker:
        until((directory / "ready").exists, "the broker is ready")
        sleeper.communicate(b"")
        assert broker.wait(PATIENCE_S) == 0
    assert not directory.exists()
