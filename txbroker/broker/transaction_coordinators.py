"""The way from a partition's leader to the coordinator of a transaction: a call if this broker coordinates it, otherwise a connection."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from twisted.internet.defer import Deferred

from txbroker.broker.connections import Connections
from txbroker.cluster.image import ClusterImage, Endpoint
from txbroker.names import TRANSACTIONS_TOPIC, coordinator_partition
from txbroker.transactions.verification import Link
from txbroker.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse

OWN = "this broker"


class TransactionCoordinators:
    """Satisfies `transactions.verification.Coordinators`."""

    def __init__(
        self,
        broker_id: int,
        image: ClusterImage,
        connections: Connections,
        listener: str,
        add: Callable[[AddPartitionsToTxnRequest], Deferred[AddPartitionsToTxnResponse]],
    ) -> None:
        """`listener`: the name of the inter-broker listener. `add` serves a request if this broker is the coordinator."""
        self._broker_id = broker_id
        self._image = image
        self._connections = connections
        self._listener = listener
        self._add = add

    def find(self, transactional_id: str) -> Hashable | None:
        """The leader of the id's partition of `__transaction_state`."""
        topic = self._image.topic(TRANSACTIONS_TOPIC)
        if topic is None:
            return None
        partition = topic.partitions.get(coordinator_partition(transactional_id, len(topic.partitions)))
        if partition is None:
            return None
        return OWN if partition.leader == self._broker_id else self._image.endpoint(partition.leader, self._listener)

    def live(self) -> set[Hashable]:
        """All that `find` may return now."""
        endpoints = (self._image.endpoint(broker_id, self._listener) for broker_id in self._image.brokers)
        return {OWN, *(endpoint for endpoint in endpoints if endpoint is not None)}

    def open(self, broker: Hashable) -> Link:
        """A link to a broker that `find` has returned."""
        return self._connections.link(broker) if isinstance(broker, Endpoint) else _OwnLink(self._add)


class _OwnLink:
    """This broker is the coordinator."""

    def __init__(self, add: Callable[[AddPartitionsToTxnRequest], Deferred[AddPartitionsToTxnResponse]]) -> None:
        self._add = add

    def send(self, request: AddPartitionsToTxnRequest) -> Deferred[AddPartitionsToTxnResponse]:
        """Fires with the response."""
        return self._add(request)

    def close(self) -> None:
        """There is nothing to end."""
