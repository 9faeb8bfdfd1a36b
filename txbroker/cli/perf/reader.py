"""The load of `perf-consume`: one fetch in flight to each leader, and the next one sent before the records of the last are counted."""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from txbroker.cli.perf.settings import ConsumerSettings
from txbroker.client.blocking_connection import connect_to_broker
from txbroker.client.client_errors import LOST, ConnectionFailed, RequestFailed
from txbroker.client.client_machine import ClientSettings, Completed
from txbroker.client.offset_requests import EARLIEST, LATEST, list_offsets
from txbroker.client.pipelined_connection import PipelinedConnection
from txbroker.client.topic_leaders import RETRIABLE, Broker
from txbroker.client.topic_metadata import TopicMetadata
from txbroker.console.failures import CommandFailed
from txbroker.errors import BrokerError, ErrorCode
from txbroker.wire.batch import BatchHeader
from txbroker.wire.entries import EntryHeader, Scan, read_records
from txbroker.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from txbroker.wire.sizes import content_size

# Of one batch, decompressed; the limit of the broker itself.
BATCH_BYTES_MAX = 256 * 1024 * 1024
RETRY_FOR_S = 30.0
BACKOFF_S_MIN = 0.01

Counted = Callable[[int, int], None]
"""Called with a number of records, and the bytes of their keys and values."""
_Offsets = Mapping[int, int]
"""The offsets that a fetch requested, by partition."""


@dataclass(slots=True)
class _Partition:
    index: int
    leader: Broker | None
    offset: int = -1
    """The next offset to fetch; -1 until the leader was asked for it."""


class _Entry(NamedTuple):
    """A log entry at a position of a buffer; its records from offset `start` on count."""

    view: memoryview
    position: int
    header: EntryHeader
    start: int


class Reader:
    """Reads partitions of a topic from their beginnings or ends, or from given offsets; calls `counted` for what it read."""

    def __init__(self, topic: TopicMetadata, settings: ConsumerSettings, counted: Counted) -> None:
        self._topic = topic
        self._settings = settings
        timeout_s = settings.request_timeout_s + settings.max_wait_ms / 1000
        self._client_settings = ClientSettings(settings.client_id, request_timeout_s=timeout_s, in_flight_max=1, security=settings.security)
        self._counted = counted
        topic.check_supported(FetchRequest)
        leaders = topic.leaders()
        self._topic_id = leaders.topic_id
        self._partitions = {index: _Partition(index, leader) for index, leader in leaders.by_partition.items()}
        self._assigned = list(self._partitions.values())
        self._connections: dict[Broker, PipelinedConnection[_Offsets]] = {}
        self._selector = selectors.DefaultSelector()
        self._refresh_at_s: float | None = None
        self._failing_since_s: float | None = None
        self._turn = 0
        self.fetches = 0

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        self._selector.close()

    def assign(self, offsets: Mapping[int, int | None]) -> None:
        """Read these partitions from these offsets; None: from where auto.offset.reset says. Without a call, all partitions are read."""
        chosen = []
        for index, offset in offsets.items():
            partition = self._partitions.get(index)
            if partition is not None:
                partition.offset = -1 if offset is None else offset
                chosen.append(partition)
        self._assigned = chosen

    @property
    def assigned(self) -> bool:
        """Whether there is anything to read."""
        return bool(self._assigned)

    def offsets(self) -> dict[int, int]:
        """The end of what was counted of each assigned partition."""
        return {partition.index: partition.offset for partition in self._assigned if partition.offset >= 0}

    def poll(self, wait_s: float) -> None:
        """Fetch where nothing is in flight, and count what comes within this time; CommandFailed or ClientError if retries do not help."""
        now_s = time.monotonic()
        self._refresh_leaders(now_s)
        if self._refresh_at_s is None:
            self._find_offsets()
        if self._refresh_at_s is None:
            for leader in {partition.leader for partition in self._assigned if partition.leader is not None}:
                self._fetch(leader, now_s)
        for key, events in self._selector.select(wait_s):
            self._serve(key.data, events)
        self._check_deadlines(time.monotonic())

    # --- fetching ---

    def _serve(self, leader: Broker, events: int) -> None:
        connection = self._connections.get(leader)
        if connection is None:
            return
        try:
            if events & selectors.EVENT_WRITE:
                connection.write()
            if events & selectors.EVENT_READ:
                for completed in connection.read():
                    self._handle(leader, completed)
        except LOST as problem:
            self._lost(leader, problem)
            return
        if leader in self._connections:
            self._watch(connection, leader)

    def _fetch(self, leader: Broker, now_s: float) -> None:
        connection = self._connections.get(leader) or self._connect(leader)
        if connection is None or not connection.machine.ready:
            return
        mine = [partition for partition in self._assigned if partition.leader == leader and partition.offset >= 0]
        if not mine:
            return
        # Another partition comes first each time: the first ones may fill the response.
        self._turn += 1
        start = self._turn % len(mine)
        partitions = [
            FetchPartition(partition=p.index, fetch_offset=p.offset, partition_max_bytes=self._settings.partition_bytes)
            for p in (*mine[start:], *mine[:start])
        ]
        request = FetchRequest(
            max_wait_ms=self._settings.max_wait_ms,
            min_bytes=self._settings.min_bytes,
            max_bytes=self._settings.fetch_bytes,
            topics=[FetchTopic(topic=self._topic.topic, topic_id=self._topic_id, partitions=partitions)],
        )
        self.fetches += 1
        try:
            connection.send(request, {partition.index: partition.offset for partition in mine}, now_s)
        except LOST as problem:
            self._lost(leader, problem)
            return
        self._watch(connection, leader)

    def _handle(self, leader: Broker, completed: Completed[_Offsets]) -> None:
        response: FetchResponse = completed.response()
        now_s = time.monotonic()
        if response.error_code:
            self._failed(response.error_code, None, now_s)
            return
        found: list[_Entry] = []
        for topic in response.responses:
            for data in topic.partitions:
                partition = self._partitions.get(data.partition_index)
                # Another assignment may have moved the offset since the request.
                if partition is not None and completed.context.get(partition.index) == partition.offset:
                    self._take(partition, data, found, now_s)
        if self._refresh_at_s is None:
            self._failing_since_s = None
            # Before counting: the broker works meanwhile. Sending does not touch the buffer that `found` refers to.
            self._fetch(leader, now_s)
        for entry in found:
            self._count(*entry)

    def _take(self, partition: _Partition, data: PartitionData, found: list[_Entry], now_s: float) -> None:
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            partition.offset = -1
            return
        if data.error_code:
            self._failed(data.error_code, partition, now_s)
            return
        if not data.records:
            return
        view = data.records
        assert isinstance(view, memoryview)
        scan = Scan(view, check_crc=self._settings.check_crcs)
        start = partition.offset
        for position, header in scan:
            if header.last_offset >= start:
                found.append(_Entry(view, position, header, start))
                partition.offset = header.last_offset + 1
        # The last entry of a response is often incomplete. Where no entry is complete, it is too large or damaged.
        if scan.problem and partition.offset == start:
            what = f"partition {partition.index} of {self._topic.topic} cannot be read at offset {partition.offset}"
            raise CommandFailed(f"{what}: {scan.problem}; raise --fetch-size, or look at it with `txbroker dump-log`")

    def _count(self, view: memoryview, position: int, header: EntryHeader, start: int) -> None:
        try:
            if isinstance(header, BatchHeader) and (header.base_offset >= start or header.control):
                self._counted(*content_size(view, position, header, BATCH_BYTES_MAX))
                return
            inside = [record for record in read_records(view, position, header, BATCH_BYTES_MAX) if record.offset >= start]
            self._counted(len(inside), sum(len(record.key or b"") + len(record.value or b"") for record in inside))
        except BrokerError as error:
            what = f"a batch of {self._topic.topic} at offset {header.last_offset} cannot be read: {error}"
            raise CommandFailed(f"{what}; look at it with `txbroker dump-log`") from None

    # --- offsets, leaders, connections ---

    def _find_offsets(self) -> None:
        """Ask leaders for the first or the end offset of their partitions that have no offset yet."""
        unknown = [partition for partition in self._assigned if partition.offset < 0 and partition.leader is not None]
        for leader in {partition.leader for partition in unknown}:
            assert leader is not None
            partitions = [partition.index for partition in unknown if partition.leader == leader]
            timestamp = LATEST if self._settings.from_latest else EARLIEST
            try:
                with connect_to_broker(leader, self._client_settings) as connection:
                    offsets = list_offsets(connection.call, self._topic.topic, partitions, timestamp)
            except LOST as problem:
                self._retry_later(str(problem), time.monotonic())
                return
            for index, found in offsets.items():
                if found.error_code:
                    self._failed(found.error_code, self._partitions[index], time.monotonic())
                else:
                    self._partitions[index].offset = max(found.offset, 0)

    def _failed(self, code: int, partition: _Partition | None, now_s: float) -> None:
        """Wait, and ask for the leaders again; RequestFailed for an error that is not retriable."""
        what = f"topic {self._topic.topic}" if partition is None else f"partition {partition.index} of {self._topic.topic}"
        if code not in RETRIABLE:
            raise RequestFailed(f"{what} cannot be read", code)
        self._retry_later(f"{what} cannot be read ({ErrorCode(code).name})", now_s)

    def _retry_later(self, problem: str, now_s: float) -> None:
        if self._failing_since_s is None:
            self._failing_since_s = now_s
        elif now_s - self._failing_since_s > RETRY_FOR_S:
            raise CommandFailed(f"{problem}, for {RETRY_FOR_S:.0f} s; run `txbroker doctor`")
        if self._refresh_at_s is None:
            self._refresh_at_s = now_s + max(self._settings.backoff_s, BACKOFF_S_MIN)

    def _refresh_leaders(self, now_s: float) -> None:
        if self._refresh_at_s is None or now_s < self._refresh_at_s:
            return
        self._refresh_at_s = None
        found = self._topic.refresh()
        if found is None:
            self._retry_later("no broker answers with the leaders of the partitions", time.monotonic())
            return
        self._topic_id = found.topic_id  # another one, if the topic was recreated
        for partition in self._partitions.values():
            partition.leader = found.by_partition.get(partition.index)
        if any(partition.leader is None for partition in self._assigned):
            self._retry_later(f"partitions of {self._topic.topic} have no leader", time.monotonic())

    def _connect(self, leader: Broker) -> PipelinedConnection[_Offsets] | None:
        now_s = time.monotonic()
        try:
            connection: PipelinedConnection[_Offsets] = PipelinedConnection(
                leader, self._client_settings, now_s, self._settings.send_buffer, self._settings.receive_buffer
            )
        except LOST as problem:
            self._retry_later(str(problem), now_s)
            return None
        self._connections[leader] = connection
        self._selector.register(connection.socket, connection.events, leader)
        return connection

    def _watch(self, connection: PipelinedConnection[_Offsets], leader: Broker) -> None:
        if self._selector.get_key(connection.socket).events != connection.events:
            self._selector.modify(connection.socket, connection.events, leader)

    def _lost(self, leader: Broker, problem: ConnectionFailed) -> None:
        connection = self._connections.pop(leader)
        self._selector.unregister(connection.socket)
        connection.close()
        self._retry_later(str(problem), time.monotonic())

    def _check_deadlines(self, now_s: float) -> None:
        for leader, connection in list(self._connections.items()):
            try:
                connection.check(now_s)
            except LOST as problem:
                self._lost(leader, problem)
