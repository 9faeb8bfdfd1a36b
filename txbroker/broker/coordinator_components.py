"""The components of a broker that coordinate groups and transactions."""

from __future__ import annotations

import logging
from collections.abc import Callable

from twisted.python.failure import Failure

from txbroker.api.transaction_requests import AddPartitionsToTxnHandler
from txbroker.api.write_txn_markers import WriteTxnMarkersHandler
from txbroker.broker import internal_topics, settings
from txbroker.broker.connections import Connections
from txbroker.broker.environment import Environment
from txbroker.broker.identity import is_clustered
from txbroker.broker.marker_channels import MarkerChannels
from txbroker.broker.transaction_coordinators import TransactionCoordinators
from txbroker.broker.transaction_level import TransactionLevel
from txbroker.cluster.image import ClusterImage, ImageChanges
from txbroker.cluster.producer_ids import ProducerIds, allocate_block
from txbroker.cluster.replicas import Replicas
from txbroker.cluster.tree.interface import Tree
from txbroker.config.resolve import BrokerConfig
from txbroker.groups.coordinator import GroupCoordinator
from txbroker.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from txbroker.purgatory import Purgatory
from txbroker.transactions.coordinator import TransactionCoordinator
from txbroker.transactions.marker_queues import MarkerQueues
from txbroker.transactions.verification import TransactionVerifier

log = logging.getLogger("txbroker.broker")


class CoordinatorComponents:
    """Both coordinators, the ways of markers and questions to other brokers, and the transaction version of the cluster."""

    def __init__(
        self,
        environment: Environment,
        config: BrokerConfig,
        broker_id: int,
        tree: Tree,
        image: ClusterImage,
        replicas: Replicas,
        connections: Connections,
        inter_broker: str,
        appends: Purgatory,
    ) -> None:
        """`inter_broker`: the name of the inter-broker listener. `appends`: where records wait for the in-sync replicas."""
        self.groups = GroupCoordinator(
            environment.reactor,
            environment.now_ms,
            internal_topics.offsets_log(config, replicas, appends, environment.in_worker),
            settings.group_config(config),
            lambda: internal_topics.partition_count(image, OFFSETS_TOPIC),
            environment.unique_id,
        )
        self.next_producer_id = ProducerIds(lambda: allocate_block(tree, broker_id)).next_id
        self.markers = WriteTxnMarkersHandler(replicas, self.groups, appends, environment.now_ms, config.int("request.timeout.ms"))
        alone = not is_clustered(config)
        self.level = TransactionLevel(tree, image, environment.reactor, environment.now_ms, environment.random.random, is_alone=alone)
        self._marker_channels = MarkerChannels(broker_id, image, connections, inter_broker, self.markers.write)
        self.marker_queues = MarkerQueues(environment.reactor, self._marker_channels.leader, self._marker_channels.open)
        self.transactions = TransactionCoordinator(
            environment.reactor,
            environment.now_ms,
            internal_topics.transactions_log(config, replicas, appends, environment.in_worker),
            settings.transaction_config(config),
            lambda: internal_topics.partition_count(image, TRANSACTIONS_TOPIC),
            self.next_producer_id,
            self.marker_queues,
        )
        self.adding = AddPartitionsToTxnHandler(self.transactions, image)
        self._others = TransactionCoordinators(broker_id, image, connections, inter_broker, self.adding.add)
        self.verifier = TransactionVerifier(
            self._others, environment.reactor, lambda: config.boolean("transaction.partition.verification.enable")
        )

    def start(self) -> None:
        """Start the timers."""
        self.groups.start()
        self.transactions.start()

    def stop(self) -> None:
        """Answer the requests that wait, and close the connections."""
        self.groups.stop()
        self.transactions.stop()
        self.verifier.stop()
        self.level.stop()

    def observers(self, changes: ImageChanges) -> list[Callable[[], object]]:
        """What is to be called when the metadata of the cluster has changed."""
        calls: list[Callable[[], object]] = [
            lambda: self.marker_queues.leaders_changed(self._marker_channels.live()),
            lambda: self.verifier.brokers_changed(self._others.live()),
        ]
        if changes.brokers:
            calls.append(self.level.brokers_changed)
        if changes.deleted:
            calls.append(lambda: self.groups.topics_deleted(changes.deleted).addErrback(_not_removed))
        return calls


def _not_removed(failure: Failure) -> None:
    log.error("cannot remove the offsets of deleted topics: %s", failure.getTraceback())
