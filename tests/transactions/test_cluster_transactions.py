"""Transactions on a cluster of real brokers: coordinators and leaders of partitions that are killed, and a participant that is away."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as Place
from kafka.protocol.admin import CreateTopicsRequest
from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest

from tests.cli.commands import run
from tests.support import raw_transactions as raw
from tests.support.cluster import Cluster
from tests.support.raw import RawConnection
from tests.support.waiting import PATIENCE_S, until

STATE_TOPIC = "__transaction_state"
QUICK: dict[str, str | int] = {"linger.ms": 0, "retry.backoff.ms": 50, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200,
                               "topic.metadata.refresh.interval.ms": 1000, "socket.timeout.ms": 10_000}  # fmt: skip


def producer(cluster: Cluster, transactional_id: str) -> Producer:
    made = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": transactional_id, **QUICK})
    made.init_transactions(PATIENCE_S)
    return made


def until_done(end: Callable[[float], object]) -> None:
    """EndTxn is repeated while its coordinator moves."""

    def attempt() -> bool:
        try:
            end(PATIENCE_S)
        except KafkaException as failure:
            assert failure.args[0].retriable(), failure
            return False
        return True

    until(attempt, "the transaction is ended")


def coordinator(cluster: Cluster, transactional_id: str) -> int:
    def find() -> tuple[int, ...]:
        for server in cluster.serving.values():
            try:
                with RawConnection(server.address) as connection:
                    found = connection.call(FindCoordinatorRequest(key=transactional_id, key_type=CoordinatorType.TRANSACTION), 2)
            except OSError:
                continue
            if not found.error_code and found.node_id in cluster.serving:
                return (int(found.node_id),)
        return ()

    return until(find, "the transactional id has a coordinator")[0]


def read(cluster: Cluster, topic: str, partitions: int, count: int) -> Counter[str]:
    """Committed values until all partitions are read to their ends, and there are `count`."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "unused", "isolation.level": "read_committed",
                         "enable.auto.commit": False, **QUICK})  # fmt: skip
    consumer.assign([Place(topic, partition, 0) for partition in range(partitions)])
    values: Counter[str] = Counter()

    def is_complete() -> bool:
        message = consumer.poll(0.2)
        error = None if message is None else message.error()
        if message is not None and error is None:
            values[(message.value() or b"").decode()] += 1
            return False
        assert error is None or error.code() in (KafkaError._PARTITION_EOF, KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT)
        return values.total() >= count

    until(is_complete, f"{count} values are read")
    consumer.close()
    return values


def test_transactions_survive_their_coordinators_and_leaders(start_cluster: Callable[..., Cluster], name: str) -> None:
    cluster = start_cluster({"default.replication.factor": "3"})
    cluster.create_topic(name, 3)
    sender = producer(cluster, name)
    cluster.until_in_sync(name, STATE_TOPIC)
    expected: Counter[str] = Counter()
    for number, victim_of in enumerate((coordinator, lambda cluster, _: cluster.leader(name, 1), coordinator)):
        sender.begin_transaction()
        for partition in range(3):
            sender.produce(name, f"{number}".encode(), partition=partition)
        sender.flush(PATIENCE_S)
        victim = victim_of(cluster, name)
        cluster.brokers[victim].kill()
        for partition in range(3):
            sender.produce(name, f"{number} later".encode(), partition=partition)
        sender.flush(PATIENCE_S)
        if number == 1:
            until_done(sender.abort_transaction)
        else:
            until_done(sender.commit_transaction)
            expected.update({f"{number}": 3, f"{number} later": 3})
        cluster.brokers[victim].start()
        cluster.until_registered()
        cluster.until_in_sync(name, STATE_TOPIC)
    assert read(cluster, name, 3, expected.total()) == expected


def test_a_participant_that_is_away_and_a_coordinator_that_moves(start_cluster: Callable[..., Cluster], name: str) -> None:
    """The transaction is decided; the next one begins when its last partition has the marker, which the next coordinator sends."""
    cluster = start_cluster({"transaction.state.log.min.isr": "1"})
    cluster.create_topic(f"{name}-everywhere", 1)
    sender = producer(cluster, name)
    cluster.until_in_sync(STATE_TOPIC)
    first = coordinator(cluster, name)
    away = next(broker_id for broker_id in cluster.brokers if broker_id != first)
    topic = CreateTopicsRequest.CreatableTopic
    one = topic(name=name, num_partitions=-1, replication_factor=-1, configs=[],
                assignments=[topic.CreatableReplicaAssignment(partition_index=0, broker_ids=[away])])  # fmt: skip
    with RawConnection(cluster.brokers[cluster.controller()].address) as connection:
        (created,) = connection.call(CreateTopicsRequest(topics=[one], timeout_ms=30_000, validate_only=False), 5).topics
    assert created.error_code == 0
    cluster.leader(name)
    sender.begin_transaction()
    sender.produce(name, b"there", partition=0)
    sender.produce(f"{name}-everywhere", b"here", partition=0)
    sender.flush(PATIENCE_S)
    cluster.brokers[away].kill()
    until_done(sender.commit_transaction)
    cluster.brokers[first].kill()
    cluster.brokers[away].start()
    cluster.until_registered()
    again = producer(cluster, name)  # waits for the end of the transaction
    assert coordinator(cluster, name) != first
    assert read(cluster, name, 1, 1) == {"there": 1}
    again.begin_transaction()
    again.produce(name, b"next", partition=0)
    until_done(again.commit_transaction)
    assert read(cluster, name, 1, 2) == {"there": 1, "next": 1}


def test_an_unclean_election_that_cuts_a_marker_leaves_a_transaction_that_is_found_and_aborted(
    start_cluster: Callable[..., Cluster], name: str
) -> None:
    cluster = start_cluster({"transaction.state.log.min.isr": "1", "auto.leader.rebalance.enable": "false"})
    controller = cluster.controller()
    first, second = sorted(cluster.brokers.keys() - {controller})
    server = "--bootstrap-server", cluster.brokers[controller].address
    run("topics", *server, "--create", "--topic", name, "--replica-assignment", f"{first}:{second}",
        "--config", "unclean.leader.election.enable=true")  # fmt: skip
    sender = producer(cluster, name)
    cluster.until_in_sync(name, STATE_TOPIC)
    sender.begin_transaction()
    sender.produce(name, b"on both", partition=0)
    sender.flush(PATIENCE_S)
    cluster.brokers[second].kill()
    cluster.until_isr(name, 0, first)
    until_done(sender.commit_transaction)
    assert read(cluster, name, 1, 1) == {"on both": 1}
    cluster.brokers[first].kill()
    cluster.until(lambda: cluster.partitions(name)[0].leader < 0, "no replica in sync is left")
    cluster.start_brokers([second])
    cluster.until(lambda: cluster.partitions(name)[0].leader == second, "the replica without the marker leads")
    run("produce", *server, "--topic", name, stdin="later\n")
    with RawConnection(cluster.brokers[second].address) as connection:
        assert (raw.latest(connection, name), raw.latest(connection, name, isolation=raw.READ_UNCOMMITTED)) == (0, 2)
    (found,) = run("transactions", *server, "--json", "find-hanging", "--topic", name, "--max-transaction-timeout", "0")[0].splitlines()
    assert (json.loads(found)["partition"], json.loads(found)["start_offset"]) == (0, 0)
    run("transactions", *server, "abort", "--topic", name, "--partition", "0", "--start-offset", "0")
    assert read(cluster, name, 1, 1) == {"later": 1}
    cluster.start_brokers([first])
    cluster.until_in_sync(name)
    again = producer(cluster, name)
    again.begin_transaction()
    again.produce(name, b"next", partition=0)
    until_done(again.commit_transaction)
    assert read(cluster, name, 1, 2) == {"later": 1, "next": 1}
