"""Where a consumer should read a partition (KIP-392; Kafka's RackAwareReplicaSelector).

With replica.selector.class=RackAwareReplicaSelector a leader sends a consumer that names a rack (Fetch v11+) to a replica in that rack: to
itself if it is there, else to the in-sync replica with the most records. The answer has the replica's id and no records.
"""

from __future__ import annotations

from txbroker.api.fetch_item import NO_PREFERENCE, FetchClient
from txbroker.cluster.image import ClusterImage
from txbroker.cluster.local_replica import CONSUMER
from txbroker.cluster.partition import Partition

RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


class ReadReplicas:
    """Selects replicas. `selector`: replica.selector.class; without one consumers read from leaders."""

    def __init__(self, image: ClusterImage, selector: str | None) -> None:
        self._image = image
        self._by_rack = selector == RACK_AWARE_SELECTOR

    def preferred(self, partition: Partition, client: FetchClient, offset: int) -> int:
        """The id of the replica from which the client should read at `offset`; NO_PREFERENCE: it may read here.

        Replicas count that are in sync, have the offset, and have the listener to which the client has connected.
        """
        if not self._by_rack or not client.rack or client.replica != CONSUMER or not partition.is_leader:
            return NO_PREFERENCE
        brokers = self._image.brokers
        own = brokers.get(partition.broker_id)
        if own is not None and own.rack == client.rack:
            return NO_PREFERENCE
        near = [
            (state.end_offset, state.last_caught_up_s, replica)
            for replica, state in partition.readable_followers(offset)
            if (broker := brokers.get(replica)) is not None and broker.rack == client.rack and client.listener in broker.endpoints
        ]
        return max(near)[2] if near else NO_PREFERENCE
