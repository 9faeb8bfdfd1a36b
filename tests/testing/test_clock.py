"""The broker's clock moves, and what fell due has happened. The traps of virtual time, with real clients."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from kafka import KafkaProducer

from tests.support.waiting import PATIENCE_S, until
from txbroker.client.blocking_connection import connect_to_any
from txbroker.testing import Kafka, KitError, Record
from txbroker.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from txbroker.wire.messages.list_transactions import ListTransactionsRequest

pytestmark = pytest.mark.process

DAY = timedelta(days=1)


@pytest.fixture
def kafka() -> Iterator[Kafka]:
    """A new broker for each test: a clock does not go back."""
    with Kafka() as running:
        yield running


def values(kafka: Kafka, topic: str) -> list[bytes | None]:
    return [each.value for each in kafka.records(topic)]


def ahead(kafka: Kafka) -> timedelta:
    """By how much the broker's clock is ahead, in whole minutes."""
    return timedelta(minutes=round((kafka.now - datetime.now(UTC)).total_seconds() / 60))


def quiet(kafka: Kafka, group: str | None = None) -> dict[str, Any]:
    """Settings of a client that does not write of connections that tests end."""
    return {**kafka.client_config("confluent", group), "log_level": 0}


def delivered(sender: Producer, topic: str, value: bytes) -> None:
    sender.produce(topic, value)
    assert sender.flush(PATIENCE_S) == 0


def answer(kafka: Kafka, request: Any) -> Any:
    with connect_to_any([("127.0.0.1", kafka.port)]) as connection:
        return connection.call(request)


def producers_of(kafka: Kafka, topic: str) -> list[int]:
    found = answer(kafka, DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0])]))
    return [each.producer_id for each in found.topics[0].partitions[0].active_producers]


def transactional_ids(kafka: Kafka) -> dict[str, str]:
    found = answer(kafka, ListTransactionsRequest(state_filters=[], producer_id_filters=[])).transaction_states
    return {each.transactional_id: each.transaction_state for each in found}


def test_what_fell_due_has_happened_when_the_clock_has_moved(kafka: Kafka) -> None:
    week, kept = kafka.create_topic("week"), kafka.create_topic("kept", retention_ms=-1)
    for topic in (week, kept):
        kafka.produce(topic, "one", "two")
    kafka.advance(timedelta(days=6))
    assert values(kafka, week) == [b"one", b"two"] and ahead(kafka) == timedelta(days=6)
    kafka.produce(week, "three")
    kafka.advance(timedelta(days=2))
    assert values(kafka, week) == [b"one", b"two", b"three"], "they share a segment, which is as old as its last record"
    kafka.advance(timedelta(days=6))
    assert values(kafka, week) == [] and values(kafka, kept) == [b"one", b"two"]
    assert ahead(kafka) == timedelta(days=14)
    kafka.produce(week, "four")
    (record,) = kafka.records(week)
    assert record.offset == 3
    assert abs((record.timestamp or 0) / 1000 - kafka.now.timestamp()) < 60, "records of the kit have the broker's date"


def test_a_compacted_topic_is_cleaned_at_the_dates_of_its_settings(kafka: Kafka) -> None:
    days = {"min_compaction_lag_ms": 2 * 86_400_000, "max_compaction_lag_ms": 4 * 86_400_000}
    topic = kafka.create_topic("state", cleanup_policy="compact", **days)
    kafka.produce(topic, *(Record(f"{number}", key="key") for number in range(5)), Record("x", key="gone"), Record(None, key="gone"))
    kafka.advance(3 * DAY)
    assert len(kafka.records(topic)) == 7, "no record is older than max.compaction.lag.ms"
    kafka.advance(timedelta(days=1, minutes=1))
    assert values(kafka, topic) == [b"4", None], "the tombstone is kept for delete.retention.ms from now on"
    kafka.advance(DAY)
    assert values(kafka, topic) == [b"4"]
    kafka.produce(topic, Record("y", key="gone"), Record(None, key="gone"))
    kafka.advance(30 * DAY)
    assert values(kafka, topic) == [b"4"], "closed, cleaned, and cleaned again a day later, in one move of the clock"


def test_compaction_waits_for_its_smallest_lag(kafka: Kafka) -> None:
    topic = kafka.create_topic("lag", cleanup_policy="compact", min_compaction_lag_ms=30 * 86_400_000, segment_ms=86_400_000)
    kafka.produce(topic, Record("1", key="key"), Record("2", key="key"))
    kafka.advance(20 * DAY)
    assert values(kafka, topic) == [b"1", b"2"]
    kafka.advance(11 * DAY)
    assert values(kafka, topic) == [b"2"]


def test_offsets_of_an_empty_group_expire(kafka: Kafka) -> None:
    topic = kafka.create_topic("topic", retention_ms=-1)
    kafka.produce(topic, "one", "two")
    settings = {**quiet(kafka, "group"), "enable.auto.commit": False}

    def read_and_commit() -> Any:
        consumer = Consumer(settings)
        consumer.subscribe([topic])
        (message,) = consumer.consume(1, PATIENCE_S)
        consumer.commit(message=message, asynchronous=False)
        consumer.close()
        return message.value()

    assert read_and_commit() == b"one"
    kafka.advance(6 * DAY)
    assert read_and_commit() == b"two", "offsets.retention.minutes is seven days"
    kafka.advance(8 * DAY)
    assert read_and_commit() == b"one", "its offset has expired"


def test_producer_ids_and_transactional_ids_expire(kafka: Kafka) -> None:
    topic = kafka.create_topic("topic", retention_ms=-1)
    producer = Producer({**quiet(kafka), "transactional.id": "id"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    delivered(producer, topic, b"one")
    producer.commit_transaction(PATIENCE_S)
    assert len(producers_of(kafka, topic)) == 1 and transactional_ids(kafka) == {"id": "CompleteCommit"}
    kafka.advance(timedelta(hours=23))
    assert len(producers_of(kafka, topic)) == 1
    kafka.advance(timedelta(hours=2))
    assert producers_of(kafka, topic) == [] and list(transactional_ids(kafka)) == ["id"]
    kafka.advance(7 * DAY)
    assert transactional_ids(kafka) == {}


def test_an_open_transaction_is_aborted_after_its_timeout_by_the_moved_clock(kafka: Kafka) -> None:
    """Its deadline in the coordinator is monotonic, which nothing moves: the wall clock alone would leave it open."""
    topic = kafka.create_topic("topic", retention_ms=-1)
    producer = Producer({**quiet(kafka), "transactional.id": "id", "transaction.timeout.ms": 600_000})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    delivered(producer, topic, b"open")
    kafka.produce(topic, "after it")
    kafka.advance(timedelta(minutes=9))
    assert values(kafka, topic) == [], "the transaction is open"
    kafka.advance(timedelta(minutes=2))
    assert values(kafka, topic) == [b"after it"] and transactional_ids(kafka) == {"id": "CompleteAbort"}
    with pytest.raises(KafkaException) as raised:
        producer.commit_transaction(PATIENCE_S)
    assert raised.value.args[0].fatal() or raised.value.args[0].txn_requires_abort()


def test_a_consumer_remains_a_member_while_the_clock_moves(kafka: Kafka) -> None:
    topic = kafka.create_topic("topic", message_timestamp_type="LogAppendTime")
    consumer = Consumer({**quiet(kafka, "group"), "session.timeout.ms": 45_000, "heartbeat.interval.ms": 100})
    consumer.subscribe([topic])
    kafka.produce(topic, "before")
    assert [each.value() for each in consumer.consume(1, PATIENCE_S)] == [b"before"]
    before = kafka.journal.last()
    kafka.advance(8 * DAY)
    kafka.produce(topic, "after")
    assert [each.value() for each in consumer.consume(1, PATIENCE_S)] == [b"after"]
    heartbeats = until(lambda: kafka.journal.entries(before).where(api="Heartbeat", group="group"), "the member has sent a heartbeat")
    assert heartbeats[-1].errors == () and not kafka.journal.entries(before).where(api="JoinGroup")
    consumer.close()


def test_records_of_clients_have_the_date_of_the_client(kafka: Kafka) -> None:
    """After a move by more than retention.ms they are old at once. LogAppendTime is one way out, `at` the other."""
    created, appended = kafka.create_topic("created"), kafka.create_topic("appended", message_timestamp_type="LogAppendTime")
    kafka.advance(8 * DAY)
    confluent, kafka_python = Producer(quiet(kafka)), KafkaProducer(**kafka.client_config("kafka-python"))
    for topic in (created, appended):
        delivered(confluent, topic, b"confluent")
        kafka_python.send(topic, b"kafka-python").get(PATIENCE_S)
    kafka_python.close()
    timestamp = kafka.records(created)[0].timestamp or 0
    assert abs(timestamp / 1000 - datetime.now(UTC).timestamp()) < 600, "the client's own date"
    kafka.advance(timedelta(0))
    assert values(kafka, created) == [] and values(kafka, appended) == [b"confluent", b"kafka-python"]


def test_a_scope_leaves_the_time_as_it_was(kafka: Kafka) -> None:
    topic = kafka.create_topic("topic")
    kafka.produce(topic, "old")
    producer = Producer(quiet(kafka))
    with kafka.at(8 * DAY):
        assert values(kafka, topic) == [] and ahead(kafka) == 8 * DAY
        with pytest.raises(KitError, match=r"the clock is in a scope of at\(\), at whose end it returns: call advance"):
            kafka.advance(DAY)
        with pytest.raises(KitError, match=r"the clock is in a scope of at\(\) already: end that one first"), kafka.at(DAY):
            pass
        kafka.kill()
        kafka.start()
        assert ahead(kafka) == 8 * DAY, "a restart within it"
    assert ahead(kafka) == timedelta(0)
    delivered(producer, topic, b"new")
    kafka.expire(topic)
    kafka.advance(6 * DAY)
    assert values(kafka, topic) == [b"new"]
    with pytest.raises(RuntimeError, match="of the test"), kafka.at(8 * DAY):
        raise RuntimeError("of the test")
    assert ahead(kafka) == 6 * DAY, "it returns to the time of advance()"


def test_a_restart_keeps_the_date(kafka: Kafka) -> None:
    kafka.create_topic("topic", message_timestamp_type="LogAppendTime")
    kafka.advance(100 * DAY)
    for end in (kafka.kill, kafka.stop):
        end()
        kafka.start()
        assert ahead(kafka) == 100 * DAY
    kafka.produce("topic", "one")
    assert abs((kafka.records("topic")[0].timestamp or 0) / 1000 - kafka.now.timestamp()) < 600
    kafka.reset()
    assert ahead(kafka) == 100 * DAY, "only rules are reset: a clock does not go back"
    other = Kafka.connect(kafka.bootstrap_servers, kafka.control_url)
    other.create_topic("other")
    other.produce("other", "one")
    assert abs((other.records("other")[0].timestamp or 0) / 1000 - other.now.timestamp()) < 600


def test_members_and_transactions_expire_by_name(kafka: Kafka) -> None:
    topic = kafka.create_topic("topic")
    settings = {**quiet(kafka, "group"), "heartbeat.interval.ms": 50, "client.id": "evicted"}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    kafka.produce(topic, "one")
    assert [each.value() for each in consumer.consume(1, PATIENCE_S)] == [b"one"]
    for named in ({"group": "group", "member": consumer.memberid()}, {"member": "evicted"}, {"group": "group"}):
        before = kafka.journal.last()
        kafka.expire(**named)

        def joined(since: int = before) -> bool:
            consumer.poll(0.05)
            return any(not each.errors for each in kafka.journal.entries(since).where(api="SyncGroup", group="group"))

        until(joined, f"the member has joined again after expire({named})")
        evicted = kafka.journal.entries(before).where(group="group", error="UNKNOWN_MEMBER_ID")
        assert evicted, kafka.journal.entries(before).text()
    consumer.close()
    producer = Producer({**quiet(kafka), "transactional.id": "id"})
    producer.init_transactions(PATIENCE_S)
    with pytest.raises(KitError, match="transactional id id has no open transaction: its state is Empty"):
        kafka.expire(transaction="id")
    producer.begin_transaction()
    delivered(producer, topic, b"open")
    kafka.expire(transaction="id")
    assert transactional_ids(kafka) == {"id": "CompleteAbort"} and values(kafka, topic) == [b"one"]
    with pytest.raises(KafkaException):
        producer.commit_transaction(PATIENCE_S)


def test_a_member_that_waits_for_others_is_evicted_too(kafka: Kafka) -> None:
    topic = kafka.create_topic("topic")
    held = kafka.when("SyncGroup", group="group").hold(of="request")
    consumer = Consumer({**quiet(kafka, "group"), "group.instance.id": "instance"})
    consumer.subscribe([topic])
    until(lambda: consumer.poll(0.01) or held.hits, "it has joined")
    kafka.expire(group="group", member="instance")
    held.release()
    kafka.produce(topic, "one")
    assert [each.value() for each in consumer.consume(1, PATIENCE_S)] == [b"one"], "it has joined again"
    consumer.close()


@pytest.fixture(scope="module")
def still() -> Iterator[Kafka]:
    """A broker whose clock no test moves."""
    with Kafka() as running:
        yield running


@pytest.mark.parametrize(("named", "problem"), [
    ({}, "name what expires: a topic, or a group or a member or both, or a transaction, or a session"),
    ({"group": "g", "transaction": "t"}, "name what expires: "),
    ({"group": "absent"}, "there is no group absent; the groups are none"),
    ({"member": "absent"}, "no group has a member absent; the members are none"),
    ({"transaction": "absent"}, "there is no transactional id absent; the ids are none"),
    ({"session": "0"}, "there is no session to expire: this broker is alone, and only brokers of a cluster have one"),
    ({"topic": "t", "group": "g"}, r"a topic expires alone: call expire\(\) again for the group"),
])  # fmt: skip
def test_names_that_do_not_exist(still: Kafka, named: dict[str, str], problem: str) -> None:
    with pytest.raises(KitError, match=problem):
        still.expire(**named)


def test_moves_that_a_clock_cannot_make(still: Kafka) -> None:
    with pytest.raises(KitError, match=r"advance\(\) is called with -1 day.*: a clock cannot go back; start another broker instead"):
        still.advance(-DAY)
    with pytest.raises(KitError, match=r"at\(\): by is 8; it must be a timedelta, such as timedelta"), still.at(8):  # type: ignore[arg-type]
        pass
    with pytest.raises(KitError, match="the clock would be 400000 days ahead; at most 365000 are possible"):
        still.advance(timedelta(days=400_000))
    with pytest.raises(KitError, match=r"seconds is 0: a scope of at\(\) must be ahead"), still.at(timedelta(0)):
        pass
    shared = Kafka.connect(still.bootstrap_servers, still.control_url, is_shared=True)
    with pytest.raises(KitError, match=r"its clock would move for the tests of all: take a broker of txbroker_factory"):
        shared.advance(DAY)
    with pytest.raises(KitError, match="this broker has no control: rules, the journal and the clock need a broker"):
        Kafka.connect(still.bootstrap_servers).advance(DAY)
    assert ahead(still) == timedelta(0)


def post(kafka: Kafka, path: str, body: object) -> Any:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(kafka.control_url + path, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as found:
            return json.load(found)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["error"]


def test_the_clock_over_http(kafka: Kafka) -> None:
    kafka.create_topic("topic")
    kafka.produce("topic", "one")
    moved = post(kafka, "/v1/at", {"seconds": 86_400})
    assert moved["ahead_ms"] == 86_400_000
    assert post(kafka, "/v1/at/end", {})["ahead_ms"] == 0
    assert post(kafka, "/v1/at/end", {}) == (400, "the clock is in no scope of at()")
    assert post(kafka, "/v1/advance", {"seconds": 8 * 86_400})["ahead_ms"] == 8 * 86_400_000
    assert values(kafka, "topic") == []
    with urllib.request.urlopen(kafka.control_url + "/v1/clock", timeout=PATIENCE_S) as found:
        clock = json.load(found)
    assert clock["ahead_ms"] == 8 * 86_400_000 and clock["now_ms"] >= moved["now_ms"] + 7 * 86_400_000


@pytest.mark.parametrize(("path", "body", "problem"), [
    ("/v1/advance", {"seconds": -1}, "seconds is -1; it must be a number of seconds, 0 or more: a clock cannot go back"),
    ("/v1/advance", {"seconds": "1"}, "seconds is '1'; it must be a number of seconds"),
    ("/v1/advance", {"seconds": True}, "seconds is True; it must be a number of seconds"),
    ("/v1/advance", {"seconds": float("nan")}, "seconds is nan; it must be a number of seconds"),
    ("/v1/advance", {"seconds": 1e300}, "days ahead; at most 365000 are possible"),
    ("/v1/advance", {}, "seconds is None; it must be a number of seconds"),
    ("/v1/advance", {"days": 1}, "the body has days; it may have seconds"),
    ("/v1/advance", [1], "the body must be a JSON object"),
    ("/v1/at/end", {"seconds": 1}, "the body has seconds; it may have nothing"),
    ("/v1/expire", {"group": 1}, "group is 1; it must be text"),
    ("/v1/expire", {"topics": "t"}, "the body has topics; it may have topic, group, member, transaction, session"),
    ("/v1/expire", {"topic": "t"}, "there is no topic t"),
    ("/v1/expire", {"topic": "t", "group": "g"}, "name what expires: a topic, or a group"),
    ("/v1/compact", {"topic": "t"}, "there is no topic t"),
    ("/v1/compact", {"topic": "__consumer_offsets", "partition": 0}, "the body has partition; it may have topic"),
    ("/v1/trim", {"topic": "t", "partition": 0, "before": -2}, "before is -2; it must be a number from 0"),
    ("/v1/trim", {"topic": "__consumer_offsets", "partition": 0}, "has the state of groups or transactions"),
])  # fmt: skip
def test_bodies_that_are_refused(still: Kafka, path: str, body: object, problem: str) -> None:
    status, error = post(still, path, body)
    assert status == 400 and problem in error and "\n" not in error


def test_a_broker_without_a_moved_clock_has_no_file(still: Kafka) -> None:
    assert still.log_path is not None
    assert not (Path(still.log_path).parent / "clock").exists()
