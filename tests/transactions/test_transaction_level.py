"""The version of transactions that clients may use, by the registrations of the brokers (KIP-890)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kafka.protocol.metadata import ApiVersionsRequest
from twisted.internet.defer import fail
from twisted.internet.task import Clock

from tests.support import java
from tests.support.broker import BrokerProcess
from tests.support.cluster import Cluster
from tests.support.fakes.turns import Turns
from tests.support.kafka import KafkaMember
from tests.support.raw import RawConnection
from tests.transactions.test_cluster_transactions import read
from txbroker.broker.transaction_level import RETRY_S, TransactionLevel
from txbroker.cluster import node_paths
from txbroker.cluster.broker_ids import create_structure
from txbroker.cluster.image import ClusterImage
from txbroker.cluster.node_data import BrokerRegistration
from txbroker.cluster.tree.interface import ConnectionLost, Refused
from txbroker.cluster.tree.memory import MemoryTrees
from txbroker.wire.messages.update_metadata import UpdateMetadataBroker, UpdateMetadataRequest

OURS, KAFKA = BrokerProcess.kind, KafkaMember.kind
NOW_MS = 1_700_000_000_000


class Levels:
    """A broker that reads the registrations, and a tree that has them."""

    def __init__(self, *, is_alone: bool = False) -> None:
        self.turns = Turns()
        self.trees = MemoryTrees(self.turns.call_soon)
        self.tree = self.trees.session()
        self.turns.result(create_structure(self.tree))
        self.image = ClusterImage()
        self.clock = Clock()
        self.level = TransactionLevel(self.tree, self.image, self.clock, lambda: NOW_MS, lambda: 0.5, is_alone=is_alone)

    def registered(self, versions: dict[int, int]) -> tuple[int, int]:
        """The level and its epoch with these brokers, each with the version that it serves."""
        for broker_id, version in versions.items():
            if broker_id not in self.image.brokers:
                data = BrokerRegistration((), transaction_version=version).encode(NOW_MS)
                self.turns.result(self.tree.create(node_paths.broker(broker_id), data))
        brokers = [UpdateMetadataBroker(id=broker_id, endpoints=[]) for broker_id in versions]
        self.image.apply(UpdateMetadataRequest(controller_id=1, controller_epoch=1, topic_states=[], live_brokers=brokers))
        self.level.brokers_changed()
        self.turns.run()
        return self.level.finalized


def test_clients_may_use_what_every_broker_serves() -> None:
    levels = Levels()
    assert levels.level.finalized == (0, -1)
    assert levels.registered({1: 2}) == (2, NOW_MS)
    assert levels.registered({1: 2, 2: 2}) == (2, NOW_MS), "nothing has changed for clients"
    assert levels.registered({1: 2, 2: 2, 3: 0}) == (0, NOW_MS + 1), "an older level is replaced by a newer one, although the clock stands"
    assert levels.registered({1: 2, 2: 2}) == (2, NOW_MS + 2)


def test_a_broker_alone_needs_no_registrations() -> None:
    assert Levels(is_alone=True).level.finalized == (2, 0)


@pytest.mark.parametrize("error", [ConnectionLost("/"), Refused("/"), KeyError("a defect")])
def test_the_registrations_are_read_again_when_they_could_not_be_read(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    levels = Levels()
    levels.registered({1: 2})
    with monkeypatch.context() as away:
        away.setattr(levels.tree, "get", lambda path: fail(error))
        assert levels.registered({1: 2, 2: 0}) == (2, NOW_MS)
    levels.clock.advance(RETRY_S)
    levels.turns.run()
    assert levels.level.finalized == (0, NOW_MS + 1)


def finalized(cluster: Cluster, broker_id: int) -> dict[str, int]:
    """The features that a broker shows to clients."""
    with RawConnection(cluster.brokers[broker_id].address) as connection:
        answer = connection.call(ApiVersionsRequest(client_software_name="raw", client_software_version="1"), 3)
    return {feature.name: feature.max_version_level for feature in answer.finalized_features}


def test_transactions_with_a_broker_of_kafka_in_the_cluster_and_without_it(start_cluster: Callable[..., Cluster], name: str) -> None:
    """Kafka's producer of 4.3 uses transactions v2 only while it may: Kafka 3.9 leads partitions and may be the coordinator."""
    cluster = start_cluster(kinds=(OURS, OURS, KAFKA))
    cluster.create_topic(name, 3)

    def write(total: int) -> None:
        java.run("kafka-producer-perf-test", "--topic", name, "--num-records", "60", "--record-size", "10", "--throughput", "200",
                 "--producer-props", f"bootstrap.servers={cluster.bootstrap}", "batch.size=20", "--transactional-id", name,
                 "--transaction-duration-ms", "50")  # fmt: skip
        assert read(cluster, name, 3, total).total() == total

    assert [finalized(cluster, broker_id) for broker_id in (1, 2)] == [{}, {}]
    write(60)
    cluster.brokers[3].stop()
    cluster.until(lambda: all(finalized(cluster, broker_id) == {"transaction.version": 2} for broker_id in (1, 2)), "transactions v2")
    write(120)
