"""Consumers: read partitions from the beginning to the end, again and again, and report every record with its offset."""

from __future__ import annotations

from dataclasses import dataclass

from simulation.clients.aborted_transactions import AbortedTransactions
from simulation.clients.cluster_client import PASSING, ClusterClient, check
from simulation.clients.contents import text_of
from simulation.ledger import Ledger
from txbroker.errors import ErrorCode
from txbroker.names import TopicPartition
from txbroker.wire.batch import HEADER_SIZE, read_header
from txbroker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from txbroker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from txbroker.wire.records import read_records

RETRY_S = 0.1
BATCH_BYTES_MAX = 1 << 20

_LEADER_MOVED = frozenset({
    ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.KAFKA_STORAGE_ERROR,
})  # fmt: skip
_FETCH = _LEADER_MOVED | {ErrorCode.OFFSET_OUT_OF_RANGE}  # of a follower that is behind
_LIST_OFFSETS = _LEADER_MOVED | {ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.LEADER_NOT_AVAILABLE}


@dataclass(frozen=True, slots=True)
class ConsumerPlan:
    """What one consumer does. `from_followers`: it reads from any replica. `again`: how likely it begins again after a poll.

    `read_committed`: it stops at the last stable offset, and leaves out the records of aborted transactions.
    """

    partitions: tuple[TopicPartition, ...]
    pause_s: float
    bytes_max: int
    from_followers: bool
    again: float
    wait_ms: int
    read_committed: bool = False


class Consumer:
    """Reads until `finish`, then to the end. `busy`: partitions that it has not read to the end yet."""

    def __init__(self, name: str, client: ClusterClient, plan: ConsumerPlan, ledger: Ledger) -> None:
        self.name = name
        self.plan = plan
        self.finishing = False
        self._positions: dict[TopicPartition, int] = {}
        self._client = client
        self._ledger = ledger

    def start(self) -> None:
        """Begin."""
        for partition in self.plan.partitions:
            self._positions[partition] = 0
            self._ledger.run(f"{self.name} for {partition}", self._run(partition))

    def finish(self) -> None:
        """Only read what is there now."""
        self.finishing = True

    @property
    def busy(self) -> list[str]:
        """What it has not read to the end yet."""
        return [f"{self.name} is at {position} of {partition}" for partition, position in self._positions.items()]

    async def _run(self, partition: TopicPartition) -> None:
        chance, plan = self._client.chance, self.plan
        position = 0
        replica = -1
        self._ledger.history.assigned(self.name, partition, 0)
        while not self.finishing:
            await self._client.sleep(chance.expovariate(1 / plan.pause_s))
            if chance.random() < plan.again:
                position = 0
                self._ledger.history.assigned(self.name, partition, 0)
            try:
                if chance.random() < 0.1:
                    await self._latest(partition)
                if plan.from_followers and chance.random() < 0.5:
                    replica = chance.choice(self._client.broker_ids)
                position = await self.poll(partition, position, replica)
                self._positions[partition] = position
            except PASSING:
                replica = -1
                self._client.forget_leader(partition)
                await self._client.sleep(RETRY_S)
        await self.read_to_end(partition, position)
        del self._positions[partition]

    async def read_to_end(self, partition: TopicPartition, position: int) -> int:
        """Read to the latest offset of now, in spite of errors; returns that offset."""
        while True:
            try:
                _, end = await self.offset_of(partition, -1)
                while position < end:
                    self._positions[partition] = position = await self.poll(partition, position, wait_ms=0)
                return end
            except PASSING:
                self._client.forget_leader(partition)
                await self._client.sleep(RETRY_S)

    async def poll(self, partition: TopicPartition, position: int, replica: int = -1, *, wait_ms: int | None = None) -> int:
        """Fetch once; the next position. NotAvailable, Refused."""
        began = self._ledger.history.now()
        leader, epoch = await self._client.leader(partition)
        broker_id = leader if replica < 0 else replica
        fetched = FetchPartition(
            partition=partition.partition, fetch_offset=position, partition_max_bytes=self.plan.bytes_max, current_leader_epoch=epoch
        )
        request = FetchRequest(
            max_wait_ms=self.plan.wait_ms if wait_ms is None else wait_ms,
            min_bytes=1,
            max_bytes=self.plan.bytes_max,
            isolation_level=int(self.plan.read_committed),
            topics=[FetchTopic(topic=partition.topic, partitions=[fetched])],
        )
        response = await self._client.send(broker_id, request, version_max=12)
        check("Fetch", response.error_code, ())
        (data,) = [data for topic in response.responses for data in topic.partitions]
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and replica < 0:
            self._ledger.out_of_range(self.name, partition, position)
            self._ledger.history.assigned(self.name, partition)
            return await self._earliest(partition)
        check("Fetch", data.error_code, _FETCH)
        aborted = AbortedTransactions(data.aborted_transactions or ()) if self.plan.read_committed else None
        return self._read(partition, position, bytes(data.records or b""), aborted, began)

    def _read(self, partition: TopicPartition, position: int, data: bytes, aborted: AbortedTransactions | None, began_poll: int) -> int:
        found: list[tuple[int, bytes]] = []
        at = 0
        begun = position
        while at + HEADER_SIZE <= len(data):
            size = 12 + int.from_bytes(data[at + 8 : at + 12], "big")
            if at + size > len(data):
                break  # the rest of a batch that did not fit
            header = read_header(data, at)
            records = read_records(data, at, header, BATCH_BYTES_MAX)
            if not header.control and (aborted is None or not aborted.has(header)):
                for record in records:
                    if record.offset >= begun:
                        value = text_of(record)
                        self._ledger.read(self.name, partition, record.offset, value, position)
                        if aborted is not None:
                            self._ledger.transactions.read(self.name, partition, record.offset, value)
                        self.seen(partition, record.offset, value)
                        found.append((record.offset, value))
                        position = record.offset + 1
            elif header.control and aborted is not None:
                for marker in records:  # none if the cleaner has removed it and kept its batch
                    aborted.marker(header, marker)
            position = max(position, header.last_offset + 1)
            at += size
        self._ledger.history.polled(self.name, partition, found, began_poll, read_committed=self.plan.read_committed)
        return position

    def seen(self, partition: TopicPartition, offset: int, value: bytes) -> None:
        """A record was read; for consumers that do something with it."""

    async def _earliest(self, partition: TopicPartition) -> int:
        return (await self.offset_of(partition, -2))[1]

    async def _latest(self, partition: TopicPartition) -> None:
        stable = self.plan.read_committed
        begun = self._ledger.latest_seen(partition, stable=stable)
        self._ledger.latest(self.name, partition, await self.offset_of(partition, -1), begun, stable=stable)

    async def offset_of(self, partition: TopicPartition, timestamp: int) -> tuple[int, int]:
        """ListOffsets, -1 the latest offset, -2 the first one: the leader's epoch and the offset. NotAvailable, Refused."""
        leader, epoch = await self._client.leader(partition)
        asked = ListOffsetsPartition(partition_index=partition.partition, timestamp=timestamp, current_leader_epoch=epoch)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(self.plan.read_committed),
            topics=[ListOffsetsTopic(name=partition.topic, partitions=[asked])],
        )
        response = await self._client.send(leader, request, version_max=7)
        (answer,) = [answer for topic in response.topics for answer in topic.partitions]
        check("ListOffsets", answer.error_code, _LIST_OFFSETS)
        if timestamp == -1 and answer.leader_epoch != epoch:
            self._ledger.not_fenced(self.name, partition, epoch, answer.leader_epoch)
        return answer.leader_epoch, answer.offset
