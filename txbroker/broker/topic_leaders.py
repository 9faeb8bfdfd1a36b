"""Appends the broker's own records to a topic: in this broker if it leads the partition, otherwise by a connection to the leader."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twisted.internet.defer import Deferred, fail

from txbroker.broker.audit_queue import Line
from txbroker.broker.connections import Connections
from txbroker.broker.partition_state_log import append_batch
from txbroker.cluster.image import ClusterImage, Endpoint
from txbroker.cluster.replicas import Replicas
from txbroker.errors import BrokerError, ErrorCode
from txbroker.log.log_results import Origin
from txbroker.peers.broker_link import BrokerLink
from txbroker.purgatory import Purgatory
from txbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from txbroker.wire.records import Record, build

TIMEOUT_MS = 15_000  # for the in-sync replicas: below controller.socket.timeout.ms, that of a connection


class TopicLeaders:
    """Implements `audit_topic.Leaders` for a topic."""

    def __init__(
        self,
        topic: str,
        broker_id: int,
        image: ClusterImage,
        connections: Connections,
        listener: str,
        replicas: Replicas,
        purgatory: Purgatory,
        now_ms: Callable[[], int],
        create: Callable[[str], None],
    ) -> None:
        """`listener`: the name of the inter-broker listener. `purgatory`: where appends of this broker wait for the in-sync replicas.

        `create` creates a topic if that is allowed.
        """
        self._topic = topic
        self._broker_id = broker_id
        self._image = image
        self._connections = connections
        self._listener = listener
        self._replicas = replicas
        self._purgatory = purgatory
        self._now_ms = now_ms
        self._create = create
        self._links: dict[int, tuple[Endpoint, BrokerLink]] = {}

    def partition_count(self) -> int:
        """0 while the topic does not exist, or this broker has no metadata."""
        topic = self._image.topic(self._topic)
        return 0 if topic is None else len(topic.partitions)

    def create(self) -> None:
        """Create the topic, if it is known not to exist, and creation is allowed."""
        if self._image.is_complete:
            self._create(self._topic)

    def append(self, partition: int, lines: Sequence[Line]) -> Deferred[None]:
        """Append one batch with acks=all. BrokerError, ClientError."""
        batch = build([Record(offset, line.time_ms, line.key, line.value) for offset, line in enumerate(lines)])
        topic, known = self._image.topic(self._topic), self._image.partition(self._topic, partition)
        if topic is None or known is None:
            return fail(BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        if known.leader == self._broker_id:
            return self._append(partition, batch)
        endpoint = self._image.endpoint(known.leader, self._listener)
        if endpoint is None:
            return fail(BrokerError(ErrorCode.LEADER_NOT_AVAILABLE))
        data = TopicProduceData(
            name=self._topic, topic_id=topic.topic_id, partition_data=[PartitionProduceData(index=partition, records=memoryview(batch))]
        )
        request = ProduceRequest(acks=-1, timeout_ms=TIMEOUT_MS, topic_data=[data])
        return self._link(known.leader, endpoint).send(request).addCallback(_check)

    def close(self) -> None:
        """End the connections."""
        links, self._links = self._links, {}
        for _, link in links.values():
            link.close()

    def _append(self, partition: int, batch: bytes) -> Deferred[None]:
        try:
            own = self._replicas.get(self._topic, partition)
        except BrokerError as error:
            return fail(error)
        return append_batch(own, batch, self._now_ms(), self._purgatory, TIMEOUT_MS, Origin.CLIENT)

    def _link(self, broker_id: int, endpoint: Endpoint) -> BrokerLink:
        found = self._links.get(broker_id)
        if found is not None and found[0] == endpoint:
            return found[1]
        if found is not None:
            found[1].close()
        link = self._connections.link(endpoint)
        self._links[broker_id] = endpoint, link
        return link


def _check(response: ProduceResponse) -> None:
    """BrokerError with the error of the only partition."""
    codes = [(part.error_code, part.error_message) for topic in response.responses for part in topic.partition_responses]
    code, message = codes[0] if codes else (int(ErrorCode.UNKNOWN_SERVER_ERROR), None)
    if code:
        known = ErrorCode(code) if code in ErrorCode.__members__.values() else ErrorCode.UNKNOWN_SERVER_ERROR
        raise BrokerError(known, *([message] if message else []))
