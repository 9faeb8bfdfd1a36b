"""The ways of transaction markers to the leaders of partitions: a call if this broker leads, otherwise a connection."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred

from txbroker.broker.connections import Connections
from txbroker.cluster.image import ClusterImage
from txbroker.names import TRANSACTIONS_TOPIC, TopicPartition
from txbroker.transactions.marker_queues import Channel, Destination, Unroutable
from txbroker.wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse


class MarkerChannels:
    """Finds the leaders, and opens the channels to them."""

    def __init__(
        self,
        broker_id: int,
        image: ClusterImage,
        connections: Connections,
        listener: str,
        write: Callable[[WriteTxnMarkersRequest], Deferred[WriteTxnMarkersResponse]],
    ) -> None:
        """`listener`: the name of the inter-broker listener. `write` appends the markers of partitions that this broker leads."""
        self._broker_id = broker_id
        self._image = image
        self._connections = connections
        self._listener = listener
        self._write = write

    def leader(self, partition: TopicPartition) -> Destination | Unroutable:
        """The leader of a partition.

        A partition counts as deleted only if the image has `__transaction_state`: before the controller's first request it has nothing.
        """
        known = self._image.partition(*partition)
        if known is None:
            is_known = self._image.topic(TRANSACTIONS_TOPIC) is not None
            return Unroutable.NO_PARTITION if is_known else Unroutable.NO_LEADER
        return self._destination(known.leader) or Unroutable.NO_LEADER

    def live(self) -> set[Destination]:
        """All live brokers."""
        found = map(self._destination, self._image.brokers)
        return {destination for destination in found if destination is not None}

    def open(self, destination: Destination) -> Channel:
        """A channel to a leader."""
        if destination.broker_id == self._broker_id:
            return _OwnChannel(self._write)
        return self._connections.marker_channel(destination)

    def _destination(self, broker_id: int) -> Destination | None:
        endpoint = self._image.endpoint(broker_id, self._listener)
        return None if endpoint is None else Destination(broker_id, endpoint.host, endpoint.port)


class _OwnChannel:
    """This broker leads the partitions."""

    def __init__(self, write: Callable[[WriteTxnMarkersRequest], Deferred[WriteTxnMarkersResponse]]) -> None:
        self._write = write

    def send(self, request: WriteTxnMarkersRequest) -> Deferred[WriteTxnMarkersResponse]:
        """Append the markers."""
        return self._write(request)

    def close(self) -> None:
        """There is nothing to end."""
