"""The transactional client of the fault tests, whose library needs help when a coordinator leaves the cluster and returns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Thread

from confluent_kafka import Consumer, TopicPartition
from kafka.protocol.metadata import FindCoordinatorRequest

from tests.cluster_faults.journal import Journal
from tests.cluster_faults.transactions import TransactionalProducing
from tests.support.cluster import Cluster
from tests.support.raw import RawConnection
from tests.support.waiting import PATIENCE_S

GROUP = "group"


def test_offsets_are_sent_to_a_coordinator_that_has_moved_while_its_broker_was_out_of_the_metadata(
    start_cluster: Callable[..., Cluster], name: str, tmp_path: Path
) -> None:
    cluster = start_cluster()
    cluster.create_topic(name)
    # The client may wait for as long as the coordinator would let a transaction of the usual timeout live.
    producer = TransactionalProducing("copier", cluster.bootstrap, Journal(tmp_path)).producer(int(PATIENCE_S * 1000))
    group = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": GROUP}).consumer_group_metadata()

    committed: list[int] = []

    def transaction(number: int) -> None:
        producer.begin_transaction()
        producer.produce(name, b"value")
        producer.send_offsets_to_transaction([TopicPartition(name, 0, number)], group, PATIENCE_S)
        producer.commit_transaction(PATIENCE_S)
        committed.append(number)

    transaction(1)
    coordinator = find_coordinator(cluster)
    cluster.brokers[coordinator].kill()
    cluster.until_leader_is_not(coordinator)
    cluster.until(lambda: coordinator not in producer.list_topics(timeout=PATIENCE_S).brokers, "the client has seen that it is gone")
    cluster.start_brokers([coordinator])
    cluster.until_in_sync()
    second = Thread(target=transaction, args=(2,), daemon=True)  # without the help it does not return
    second.start()
    second.join(PATIENCE_S)
    assert committed == [1, 2]


def find_coordinator(cluster: Cluster) -> int:
    """The broker that coordinates GROUP."""
    with RawConnection(cluster.brokers[1].address) as connection:
        found: int = connection.call(FindCoordinatorRequest(GROUP, 0), 1).node_id
    return found
