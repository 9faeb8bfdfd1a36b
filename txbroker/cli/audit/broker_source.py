"""Reads a topic from the leaders of its partitions, with Fetch: raw batches, up to an end that is fixed before the first fetch."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from txbroker.cli.audit.record_rows import Bounds, Chunk
from txbroker.cli.failures import CommandFailed
from txbroker.client.blocking_connection import BlockingConnection
from txbroker.client.client_errors import LOST, ClientError, Closed, RequestFailed
from txbroker.client.client_machine import ClientSettings
from txbroker.client.config_requests import TOPIC_RESOURCE, describe_configs
from txbroker.client.offset_requests import EARLIEST, LATEST, list_offsets
from txbroker.client.topic_leaders import RETRIABLE, Broker
from txbroker.client.topic_metadata import TopicMetadata
from txbroker.errors import ErrorCode
from txbroker.log.aborted_transactions import UNKNOWN_END
from txbroker.log.cleaner.compaction_order import CompactionOrder
from txbroker.log.log_results import AbortedTransaction
from txbroker.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

CLIENT = ClientSettings("txbroker-audit")
FETCH_BYTES = 8 * 1024 * 1024
READ_COMMITTED = 1
RETRY_S, RETRY_FOR_S = 0.2, 30.0
T = TypeVar("T")
_NOTHING = PartitionData(partition_index=-1, error_code=0, high_watermark=-1, records=None)


class BrokerTopic:
    """A topic of a cluster. `committed_only`: up to the last stable offset and without aborted records, else up to the high watermark."""

    def __init__(self, addresses: Sequence[tuple[str, int]], name: str, committed_only: bool) -> None:
        self.name = name
        self._isolation = READ_COMMITTED if committed_only else 0
        self._connections: dict[Broker, BlockingConnection] = {}
        self._topic = TopicMetadata(addresses, name, CLIENT, RETRY_S, create=False)
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

    def order(self) -> CompactionOrder:
        """Which record of a key is the latest, by the topic's configuration; by offset where the broker has no such configuration."""
        keys = ["compaction.strategy", "compaction.strategy.header"]
        try:
            configs = describe_configs(self._topic.call, TOPIC_RESOURCE, self.name, keys)
        except RequestFailed as refused:
            raise RequestFailed(f"{refused.what} (or specify --compaction-strategy)", refused.code, refused.message) from None
        found = {key: value or "" for key, value in configs.items()}
        try:
            return CompactionOrder.of_topic(found.get(keys[0], ""), found.get(keys[1], ""))
        except ValueError:
            raise CommandFailed(f"compaction.strategy={found[keys[0]]} is not known here; specify --compaction-strategy") from None

    def bounds(self) -> Mapping[int, Bounds]:
        """First and end offset of each partition, now."""
        return {index: Bounds(self._offset(index, EARLIEST), self._offset(index, LATEST)) for index in self._leaders.by_partition}

    def read(self, partition: int, offset: int, end: int) -> Chunk | None:
        """Batches from an offset on, or from the first one if that has been deleted meanwhile; None when there is none before the end."""
        while True:
            at = offset
            data = self._patiently(partition, lambda connection, at=at: self._fetch(connection, partition, at))  # type: ignore[misc]
            if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                first = self._offset(partition, EARLIEST)
                if first <= offset:
                    raise CommandFailed(f"partition {partition} of {self.name} has no offset {offset} any more; run this again")
                offset = first
                if offset < end:
                    continue
                return None
            if not data.records:
                if data.high_watermark >= end:
                    return None
                what = f"partition {partition} of {self.name} ends at offset {offset} and not at {end} as before"
                raise CommandFailed(f"{what}: the log was truncated; run this again")
            assert isinstance(data.records, memoryview)
            found = (data.aborted_transactions or ()) if self._isolation else ()
            aborted = [AbortedTransaction(one.producer_id, one.first_offset, UNKNOWN_END, -1) for one in found]
            return Chunk(data.records, offset, aborted)

    def _fetch(self, connection: BlockingConnection, partition: int, offset: int) -> tuple[int, PartitionData]:
        wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
        topic = FetchTopic(topic=self.name, topic_id=self._leaders.topic_id, partitions=[wanted])
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=FETCH_BYTES, isolation_level=self._isolation, topics=[topic])
        answer: FetchResponse = connection.call(request)
        if answer.error_code or not answer.responses:
            return answer.error_code or int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), _NOTHING
        (data,) = answer.responses[0].partitions
        return 0 if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE else data.error_code, data

    def _offset(self, partition: int, timestamp: int) -> int:
        def ask(connection: BlockingConnection) -> tuple[int, int]:
            found = list_offsets(connection.call, self.name, [partition], timestamp, self._isolation)[partition]
            return found.error_code, max(found.offset, 0)

        return self._patiently(partition, ask)

    def _patiently(self, partition: int, ask: Callable[[BlockingConnection], tuple[int, T]]) -> T:
        """Ask the partition's leader, again while the error is retriable or the leader is not known; ClientError after RETRY_FOR_S."""
        deadline_s = time.monotonic() + RETRY_FOR_S
        while True:
            problem: ClientError
            try:
                code, answer = ask(self._connection(partition))
                if not code:
                    return answer
                problem = RequestFailed(f"partition {partition} of {self.name} cannot be read", code)
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
            self._connections[leader] = BlockingConnection(leader.host, leader.port, CLIENT)
        return self._connections[leader]

    def _drop(self, partition: int) -> None:
        leader = self._leaders.by_partition.get(partition)
        if leader in self._connections:
            self._connections.pop(leader).close()
