"""The load of `perf-consume`: one fetch in flight to each leader, and the next one sent before the last is counted."""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from txbroker.cli.failures import CommandFailed, broker_error
from txbroker.cli.partition_flags import EARLIEST, LATEST
from txbroker.cli.perf.settings import ConsumerSettings
from txbroker.client.blocking import Link, LinkFailed
from txbroker.client.pipelined import Channel
from txbroker.client.topic_leaders import PASSING, Broker, Leaders, Topic
from txbroker.errors import BrokerError, ErrorCode
from txbroker.wire.batch import BatchHeader
from txbroker.wire.codec import decode, encode
from txbroker.wire.entries import EntryHeader, Scan, read_records
from txbroker.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from txbroker.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from txbroker.wire.sizes import content_size

# As much of one batch, decompressed, as the broker itself would read.
BATCH_BYTES_MAX = 256 * 1024 * 1024
RETRY_FOR_S = 30.0

Counted = Callable[[int, int], None]
"""Told records and their bytes of keys and values."""


@dataclass(slots=True)
class _Partition:
    index: int
    leader: Broker | None
    offset: int = -1
    """What is fetched next; -1: to be asked for."""


class _Entry(NamedTuple):
    """A log entry at a position of a buffer, of which the records from `start` on are wanted."""

    view: memoryview
    position: int
    header: EntryHeader
    start: int


class Reader:
    """Reads partitions of a topic from their ends or beginnings, or from given offsets; tells what it counted."""

    def __init__(self, topic: Topic, settings: ConsumerSettings, counted: Counted) -> None:
        self._topic = topic
        self._settings = settings
        self._counted = counted
        self._version = topic.version_of(FetchRequest)
        leaders = topic.leaders()
        self._topic_id = leaders.topic_id
        self._partitions = {index: _Partition(index, leader) for index, leader in leaders.by_partition.items()}
        self._assigned = list(self._partitions.values())
        self._channels: dict[Broker, Channel] = {}
        self._selector = selectors.DefaultSelector()
        self._look_at_s: float | None = None
        self._troubled_since_s: float | None = None
        self._turn = 0
        self.fetches = 0

    def close(self) -> None:
        """Close all connections."""
        for channel in self._channels.values():
            channel.close()
        self._selector.close()

    def assign(self, offsets: dict[int, int | None]) -> None:
        """Read these partitions from these offsets; None: where auto.offset.reset says. Without this, it is all of them."""
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
        """Up to where each assigned partition was counted."""
        return {partition.index: partition.offset for partition in self._assigned if partition.offset >= 0}

    def poll(self, wait_s: float) -> None:
        """Fetch where nothing is in flight, and count what comes within this time."""
        now_s = time.perf_counter()
        self._look(now_s)
        if self._look_at_s is None:
            self._find_offsets()
        if self._look_at_s is None:
            for leader in {partition.leader for partition in self._assigned if partition.leader is not None}:
                self._fetch(leader, now_s)
        for key, events in self._selector.select(wait_s):
            leader = key.data
            channel = self._channels.get(leader)
            if channel is None:
                continue
            try:
                if events & selectors.EVENT_WRITE:
                    channel.write()
                    self._selector.modify(channel.socket, channel.events, leader)
                if events & selectors.EVENT_READ:
                    channel.read()
            except LinkFailed as problem:
                self._lost(leader, problem)
        self._check_times(time.perf_counter())

    # --- fetching ---

    def _fetch(self, leader: Broker, now_s: float) -> None:
        channel = self._channels.get(leader) or self._connect(leader)
        if channel is None or channel.waiting:
            return
        mine = [partition for partition in self._assigned if partition.leader == leader and partition.offset >= 0]
        if not mine:
            return
        # In turn: an answer is full with the first ones, when there are many.
        self._turn += 1
        start = self._turn % len(mine)
        wanted = [
            FetchPartition(partition=p.index, fetch_offset=p.offset, partition_max_bytes=self._settings.partition_bytes)
            for p in (*mine[start:], *mine[:start])
        ]
        request = FetchRequest(
            max_wait_ms=self._settings.max_wait_ms,
            min_bytes=self._settings.min_bytes,
            max_bytes=self._settings.fetch_bytes,
            topics=[FetchTopic(topic=self._topic.name, topic_id=self._topic_id, partitions=wanted)],
        )
        asked = {partition.index: partition.offset for partition in mine}
        self.fetches += 1
        try:
            parts = encode(request, self._version)
            channel.send(FetchRequest, self._version, parts, now_s, lambda body: self._answer(leader, asked, body))
            self._selector.modify(channel.socket, channel.events, leader)
        except LinkFailed as problem:
            self._lost(leader, problem)

    def _answer(self, leader: Broker, asked: dict[int, int], body: memoryview) -> None:
        response = decode(FetchResponse, self._version, body)
        now_s = time.perf_counter()
        if response.error_code:
            self._failed(response.error_code, None, now_s)
            return
        found: list[_Entry] = []
        for topic in response.responses:
            for data in topic.partitions:
                partition = self._partitions.get(data.partition_index)
                # What was assigned anew meanwhile, or sought elsewhere, is not wanted any more.
                if partition is not None and asked.get(partition.index) == partition.offset:
                    self._take(partition, data, found, now_s)
        if self._look_at_s is None:
            self._troubled_since_s = None
            # Before counting: the broker works meanwhile. Sending does not touch the buffer that `body` lies in.
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
        if scan.problem and partition.offset == start:
            self._stuck(partition, scan)

    def _stuck(self, partition: _Partition, scan: Scan) -> None:
        """An entry that is not whole at the end of an answer is usual; alone, it does not fit or is damaged."""
        what = f"partition {partition.index} of {self._topic.name} cannot be read at offset {partition.offset}"
        raise CommandFailed(f"{what}: {scan.problem}; raise --fetch-size, or look at it with `txbroker dump-log`")

    def _count(self, view: memoryview, position: int, header: EntryHeader, start: int) -> None:
        try:
            if isinstance(header, BatchHeader) and (header.base_offset >= start or header.control):
                self._counted(*content_size(view, position, header, BATCH_BYTES_MAX))
                return
            inside = [record for record in read_records(view, position, header, BATCH_BYTES_MAX) if record.offset >= start]
            self._counted(len(inside), sum(len(record.key or b"") + len(record.value or b"") for record in inside))
        except BrokerError as error:
            raise CommandFailed(f"a batch of {self._topic.name} at offset {header.last_offset} cannot be read: {error}") from None

    # --- offsets, leaders, connections ---

    def _find_offsets(self) -> None:
        """Where partitions begin or end that have no offset yet, from their leaders."""
        unknown = [partition for partition in self._assigned if partition.offset < 0 and partition.leader is not None]
        for leader in {partition.leader for partition in unknown}:
            assert leader is not None
            wanted = [
                ListOffsetsPartition(partition_index=p.index, timestamp=LATEST if self._settings.from_latest else EARLIEST)
                for p in unknown
                if p.leader == leader
            ]
            topics = [ListOffsetsTopic(name=self._topic.name, partitions=wanted)]
            try:
                with Link(leader.host, leader.port, client_id=self._settings.client_id) as link:
                    answer: ListOffsetsResponse = link.call(ListOffsetsRequest(replica_id=-1, topics=topics))
            except LinkFailed as problem:
                self._trouble(str(problem), time.perf_counter())
                return
            for outcome in answer.topics[0].partitions:
                partition = self._partitions[outcome.partition_index]
                if outcome.error_code:
                    self._failed(outcome.error_code, partition, time.perf_counter())
                else:
                    partition.offset = max(outcome.offset, *outcome.old_style_offsets, 0)

    def _failed(self, code: int, partition: _Partition | None, now_s: float) -> None:
        """Wait, and ask for the leaders again, if that can help."""
        where = f"topic {self._topic.name}" if partition is None else f"partition {partition.index} of {self._topic.name}"
        if code not in PASSING:
            raise broker_error(f"{where} cannot be read", code, None)
        self._trouble(f"{where} cannot be read ({ErrorCode(code).name})", now_s)

    def _trouble(self, problem: str, now_s: float) -> None:
        if self._troubled_since_s is None:
            self._troubled_since_s = now_s
        elif now_s - self._troubled_since_s > RETRY_FOR_S:
            raise CommandFailed(f"{problem}, for {RETRY_FOR_S:.0f} s; ask `txbroker doctor`")
        if self._look_at_s is None:
            self._look_at_s = now_s + max(self._settings.backoff_s, 0.01)

    def _look(self, now_s: float) -> None:
        if self._look_at_s is None or now_s < self._look_at_s:
            return
        self._look_at_s = None
        found: Leaders | None = self._topic.look()
        if found is None:
            self._trouble("nobody tells where the partitions are led", time.perf_counter())
            return
        self._topic_id = found.topic_id  # another one, if the topic was made anew
        for partition in self._partitions.values():
            partition.leader = found.by_partition.get(partition.index)
        if any(partition.leader is None for partition in self._assigned):
            self._trouble(f"partitions of {self._topic.name} have no leader", time.perf_counter())

    def _connect(self, leader: Broker) -> Channel | None:
        try:
            channel = Channel(
                leader.host, leader.port, self._settings.client_id, self._settings.send_buffer, self._settings.receive_buffer
            )
        except LinkFailed as problem:
            self._trouble(str(problem), time.perf_counter())
            return None
        self._channels[leader] = channel
        self._selector.register(channel.socket, channel.events, leader)
        return channel

    def _lost(self, leader: Broker, problem: LinkFailed) -> None:
        channel = self._channels.pop(leader)
        self._selector.unregister(channel.socket)
        channel.close()
        self._trouble(str(problem), time.perf_counter())

    def _check_times(self, now_s: float) -> None:
        limit_s = self._settings.request_timeout_s + self._settings.max_wait_ms / 1000
        for leader, channel in list(self._channels.items()):
            if channel.waiting and now_s - channel.waiting[0].sent_s > limit_s:
                self._lost(leader, LinkFailed(f"{channel.place} did not answer within {limit_s:.0f} s"))
