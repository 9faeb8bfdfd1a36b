"""Reads a topic from the leaders of its partitions: offsets, configuration and raw batches, with retries while an error passes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from txbroker.client.blocking_connection import BlockingConnection, connect_to_broker
from txbroker.client.client_errors import LOST, ClientError, Closed, RequestFailed
from txbroker.client.client_machine import ClientSettings
from txbroker.client.config_requests import TOPIC_RESOURCE, describe_configs
from txbroker.client.offset_requests import LATEST, list_offsets
from txbroker.client.topic_leaders import RETRIABLE, Broker
from txbroker.client.topic_metadata import TopicMetadata
from txbroker.errors import ErrorCode
from txbroker.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from txbroker.wire.messages.metadata import MetadataRequest

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
FETCH_BYTES = 8 * 1024 * 1024
RETRY_S, RETRY_FOR_S = 0.2, 30.0
T = TypeVar("T")
_NO_DATA = PartitionData(partition_index=-1, error_code=0, high_watermark=-1, records=None)


class TopicReader:
    """Connected to the first of `addresses` that answers, with the topic's leaders known. ClientError from every method.

    `isolation`: READ_COMMITTED reads up to the last stable offset, READ_UNCOMMITTED up to the high watermark.
    """

    def __init__(self, addresses: Sequence[tuple[str, int]], name: str, settings: ClientSettings, isolation: int) -> None:
        self.name = name
        self._settings = settings
        self._isolation = isolation
        self._connections: dict[Broker, BlockingConnection] = {}
        self._topic = TopicMetadata(addresses, name, settings, RETRY_S, create=False)
        try:
            self._leaders = self._topic.leaders()
        except BaseException:
            self._topic.close()
            raise

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._topic.close()

    @property
    def topic_id(self) -> bytes:
        """The topic's id; NULL_TOPIC_ID from brokers before 2.8."""
        return self._leaders.topic_id

    @property
    def partitions(self) -> Sequence[int]:
        """The partitions' numbers, in order."""
        return list(self._leaders.by_partition)

    @property
    def leaders(self) -> Mapping[int, int]:
        """By partition the id of the broker that leads it, as far as there is one."""
        return {index: leader.node_id for index, leader in self._leaders.by_partition.items() if leader is not None}

    def cluster_id(self) -> str | None:
        """The cluster's id, if the broker shows it."""
        found: str | None = self._topic.call(MetadataRequest(topics=[], allow_auto_topic_creation=False)).cluster_id
        return found

    def configs(self, keys: Sequence[str], partition: int | None = None) -> Mapping[str, str | None]:
        """The values of these keys, without those that the broker does not have; RequestFailed.

        With a partition its leader is asked, otherwise any broker.
        """
        if partition is None:
            return describe_configs(self._topic.call, TOPIC_RESOURCE, self.name, keys)
        return self.ask_leader(partition, lambda leader: (0, describe_configs(leader.call, TOPIC_RESOURCE, self.name, keys)))

    def offset(self, partition: int, timestamp: int, isolation: int | None = None) -> int:
        """The offset by ListOffsets' `timestamp`, EARLIEST or LATEST; with the reader's isolation level unless another is given."""
        level = self._isolation if isolation is None else isolation

        def ask(leader: BlockingConnection) -> tuple[int, int]:
            found = list_offsets(leader.call, self.name, [partition], timestamp, level)[partition]
            return found.error_code, max(found.offset, 0)

        return self.ask_leader(partition, ask)

    def offset_since(self, partition: int, timestamp_ms: int) -> int:
        """The offset of the first record with this timestamp or a later one; the partition's end if there is none."""

        def ask(leader: BlockingConnection) -> tuple[int, int]:
            found = list_offsets(leader.call, self.name, [partition], timestamp_ms, self._isolation)[partition]
            return found.error_code, found.offset

        found = self.ask_leader(partition, ask)
        return found if found >= 0 else self.offset(partition, LATEST)

    def fetch(self, partition: int, offset: int, bytes_max: int = FETCH_BYTES) -> PartitionData:
        """Batches from an offset on; the first one whole. `error_code` is 0 or OFFSET_OUT_OF_RANGE."""
        position = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=bytes_max)
        topic = FetchTopic(topic=self.name, topic_id=self._leaders.topic_id, partitions=[position])
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=bytes_max, isolation_level=self._isolation, topics=[topic])

        def ask(leader: BlockingConnection) -> tuple[int, PartitionData]:
            answer: FetchResponse = leader.call(request)
            if answer.error_code or not answer.responses:
                return answer.error_code or int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), _NO_DATA
            (data,) = answer.responses[0].partitions
            return 0 if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE else data.error_code, data

        return self.ask_leader(partition, ask)

    def ask_leader(self, partition: int, ask: Callable[[BlockingConnection], tuple[int, T]], what: str = "cannot be read") -> T:
        """Ask the partition's leader, again while the error is retriable or the leader is not known; ClientError after RETRY_FOR_S.

        `ask` returns an error code and an answer. `what`: the problem, for the error.
        """
        deadline_s = time.monotonic() + RETRY_FOR_S
        while True:
            problem: ClientError
            try:
                code, answer = ask(self._connection(partition))
                if not code:
                    return answer
                problem = RequestFailed(f"partition {partition} of {self.name} {what}", code)
                retriable = code in RETRIABLE
            except LOST as lost:
                self._drop(partition)
                problem, retriable = lost, True
            if not retriable or time.monotonic() > deadline_s:
                raise problem
            time.sleep(RETRY_S)
            self._leaders = self._topic.refresh() or self._leaders

    def _connection(self, partition: int) -> BlockingConnection:
        leader = self._leaders.by_partition.get(partition)
        if leader is None:
            raise Closed(f"partition {partition} of {self.name} has no leader")
        if leader not in self._connections:
            self._connections[leader] = connect_to_broker(leader, self._settings)
        return self._connections[leader]

    def _drop(self, partition: int) -> None:
        leader = self._leaders.by_partition.get(partition)
        if leader in self._connections:
            self._connections.pop(leader).close()
