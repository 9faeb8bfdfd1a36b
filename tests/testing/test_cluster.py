"""A cluster of three brokers: leaders and coordinators move, brokers end and return, and real clients go on."""

from __future__ import annotations

import json
import os
import signal
import socket
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from jsonschema import Draft202012Validator
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from openapi_spec_validator import OpenAPIV31SpecValidator

from tests.support.waiting import PATIENCE_S, until
from tests.testing.leftovers import brokers_in
from txbroker.client.blocking_connection import BlockingConnection
from txbroker.client.client_errors import ClientError
from txbroker.client.client_machine import ClientSettings
from txbroker.testing import Kafka, KitError, Namespace, Record
from txbroker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def cluster() -> Iterator[Kafka]:
    with Kafka(brokers=3) as running:
        yield running


@pytest.fixture
def kafka(cluster: Kafka) -> Iterator[Kafka]:
    """All brokers run, before the test and after it."""
    yield cluster
    cluster.end_rules(check=False)
    for broker in cluster.brokers:
        if broker.state == "paused":
            broker.resume()
        elif broker.state == "refusing":
            broker.accept()
        broker.start()


def producer(kafka: Kafka, names: Namespace, **more: Any) -> Producer:
    settings = {"client.id": names.client_id(), "retry.backoff.ms": 10, "reconnect.backoff.ms": 10, "linger.ms": 0, "log_level": 0}
    return Producer({**kafka.client_config("confluent"), **settings, **more})


def send(sender: Producer, topic: str, value: bytes) -> None:
    """Produce to partition 0 and wait until it is acknowledged."""
    failed: list[Any] = []
    sender.produce(topic, value, partition=0, on_delivery=lambda error, _: failed.append(error))
    assert sender.flush(PATIENCE_S) == 0 and failed == [None]


def values(kafka: Kafka, topic: str) -> list[bytes | None]:
    return [each.value for each in kafka.records(topic)]


def get(kafka: Kafka, path: str) -> Any:
    with urllib.request.urlopen(kafka.control_url + path, timeout=PATIENCE_S) as answer:
        return json.load(answer)


def post(kafka: Kafka, path: str, body: object) -> Any:
    request = urllib.request.Request(kafka.control_url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return json.load(error)["error"]


def test_a_producer_goes_on_with_the_new_leader(kafka: Kafka, names: Namespace) -> None:
    topic = names.topic()
    sender = producer(kafka, names)
    for leader in (0, 1, 2):
        kafka.move_leader(topic, 0, leader)
        send(sender, topic, b"%d" % leader)
    assert values(kafka, topic) == [b"0", b"1", b"2"]
    produced = kafka.journal.where(api="Produce", topic=topic)
    pattern = {"api": "Produce", "topic": topic}
    moved = [{**pattern, "broker": 0, "error": "NOT_LEADER_OR_FOLLOWER"}, {**pattern, "broker": 1, "outcome": "answered"}]
    assert produced.in_order({**pattern, "broker": 0}, *moved, {**pattern, "broker": 1, "error": "NOT_LEADER_OR_FOLLOWER"}), produced
    assert [(each.broker, each.errors) for each in produced if not each.errors] == [(0, ()), (1, ()), (2, ())]
    assert [each.n for each in produced] == sorted({each.n for each in produced}), "one sequence of numbers for all brokers"


def test_a_producer_that_has_expired_goes_on_with_the_new_leader(kafka: Kafka, names: Namespace) -> None:
    topic = names.topic(retention_ms=-1)
    sender = producer(kafka, names, **{"enable.idempotence": True})
    kafka.move_leader(topic, 0, 0)
    send(sender, topic, b"one")
    kafka.move_leader(topic, 0, 1)
    kafka.advance(timedelta(days=2))
    send(sender, topic, b"two")
    produced = kafka.journal.where(api="Produce", topic=topic, broker=1)
    assert [each.errors for each in produced] == [()], "it does not have to wait until the previous leader cannot answer any more"


def test_a_consumer_goes_on_with_the_new_leader(kafka: Kafka, names: Namespace) -> None:
    topic = names.topic()
    kafka.move_leader(topic, 0, 0)
    kafka.produce(topic, "one")
    consumer = Consumer({**kafka.client_config("confluent", names.group()), "client.id": names.client_id(), "log_level": 0})
    consumer.subscribe([topic])
    (first,) = consumer.consume(1, PATIENCE_S)
    kafka.move_leader(topic, 0, 1)
    kafka.produce(topic, "two")
    (second,) = consumer.consume(1, PATIENCE_S)
    consumer.close()
    assert (first.value(), second.value()) == (b"one", b"two")
    found = kafka.journal.where(api="Fetch", client_id=names.client_id(), topic=topic)
    last = [each for each in found if each.broker == 0][-1]
    assert set(last.errors) <= {"FENCED_LEADER_EPOCH", "NOT_LEADER_OR_FOLLOWER"}, "a client that sends its epoch gets the first one"
    assert found.in_order({"broker": 0, "errors": ()}, {"broker": 1, "errors": ()}), "its request has the id of the topic"


def test_a_consumer_of_kafka_python_goes_on_too(kafka: Kafka, names: Namespace) -> None:
    topic = names.topic()
    settings = {"client_id": names.client_id(), "consumer_timeout_ms": PATIENCE_S * 1000}
    consumer = KafkaConsumer(**kafka.client_config("kafka-python", names.group()), **settings)
    consumer.assign([TopicPartition(topic, 0)])
    for leader in (0, 1, 2):
        kafka.move_leader(topic, 0, leader)
        kafka.produce(topic, f"{leader}")
        assert next(consumer).value == b"%d" % leader
    consumer.close()


def test_a_group_goes_on_with_the_new_coordinator(kafka: Kafka, names: Namespace) -> None:
    topic, group = names.topic(), names.group()
    kafka.produce(topic, "one", "two")
    kafka.move_coordinator(group, 0)
    settings = {"client.id": names.client_id(), "enable.auto.commit": False, "log_level": 0, "heartbeat.interval.ms": 100}
    consumer = Consumer({**kafka.client_config("confluent", group), **settings})
    consumer.subscribe([topic])
    (first,) = consumer.consume(1, PATIENCE_S)
    consumer.commit(first, asynchronous=False)
    kafka.move_coordinator(group, 1)

    def committed() -> bool:
        consumer.poll(0)
        try:
            consumer.commit(first, asynchronous=False)
        except KafkaException:
            return False
        return True

    until(committed, "the consumer has found its coordinator")
    consumer.close()
    of_group = kafka.journal.where(group=group)
    assert of_group.in_order(
        {"api": "OffsetCommit", "broker": 0, "errors": ()},
        {"broker": 0, "error": "NOT_COORDINATOR"},
        {"api": "FindCoordinator"},
        {"api": "OffsetCommit", "broker": 1, "errors": ()},
    ), of_group


def test_a_transaction_goes_on_with_the_new_coordinator(kafka: Kafka, names: Namespace) -> None:
    topic, transactional_id = names.topic(), names.client_id("id")
    kafka.move_coordinator(transactional_id, 2, kind="transaction")
    sender = producer(kafka, names, **{"transactional.id": transactional_id})
    sender.init_transactions(PATIENCE_S)
    sender.begin_transaction()
    sender.produce(topic, b"one", partition=0)
    sender.flush(PATIENCE_S)
    kafka.move_coordinator(transactional_id, 0, kind="transaction")
    sender.commit_transaction(PATIENCE_S)
    assert [each.value for each in kafka.consume(topic, timeout_s=PATIENCE_S)] == [b"one"]
    ends = kafka.journal.where(api="EndTxn", transactional_id=transactional_id)
    assert {(each.broker, each.errors) for each in ends} <= {(2, ("NOT_COORDINATOR",)), (0, ())} and ends[-1].broker == 0, ends.text()


def test_a_killed_leader_is_replaced_and_returns(kafka: Kafka, names: Namespace) -> None:
    topic = names.topic()
    kafka.move_leader(topic, 0, 1)
    sender = producer(kafka, names)
    send(sender, topic, b"one")
    address = kafka.broker(1).address
    kafka.broker(1).kill()
    assert kafka.broker(1).state == "stopped"
    send(sender, topic, b"two")
    kafka.broker(1).start()
    assert (kafka.broker(1).state, kafka.broker(1).address) == ("running", address)
    kafka.move_leader(topic, 0, 1)
    send(sender, topic, b"three")
    assert values(kafka, topic) == [b"one", b"two", b"three"]
    answered = [each.broker for each in kafka.journal.where(api="Produce", topic=topic, outcome="answered") if not each.errors]
    assert answered[0] == 1 and answered[1] != 1 and answered[2] == 1, "also what the killed one had in its journal"


def test_a_stopped_controller_is_replaced(kafka: Kafka, names: Namespace) -> None:
    for broker in kafka.brokers:
        broker.stop()
        names.topic(f"without-{broker.id}", replicas=2)
        broker.start()
        names.topic(f"with-{broker.id}")


def test_a_paused_leader_until_its_session_expires(kafka: Kafka, names: Namespace) -> None:
    topic, alone = names.topic(), names.topic("alone", replicas=1)
    kafka.move_leader(topic, 0, 2)
    kafka.move_leader(alone, 0, 2)
    sender = producer(kafka, names, **{"socket.timeout.ms": 1000, "request.timeout.ms": 900})
    send(sender, topic, b"one")
    kafka.broker(2).pause()
    assert kafka.broker(2).state == "paused"
    trimmed = {"topic": alone, "partition": 0}
    assert f"{alone}-0 has no leader that runs: start or resume its brokers first" in post(kafka, "/v1/trim", trimmed)
    sent: list[Any] = []
    sender.produce(topic, b"two", partition=0, on_delivery=lambda error, _: sent.append(error))
    sender.poll(0)
    kafka.expire(session="2")
    assert kafka.broker(2).state == "paused"
    assert f"{alone}-0 has no leader that runs" in post(kafka, "/v1/trim", trimmed)
    assert sender.flush(PATIENCE_S) == 0 and sent == [None]
    kafka.broker(2).resume()
    kafka.move_leader(topic, 0, 2)
    assert b"two" in values(kafka, topic)
    post(kafka, "/v1/brokers/2/expire", {})
    send(sender, topic, b"three")


def test_a_shrunk_isr_refuses_what_all_must_have(kafka: Kafka, names: Namespace) -> None:
    topic = names.topic(min_insync_replicas=2)
    kafka.move_leader(topic, 0, 1)
    kafka.shrink_isr(topic, 0, [1])
    sender = producer(kafka, names)
    sent: list[Any] = []
    sender.produce(topic, b"one", partition=0, on_delivery=lambda error, _: sent.append(error))
    sender.poll(0)
    kafka.journal.wait_for(2, PATIENCE_S, api="Produce", topic=topic, error="NOT_ENOUGH_REPLICAS")
    kafka.grow_isr(topic, 0)
    assert sender.flush(PATIENCE_S) == 0 and sent == [None]
    assert values(kafka, topic) == [b"one"]


def test_a_broker_outside_the_isr_does_not_become_the_leader(kafka: Kafka, names: Namespace) -> None:
    topic = names.topic()
    kafka.move_leader(topic, 0, 0)
    kafka.shrink_isr(topic, 0, [0, 2])
    with pytest.raises(KitError, match=r"broker 1 is kept out of the ISR of .*-0: call grow_isr first"):
        kafka.move_leader(topic, 0, 1)
    kafka.broker(0).kill()
    assert kafka.produce(topic, "one") == [0]
    sender = producer(kafka, names)
    send(sender, topic, b"two")
    assert kafka.journal.where(api="Produce", topic=topic)[-1].broker == 2
    kafka.broker(0).start()
    kafka.grow_isr(topic, 0)
    kafka.move_leader(topic, 0, 1)


def test_a_broker_that_refuses_connections(kafka: Kafka, names: Namespace) -> None:
    topic = names.topic()
    kafka.move_leader(topic, 0, 1)
    sender = producer(kafka, names)
    send(sender, topic, b"one")
    kafka.broker(1).refuse()
    assert kafka.broker(1).state == "refusing"
    sent: list[Any] = []
    sender.produce(topic, b"two", partition=0, on_delivery=lambda error, _: sent.append(error))
    sender.poll(0.1)
    assert sent == [], "the leader stays, as the other brokers reach it"
    kafka.move_leader(topic, 0, 2)
    assert sender.flush(PATIENCE_S) == 0 and sent == [None]
    kafka.broker(1).accept()
    kafka.move_leader(topic, 0, 1)
    send(sender, topic, b"three")
    assert values(kafka, topic) == [b"one", b"two", b"three"]


def test_rules_count_the_requests_to_all_brokers_together(kafka: Kafka, names: Namespace) -> None:
    topic = names.topic()
    kafka.move_leader(topic, 0, 0)
    rule = kafka.when("Produce", topic=topic).on_call(2).error("MESSAGE_TOO_LARGE")
    sender = producer(kafka, names)
    send(sender, topic, b"one")
    kafka.move_leader(topic, 0, 1)
    kafka.broker(0).kill()  # the client asks for the leader
    failed: list[Any] = []
    sender.produce(topic, b"two", partition=0, on_delivery=lambda error, _: failed.append(error.name()))
    assert sender.flush(PATIENCE_S) == 0
    assert failed == ["MSG_SIZE_TOO_LARGE"] and rule.hits == 1
    of_broker = kafka.when("Produce", topic=topic, broker=0).always().optional().error("MESSAGE_TOO_LARGE")
    kafka.broker(0).start()  # it gets the rules
    send(sender, topic, b"three")
    assert of_broker.hits == 0
    kafka.move_leader(topic, 0, 0)
    sender.produce(topic, b"four", partition=0, on_delivery=lambda error, _: failed.append(error.name()))
    assert sender.flush(PATIENCE_S) == 0 and failed[1:] == ["MSG_SIZE_TOO_LARGE"] and of_broker.hits == 1
    held = kafka.when("Produce", topic=topic).after(of_broker).hold()
    of_broker.remove()
    sender.produce(topic, b"five", partition=0)
    sender.poll(0)
    held.wait(timeout_s=PATIENCE_S)
    held.release()
    assert sender.flush(PATIENCE_S) == 0
    assert values(kafka, topic) == [b"one", b"three", b"five"]


def test_a_function_changes_the_answers_of_all_brokers(kafka: Kafka, names: Namespace) -> None:
    topic, client_id = names.topic(), names.client_id()
    seen: list[int] = []

    def other_rack(response: Any) -> None:
        response.brokers[0].rack = f"edited {len(seen)}"
        seen.append(response.controller_id)

    rule = kafka.when("Metadata", client_id=client_id).always().edit(other_rack)
    for number, broker in enumerate(kafka.brokers):
        host, _, port = broker.address.partition(":")
        with BlockingConnection(host, int(port), ClientSettings(client_id=client_id)) as client:
            answer = client.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]))
            assert answer.brokers[0].rack == f"edited {number}"
    assert rule.hits == len(seen) == 3
    rule.remove()


def test_requests_between_brokers_are_left_out(kafka: Kafka, names: Namespace) -> None:
    topic = names.topic()
    with kafka.when("Fetch").always().optional().error("UNKNOWN_SERVER_ERROR") as rule:
        assert kafka.produce(topic, "one") == [0], "the followers have fetched it"
        assert rule.hits == 0
    assert not {each.api for each in kafka.journal.entries()} & {"LeaderAndIsr", "UpdateMetadata", "AlterPartition"}


def test_the_clock_of_all_brokers_moves(kafka: Kafka, names: Namespace) -> None:
    topic, group = names.topic(partitions=3, retention_ms=86_400_000), names.group()
    kafka.produce(topic, *(Record("old", partition=number) for number in range(3)))
    kafka.broker(2).kill()
    before = kafka.now
    kafka.advance(timedelta(days=2))
    assert kafka.now - before >= timedelta(days=2)
    kafka.broker(2).start()
    controls = [each["control_url"] for each in get(kafka, "/v1/brokers")["brokers"]]
    aheads = {json.load(urllib.request.urlopen(f"{url}/v1/clock", timeout=PATIENCE_S))["ahead_ms"] for url in controls}
    assert len(aheads) == 1 and aheads.pop() >= 172_800_000, "also of the one that was down"
    assert values(kafka, topic) == []
    settings = {"client.id": names.client_id(), "log_level": 0, "heartbeat.interval.ms": 100}
    consumer = Consumer({**kafka.client_config("confluent", group), **settings})
    consumer.subscribe([topic])
    kafka.produce(topic, "new")
    assert [each.value() for each in consumer.consume(1, PATIENCE_S)] == [b"new"]
    kafka.expire(member=names.client_id())
    kafka.journal.wait_for(1, PATIENCE_S, group=group, error="UNKNOWN_MEMBER_ID")
    consumer.close()
    with pytest.raises(KitError, match="no-such-group"):
        kafka.expire(group="no-such-group")
    with pytest.raises(KitError, match="session is 'x'; it must be the id of a broker"):
        kafka.expire(session="x")


def test_the_control_port_is_described(kafka: Kafka) -> None:
    document = get(kafka, "/v1/openapi.json")
    OpenAPIV31SpecValidator(document).validate()
    paths = document["paths"]
    assert {"/v1/leaders", "/v1/isr", "/v1/brokers/{broker}/kill", "/v1/advance", "/v1/rules/{id}"} <= paths.keys()
    schema = paths["/v1/brokers"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    Draft202012Validator(schema).validate(get(kafka, "/v1/brokers"))
    for body in ({"topic": "t", "partition": 0, "to": [0]}, {"topic": "t", "partition": 0}):
        Draft202012Validator(paths["/v1/isr"]["post"]["requestBody"]["content"]["application/json"]["schema"]).validate(body)


def wrong(name: str, call: Callable[[Kafka], object], problem: str) -> Any:
    return pytest.param(call, problem, id=name)


@pytest.mark.parametrize(("call", "problem"), [
    wrong("broker", lambda k: k.broker(3), "there is no broker 3; the brokers are 0, 1, 2"),
    wrong("rule", lambda k: k.when("Produce", broker=7).disconnect(), "there is no broker 7; the brokers are 0, 1, 2"),
    wrong("to", lambda k: k.move_leader("__consumer_offsets", 0, 5), "there is no broker 5; the brokers are 0, 1, 2"),
    wrong("topic", lambda k: k.move_leader("no-topic", 0, 1), "there is no topic no-topic; create it first"),
    wrong("kind", lambda k: k.move_coordinator("g", 0, kind="share"), "kind is 'share'; it must be one of group, transaction"),  # type: ignore[arg-type]
    wrong("after", lambda k: post(k, "/v1/rules", {"action": "disconnect", "after": 99_999}), "there is no rule 99999"),
    wrong("body", lambda k: post(k, "/v1/leaders", {"topic": "t"}), "the body must be a JSON object with topic, partition, to"),
    wrong("value", lambda k: post(k, "/v1/leaders", {"topic": "t", "partition": "0", "to": 1}), "partition is '0'; it must be a whole"),
    wrong("ids", lambda k: post(k, "/v1/isr", {"topic": "t", "partition": 0, "to": ["0"]}), "it must be a list of broker ids"),
    wrong("path", lambda k: post(k, "/v1/nothing", {}), "there is no POST /v1/nothing"),
])  # fmt: skip
def test_wrong_calls(kafka: Kafka, call: Callable[[Kafka], object], problem: str) -> None:
    try:
        found = str(call(kafka))
    except (KitError, ClientError) as error:
        found = str(error)
    assert problem in found and "\n" not in found


def test_wrong_isrs_and_partitions(kafka: Kafka, names: Namespace) -> None:
    topic = names.topic()
    kafka.move_leader(topic, 0, 0)
    with pytest.raises(KitError, match=f"topic {topic} has no partition 1; its partitions are 0"):
        kafka.move_leader(topic, 1, 0)
    with pytest.raises(KitError, match="must have its leader, broker 0: add it, or move the leader first"):
        kafka.shrink_isr(topic, 0, [1])
    with pytest.raises(KitError, match="can only have its replicas, "):
        kafka.shrink_isr(topic, 0, [0, 7])
    kafka.broker(2).kill()
    with pytest.raises(KitError, match="broker 2 does not run: start or resume it first"):
        kafka.move_leader(topic, 0, 2)
    with pytest.raises(KitError, match="broker 2 does not run: start it first"):
        kafka.broker(2).pause()
    kafka.broker(2).start()


def test_the_data_of_a_cluster_remains_for_the_next_one(tmp_path: Path) -> None:
    with Kafka(brokers=2, data=tmp_path / "data", topics={"kept": 2}, settings={"broker.id": 5}) as kafka:
        assert [each.id for each in kafka.brokers] == [5, 6]
        kafka.produce("kept", "value")
        ports = kafka.bootstrap_servers
        kafka.kill()
        assert not kafka.running
        kafka.start()
        assert kafka.bootstrap_servers == ports and values(kafka, "kept") == [b"value"]
        kafka.stop()
    with pytest.raises(KitError, match=r"did not start: .* has the data of several processes"):
        Kafka(data=tmp_path / "data").start()
    with Kafka(brokers=2, data=tmp_path / "data", settings={"broker.id": 5}) as kafka:
        assert values(kafka, "kept") == [b"value"]


@pytest.mark.parametrize(("arguments", "problem"), [
    ({"brokers": 0}, "brokers is 0; it must be from 1 to 16"),
    ({"brokers": 2, "settings": {"num.partitons": 3}}, "num.partitons is not a known key"),
    ({"brokers": 2, "port": 65535}, "port 65535 leaves no ports for 2 brokers"),
])  # fmt: skip
def test_wrong_arguments(arguments: dict[str, Any], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(KitError, match=problem) as raised:
        Kafka(**arguments).start()
    assert "\n" not in str(raised.value)
    assert not brokers_in(tmp_path) and not list(tmp_path.iterdir())


def test_a_broker_alone() -> None:
    with Kafka(topics={"t": 1}) as kafka:
        broker = kafka.broker(0)
        with KafkaProducer(**kafka.client_config("kafka-python"), retry_backoff_ms=10, reconnect_backoff_ms=10) as sender:
            sender.send("t", b"one").get(PATIENCE_S)
            broker.pause()
            assert broker.state == "paused"
            later = sender.send("t", b"two")
            broker.resume()
            later.get(PATIENCE_S)
            broker.refuse()
            assert broker.state == "refusing" and not sender.bootstrap_connected()
            later = sender.send("t", b"three")
            broker.accept()
            later.get(PATIENCE_S)
            broker.refuse()
            kafka.reset()
            assert broker.state == "running"
            broker.kill()
            assert broker.state == "stopped"
            broker.start()
            sender.send("t", b"four").get(PATIENCE_S)
        found = values(kafka, "t")
        assert sorted(set(found)) == sorted([b"one", b"two", b"three", b"four"])
        with pytest.raises(KitError, match="a broker alone leads everything: use brokers=2 or more"):
            kafka.move_leader("t", 0, 0)
        with pytest.raises(KitError, match="a broker alone leads everything"):
            kafka.move_coordinator("g", 0)
        with pytest.raises(KitError, match="a broker alone is the whole ISR"):
            kafka.shrink_isr("t", 0, [0])
        with pytest.raises(KitError, match="there is no broker 1; the only one is 0"):
            kafka.broker(1)
        with pytest.raises(KitError, match="there is no broker 1; the only one is 0"):
            kafka.when("Produce", broker=1).disconnect()
        assert "a broker alone cannot kill itself by its control port" in post(kafka, "/v1/brokers/0/kill", {})


@pytest.mark.extended
def test_a_cluster_ends_without_its_control_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its server may hang; it must not stay until the tests have ended."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    kafka = Kafka(brokers=2).start()
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        kafka._control.url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(KitError, match="does not answer"):
            kafka.close()
    until(lambda: not brokers_in(tmp_path), "the brokers have ended")
    assert not kafka.running


def test_a_paused_broker_at_the_end_of_a_test(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), Kafka(data=tmp_path / "data") as kafka:
        kafka.when("Produce").disconnect()
        kafka.broker(0).pause()
        raise ZeroDivisionError
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    with Kafka(data=tmp_path / "data") as kafka:
        kafka.broker(0).pause()
        kafka.stop()
        assert kafka.broker(0).state == "stopped" and (tmp_path / "data" / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("killed", ["the process of the tests", "the server of the cluster"])
def test_nothing_is_left_after_a_kill(killed: str, tmp_path: Path) -> None:
    from tests.testing.test_kafka import started

    with started(tmp_path, "child = kafka.pid; kafka.broker(1).pause()", "Kafka(brokers=2)") as (process, server):
        assert len(brokers_in(tmp_path)) == 3
        os.kill(process.pid if "tests" in killed else server, signal.SIGKILL)
        until(lambda: not brokers_in(tmp_path), "all processes have ended")
        if "tests" in killed:
            until(lambda: not list(tmp_path.iterdir()), "the directory is removed")


def test_the_command_for_other_languages(tmp_path: Path) -> None:
    from tests.testing.test_server_command import post as post_to
    from tests.testing.test_server_command import server

    with server(tmp_path, "--brokers", "3", "--topic", "orders") as (process, printed):
        url = printed["control_url"]
        assert len(printed["bootstrap_servers"].split(",")) == 3
        post_to(url, "/v1/leaders", {"topic": "orders", "partition": 0, "to": 2})
        post_to(url, "/v1/isr", {"topic": "orders", "partition": 0, "to": [2, 1]})
        post_to(url, "/v1/isr", {"topic": "orders", "partition": 0})
        post_to(url, "/v1/coordinators", {"key": "g", "to": 1})
        assert post_to(url, "/v1/brokers/2/kill", {})["state"] == "stopped"
        assert post_to(url, "/v1/brokers/2/start", {})["state"] == "running"
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    assert not brokers_in(tmp_path) and not list(tmp_path.iterdir())


def test_logs_are_compacted_and_expire_at_their_leaders(kafka: Kafka, names: Namespace) -> None:
    compacted, old = names.topic(partitions=3, cleanup_policy="compact"), names.topic("old", partitions=3)
    for call in ("python", "http"):
        for number in range(3):
            kafka.move_leader(compacted, number, number)
            kafka.move_leader(old, number, number)
            kafka.produce(compacted, Record(f"{call} 1", key="key", partition=number), Record(f"{call} 2", key="key", partition=number))
            kafka.produce(old, Record("old", timestamp=1_700_000_000_000, partition=number))
        if call == "python":
            kafka.compact(compacted)
            kafka.expire(old)
        else:
            assert post(kafka, "/v1/compact", {"topic": compacted}) == {}
            assert post(kafka, "/v1/expire", {"topic": old}) == {"members": []}
        assert values(kafka, compacted) == [f"{call} 2".encode()] * 3 and values(kafka, old) == []
    kafka.produce(old, *(Record(None, key="new", partition=number) for number in (0, 0, 1, 1, 2, 2)))
    assert [post(kafka, "/v1/trim", {"topic": old, "partition": number, "before": 3}) for number in range(3)] == [{"start": 3}] * 3
    assert "there is no topic absent" in post(kafka, "/v1/trim", {"topic": "absent", "partition": 0})
    assert "partition is None; it must be a number" in post(kafka, "/v1/trim", {"topic": old})


def test_logs_are_rolled_and_filled_at_their_leaders(kafka: Kafka, names: Namespace) -> None:
    topic = names.topic(partitions=3)
    kafka.fill(topic, 3000, size=20)
    kafka.roll(topic)
    found = kafka.records(topic)
    assert [each.key for each in found] == [b"%d" % number for number in range(3000)]
    assert [each.offset for each in found if each.partition == 2] == list(range(1000))


def test_what_only_a_broker_alone_can_do_changes_nothing(kafka: Kafka, names: Namespace, tmp_path: Path) -> None:
    topic = names.topic()
    kafka.produce(topic, "one")
    calls: tuple[Callable[[], object], ...] = (
        lambda: kafka.truncate(topic, 0, 0), lambda: kafka.recreate_topic(topic),
        lambda: kafka.snapshot(tmp_path / "x"), lambda: kafka.restore(tmp_path / "x"),
    )  # fmt: skip
    for call in calls:
        with pytest.raises(KitError, match="a cluster cannot truncate, recreate_topic, snapshot and restore: take"):
            call()
    assert values(kafka, topic) == [b"one"] and not list(tmp_path.iterdir())
