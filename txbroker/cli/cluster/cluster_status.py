"""What the brokers of a cluster say about it: who answers, who is the controller, and the leaders, ISRs and lags of all partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from txbroker.client.blocking_connection import BlockingConnection
from txbroker.client.client_errors import ClientError
from txbroker.client.client_machine import ClientSettings
from txbroker.client.offset_requests import DEBUGGING_REPLICA, LATEST
from txbroker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic
from txbroker.wire.messages.metadata import MetadataRequest, MetadataResponse

# Brokers on this machine answer at once, unless they hang.
SETTINGS = ClientSettings(client_id="txbroker-cluster", connect_timeout_s=1.0, request_timeout_s=2.0)
NO_BROKER = -1
EndOffsets = Mapping[tuple[str, int], int]


class PartitionStatus(NamedTuple):
    """One partition. `leader` is -1 if there is none. `behind`: records that a follower lacks, by its id; without those not known."""

    topic: str
    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    behind: Mapping[int, int]

    @property
    def in_sync(self) -> bool:
        """Whether it has a leader, and all replicas are in sync."""
        return self.leader != NO_BROKER and set(self.isr) >= set(self.replicas)


class ClusterStatus(NamedTuple):
    """The answers of the brokers at one time. `controller` is -1 if there is none.

    `answering` are the ids of the brokers that answered, `listed` those in the cluster's metadata.
    """

    answering: frozenset[int] = frozenset()
    listed: frozenset[int] = frozenset()
    controller: int = NO_BROKER
    partitions: tuple[PartitionStatus, ...] = ()


class StatusReader:
    """Asks brokers, by their ids, all at the same time, on connections that it keeps."""

    def __init__(self, addresses: Mapping[int, tuple[str, int]]) -> None:
        self._addresses = addresses
        self._connections: dict[int, BlockingConnection] = {}
        self._threads = ThreadPoolExecutor(len(addresses))

    def close(self) -> None:
        """Close the connections."""
        self._threads.shutdown()
        for connection in self._connections.values():
            connection.close()

    def read(self) -> ClusterStatus:
        """The status now; takes as long as a broker that does not answer may take."""
        answers: dict[int, MetadataResponse] = {
            broker_id: answer
            for broker_id, answer in zip(self._addresses, self._threads.map(self._metadata, self._addresses), strict=True)
            if answer is not None
        }
        if not answers:
            return ClusterStatus()
        # The controller's own metadata is the newest.
        newest = next((answer for broker_id, answer in answers.items() if answer.controller_id == broker_id), next(iter(answers.values())))
        ends = dict(zip(answers, self._threads.map(lambda broker_id: self._end_offsets(broker_id, newest), answers), strict=True))
        listed = frozenset(broker.node_id for broker in newest.brokers)
        return ClusterStatus(frozenset(answers), listed, newest.controller_id, tuple(_partitions(newest, ends)))

    def _metadata(self, broker_id: int) -> MetadataResponse | None:
        response: MetadataResponse | None = self._call(broker_id, MetadataRequest(topics=None, allow_auto_topic_creation=False))
        return response

    def _end_offsets(self, broker_id: int, metadata: MetadataResponse) -> EndOffsets:
        topics = [
            ListOffsetsTopic(name=topic.name, partitions=[
                ListOffsetsPartition(partition_index=part.partition_index, timestamp=LATEST)
                for part in topic.partitions if broker_id in part.replica_nodes
            ])
            for topic in metadata.topics if topic.name is not None
        ]  # fmt: skip
        request = ListOffsetsRequest(replica_id=DEBUGGING_REPLICA, topics=[topic for topic in topics if topic.partitions])
        response: ListOffsetsResponse | None = self._call(broker_id, request) if request.topics else None
        return {
            (topic.name, part.partition_index): part.offset
            for topic in (response.topics if response is not None else ())
            for part in topic.partitions
            if part.error_code == 0
        }

    def _call(self, broker_id: int, request: Any) -> Any:
        """The response; None if the broker does not answer."""
        try:
            connection = self._connections.get(broker_id)
            if connection is None:
                connection = self._connections[broker_id] = BlockingConnection(*self._addresses[broker_id], SETTINGS)
            return connection.call(request)
        except ClientError:
            failed = self._connections.pop(broker_id, None)
            if failed is not None:
                failed.close()
            return None


def _partitions(metadata: MetadataResponse, ends: Mapping[int, EndOffsets]) -> Iterable[PartitionStatus]:
    for topic in sorted(metadata.topics, key=lambda topic: topic.name or ""):
        for part in sorted(topic.partitions, key=lambda part: part.partition_index):
            key = topic.name or "", part.partition_index
            end = ends.get(part.leader_id, {}).get(key)
            followers = [replica for replica in part.replica_nodes if replica != part.leader_id and key in ends.get(replica, {})]
            # The leader was asked at another moment than its followers.
            behind = {} if end is None else {replica: max(end - ends[replica][key], 0) for replica in followers}
            yield PartitionStatus(*key, part.leader_id, tuple(part.replica_nodes), tuple(part.isr_nodes), behind)
