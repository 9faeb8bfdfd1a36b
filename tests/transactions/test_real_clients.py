"""Transactions of real clients: what is committed is read, once; what is aborted is not; a new producer fences the one before."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as Place
from kafka import KafkaConsumer, KafkaProducer

from tests.support import java
from tests.support.cache import KAFKA_NEW, KAFKA_OLD
from tests.support.raw import RawConnection
from tests.support.raw_admin import create_topic
from tests.support.raw_transactions import latest
from tests.support.server import Server
from tests.support.waiting import PATIENCE_S, until
from tests.transactions.state_log import dumped_states
from txbroker.transactions.transaction_states import TransactionState

S = TransactionState

COMMITTED = ["--isolation-level", "read_committed"]


def producer(server: Server, transactional_id: str, **settings: str | int) -> Producer:
    made = Producer({"bootstrap.servers": server.address, "transactional.id": transactional_id, "linger.ms": 0} | settings)
    made.init_transactions(PATIENCE_S)
    return made


def transaction(of: Producer, topic: str, *values: str, commit: bool = True, partition: int = 0) -> None:
    of.begin_transaction()
    for value in values:
        of.produce(topic, value.encode(), partition=partition)
    of.flush(PATIENCE_S)
    if commit:
        of.commit_transaction(PATIENCE_S)
    else:
        of.abort_transaction(PATIENCE_S)


def read(server: Server, topic: str, count: int, isolation: str = "read_committed") -> list[str]:
    """The first `count` values of a topic with one partition, and none after them."""
    consumer = Consumer({"bootstrap.servers": server.address, "group.id": "unused", "isolation.level": isolation,
                         "enable.partition.eof": True, "enable.auto.commit": False})  # fmt: skip
    consumer.assign([Place(topic, 0, 0)])
    values: list[str] = []

    def is_at_end() -> bool:
        message: Message | None = consumer.poll(0.1)
        if message is None:
            return False
        error = message.error()
        if error is None:
            values.append((message.value() or b"").decode())
        return error is not None and error.code() == KafkaError._PARTITION_EOF and len(values) >= count

    until(is_at_end, f"{count} values are read")
    consumer.close()
    return values


def test_committed_and_aborted_transactions_of_librdkafka(broker: Server, name: str) -> None:
    create_topic(broker, name)
    sender = producer(broker, name)
    for number in range(6):
        transaction(sender, name, f"{number}a", f"{number}b", commit=number % 3 != 2)
    expected = [f"{number}{letter}" for number in (0, 1, 3, 4) for letter in "ab"]
    assert read(broker, name, 8) == expected
    assert len(read(broker, name, 12, "read_uncommitted")) == 12


def test_committed_and_aborted_transactions_of_kafka_python(broker: Server, name: str) -> None:
    create_topic(broker, name)
    sender = KafkaProducer(bootstrap_servers=broker.address, transactional_id=name)
    sender.init_transactions()
    for number in range(4):
        sender.begin_transaction()
        sender.send(name, f"{number}".encode())
        sender.flush()
        if number % 2:
            sender.abort_transaction()
        else:
            sender.commit_transaction()
    sender.close()
    consumer = KafkaConsumer(name, bootstrap_servers=broker.address, auto_offset_reset="earliest", isolation_level="read_committed",
                             consumer_timeout_ms=1000 * PATIENCE_S)  # fmt: skip
    records: Iterator[object] = iter(consumer)
    assert [next(records).value for _ in range(2)] == [b"0", b"2"]  # type: ignore[attr-defined]
    consumer.close()


def test_a_new_producer_ends_the_transaction_of_the_one_before_and_fences_it(broker: Server, name: str) -> None:
    create_topic(broker, name)
    first = producer(broker, name)
    first.begin_transaction()
    first.produce(name, b"of the first")
    first.flush(PATIENCE_S)
    second = producer(broker, name)
    transaction(second, name, "of the second")
    with pytest.raises(KafkaException) as caught:
        first.commit_transaction(PATIENCE_S)
    assert caught.value.args[0].code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
    assert read(broker, name, 1) == ["of the second"]


def test_a_transaction_that_times_out_is_aborted(start_broker: Callable[..., Server], name: str) -> None:
    broker = start_broker({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"})
    create_topic(broker, name)
    late = producer(broker, name, **{"transaction.timeout.ms": 1000, "message.timeout.ms": 1000, "socket.timeout.ms": 1000})
    late.begin_transaction()
    late.produce(name, b"late")
    late.flush(PATIENCE_S)
    with RawConnection(broker.address) as connection:
        until(lambda: latest(connection, name) == 2, "the transaction is aborted: its record and the marker")
    with pytest.raises(KafkaException):
        late.commit_transaction(PATIENCE_S)
    transaction(producer(broker, name), name, "next")
    assert read(broker, name, 1) == ["next"]


def test_offsets_of_a_transaction_move_with_it(broker: Server, name: str) -> None:
    """KIP-447: consume, transform and produce; an aborted round leaves the offsets where they were."""
    source, target = f"{name}-in", f"{name}-out"
    for topic in (source, target):
        create_topic(broker, topic)
    plain = Producer({"bootstrap.servers": broker.address})
    for number in range(40):
        plain.produce(source, str(number).encode())
    plain.flush(PATIENCE_S)
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": name, "auto.offset.reset": "earliest",
                         "isolation.level": "read_committed", "enable.auto.commit": False})  # fmt: skip
    consumer.subscribe([source])
    sender = producer(broker, name)
    done, rounds = 0, 0
    while done < 40:
        messages = consumer.consume(10, PATIENCE_S)
        sender.begin_transaction()
        for message in messages:
            assert message.error() is None
            sender.produce(target, message.value())
        sender.send_offsets_to_transaction(consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), PATIENCE_S)
        rounds += 1
        if rounds % 2:
            sender.abort_transaction(PATIENCE_S)
            back = consumer.committed(consumer.assignment(), PATIENCE_S)
            assert max(0, back[0].offset) == done
            consumer.seek(Place(source, 0, done))
        else:
            sender.commit_transaction(PATIENCE_S)
            done += len(messages)
    assert consumer.committed([Place(source, 0)], PATIENCE_S)[0].offset == 40
    consumer.close()
    assert read(broker, target, 40) == [str(number) for number in range(40)]


@pytest.mark.parametrize("release", [KAFKA_NEW, KAFKA_OLD])
def test_kafkas_performance_test_with_transactions(broker: Server, name: str, release: str) -> None:
    """4.3 uses transactions v2, in which the partition's leader adds the partition; 3.9 adds it itself."""
    create_topic(broker, name)
    flag = "--producer-props"
    written = java.run("kafka-producer-perf-test", "--topic", name, "--num-records", "400", "--record-size", "10", "--throughput", "400",
                       flag, f"bootstrap.servers={broker.address}", "--transactional-id", name, "--transaction-duration-ms", "100",
                       release=release)  # fmt: skip
    assert "400 records sent" in written
    out = java.run("kafka-console-consumer", "--bootstrap-server", broker.address, "--topic", name, "--from-beginning", *COMMITTED,
                   "--max-messages", "400", "--formatter-property", "print.value=true")  # fmt: skip
    assert len(out.splitlines()) == 400


def test_kafkas_tool_describes_and_lists_transactions(broker: Server, name: str) -> None:
    create_topic(broker, name)
    sender = producer(broker, name)
    sender.begin_transaction()
    sender.produce(name, b"open")
    sender.flush(PATIENCE_S)
    tool = ("kafka-transactions", "--bootstrap-server", broker.address)
    described = java.run(*tool, "describe", "--transactional-id", name).split()
    assert described[-1] == f"{name}-0" and {name, "Ongoing"} <= set(described)
    assert name in java.run(*tool, "list")
    sender.abort_transaction(PATIENCE_S)
    assert "CompleteAbort" in java.run(*tool, "describe", "--transactional-id", name)


def test_the_state_on_disk_is_what_kafkas_dump_tool_decodes(start_broker: Callable[..., Server], name: str) -> None:
    broker = start_broker()
    create_topic(broker, name)
    sender = producer(broker, name)
    transaction(sender, name, "a")
    transaction(sender, name, "b", commit=False)
    sender.begin_transaction()
    sender.produce(name, b"open")
    sender.flush(PATIENCE_S)
    broker.stop()
    assert dumped_states(broker.data) == [
        (name, state)
        for state in (S.EMPTY, S.ONGOING, S.PREPARE_COMMIT, S.COMPLETE_COMMIT, S.ONGOING, S.PREPARE_ABORT, S.COMPLETE_ABORT, S.ONGOING)
    ]
    broker.start()
    sender.commit_transaction(PATIENCE_S)
    assert read(broker, name, 2) == ["a", "open"]


def test_an_open_transaction_is_continued_after_kill_9(start_broker: Callable[..., Server], name: str) -> None:
    broker = start_broker()
    create_topic(broker, name)
    sender = producer(broker, name)
    transaction(sender, name, "a")
    sender.begin_transaction()
    sender.produce(name, b"b")
    sender.flush(PATIENCE_S)
    broker.kill()
    broker.start()
    sender.produce(name, b"c")
    sender.commit_transaction(PATIENCE_S)
    assert read(broker, name, 3) == ["a", "b", "c"]
