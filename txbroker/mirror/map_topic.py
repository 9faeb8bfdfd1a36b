"""The mirror's own topic on the target: created, read as a whole at the start, then only written.

`claim` fences the run before: each run writes with the next epoch of the same producer id, and the broker refuses the older one from then
on (INVALID_PRODUCER_EPOCH), as it does for an idempotent producer of Kafka's client (KIP-360).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import DeferredLock
from twisted.internet.task import deferLater

from txbroker.client.client_errors import LOST, ClientError, RequestFailed, TopicMissing
from txbroker.client.offset_requests import EARLIEST, LATEST
from txbroker.client.topic_leaders import RETRIABLE, TopicLeaders
from txbroker.errors import ErrorCode
from txbroker.mirror.cluster import Cluster
from txbroker.mirror.map_records import MapContent, Owner, Pair, owner_pair
from txbroker.mirror.requests import create_topic, fetch, new_producer_id, produce_request, produced, records_in
from txbroker.mirror.settings import MAP_TOPIC, Environment
from txbroker.names import TopicPartition
from txbroker.wire import entries
from txbroker.wire.batch import BatchHeader
from txbroker.wire.compression import Codec
from txbroker.wire.records import Record, build

log = logging.getLogger("txbroker.mirror")

CONFIGS = {"cleanup.policy": "compact", "compression.type": "producer"}
RETRY_S, RETRIES = 0.2, 150
BATCH_BYTES = 700_000  # of keys and values, below the default of max.message.bytes
EPOCH_MAX = 2**15 - 1
_BYTES_MAX = 64 << 20  # of one batch, uncompressed
_FENCED = {
    ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.DUPLICATE_SEQUENCE_NUMBER
}  # fmt: skip


class Fenced(ClientError):
    """Another run of this mirror has begun."""


async def read_map(cluster: Cluster, reactor: Any) -> tuple[MapContent, int]:
    """What the topic has, and its end; nothing if the cluster does not have the topic. CorruptRecords, ClientError."""
    return (MapContent(), 0) if MAP_TOPIC not in cluster.topics else await cluster.patiently(lambda: _read(cluster, reactor, None))


async def _read(cluster: Cluster, reactor: Any, end: int | None) -> tuple[MapContent, int]:
    content, topic = MapContent(), _topic_of(cluster)
    leader = topic.by_partition.get(0)
    if leader is None:
        raise RequestFailed(f"topic {MAP_TOPIC} of the {cluster.label}", ErrorCode.LEADER_NOT_AVAILABLE)
    only = TopicPartition(MAP_TOPIC, 0)
    where = {only: leader.node_id}
    position = (await cluster.offsets(EARLIEST, where))[only]
    last = (await cluster.offsets(LATEST, where))[only] if end is None else end
    while position < last:
        data = await fetch(cluster, topic, 0, position, BATCH_BYTES)
        if data.error_code:
            raise RequestFailed(f"topic {MAP_TOPIC} of the {cluster.label}", data.error_code)
        before, records = position, records_in(data)
        for at, header in entries.Scan(records, check_crc=True):
            if isinstance(header, BatchHeader) and not header.control:
                for record in entries.read_records(records, at, header, _BYTES_MAX):
                    if before <= record.offset < last:
                        content.take(record.key, record.value)
            position = max(position, header.last_offset + 1)
        if position == before:
            await deferLater(reactor, RETRY_S)
    return content, last


def _topic_of(cluster: Cluster) -> TopicLeaders:
    topic = cluster.topics.get(MAP_TOPIC)
    if topic is None:
        raise TopicMissing(MAP_TOPIC)
    return topic


class MapTopic:
    """`claim` first, once; then `write`."""

    def __init__(self, cluster: Cluster, name: str, run_id: str, environment: Environment, replication_factor: int = -1) -> None:
        self.content = MapContent()
        self.owner = Owner(name, run_id, -1, -1, -1)
        self._cluster = cluster
        self._replication_factor = replication_factor
        self._reactor = environment.reactor
        self._now_ms = environment.now_ms
        self._sequence = 0
        self._lock = DeferredLock()
        self._tries = RETRIES

    def patient(self, yes: bool) -> None:
        """Whether `write` waits as long as the target does not answer; otherwise it fails after half a minute."""
        self._tries = 0 if yes else RETRIES

    async def claim(self, source: str) -> None:
        """Create the topic if it is missing, begin a run, and read what earlier runs wrote; ClientError, CorruptRecords."""
        cluster, name = self._cluster, self.owner.name
        if MAP_TOPIC not in cluster.topics:
            await create_topic(cluster, MAP_TOPIC, 1, self._replication_factor, CONFIGS)
            for _ in range(RETRIES):
                await cluster.refresh()
                if MAP_TOPIC in cluster.topics and cluster.topics[MAP_TOPIC].complete:
                    break
                await deferLater(self._reactor, RETRY_S)
        before, _ = await read_map(cluster, self._reactor)
        known = before.owners.get((source, name))
        if known is None:
            ids = await new_producer_id(cluster), 0, await new_producer_id(cluster)
        elif known.epoch < EPOCH_MAX:
            ids = known.producer_id, known.epoch + 1, known.data_producer_id
        else:
            ids = await new_producer_id(cluster), 0, known.data_producer_id
        self.owner = Owner(name, self.owner.run_id, *ids)
        offset = await self._append([owner_pair(source, self.owner)])
        # Another run that began at the same time may have written the same sequence: the broker then took this one for a repetition.
        self.content, _ = await cluster.patiently(lambda: _read(cluster, self._reactor, offset + 1))
        found = self.content.owners.get((source, name))
        if found != self.owner:
            raise _fenced(name)

    async def write(self, pairs: Sequence[Pair]) -> None:
        """Write records in this order, in as few batches as possible. Fenced when another run has begun; ClientError."""
        part: list[Pair] = []
        size = 0
        for pair in pairs:
            part.append(pair)
            size += len(pair[0]) + len(pair[1] or b"") + 20
            if size >= BATCH_BYTES:
                await self._append(part)
                part, size = [], 0
        if part:
            await self._append(part)

    @classmethod
    async def append_once(cls, cluster: Cluster, environment: Environment, pairs: Sequence[Pair]) -> None:
        """Write records without a producer id, which fences no run; ClientError."""
        topic = cls(cluster, "", "", environment)
        await topic._append(pairs)

    async def _append(self, pairs: Sequence[Pair]) -> int:
        """Write one batch, again until the target has it; the offset of the first record."""
        await self._lock.acquire()
        try:
            sequence, self._sequence = self._sequence, (self._sequence + len(pairs)) & 0x7FFFFFFF
            now_ms = self._now_ms()
            found = [Record(index, now_ms, key, value) for index, (key, value) in enumerate(pairs)]
            made = build(found, codec=Codec.GZIP if len(found) > 1 else Codec.NONE, producer_id=self.owner.producer_id,
                         producer_epoch=self.owner.epoch, base_sequence=sequence if self.owner.producer_id >= 0 else -1)  # fmt: skip
            tries = 0
            while True:
                tries += 1
                try:
                    topic = _topic_of(self._cluster)
                    leader = topic.by_partition.get(0)
                    request = produce_request([(topic, 0, made)])
                    (answer,) = produced(await self._cluster.ask(request, None if leader is None else leader.node_id)).values()
                    if not answer.error_code:
                        return answer.base_offset
                    if answer.error_code in _FENCED:
                        raise _fenced(self.owner.name)
                    problem: ClientError = RequestFailed(f"topic {MAP_TOPIC} of the target", answer.error_code, answer.error_message)
                    if answer.error_code not in RETRIABLE:
                        raise problem
                except (*LOST, TopicMissing) as lost:
                    problem = lost
                if tries >= self._tries > 0:
                    raise problem
                await deferLater(self._reactor, RETRY_S)
                await self._refresh()
        finally:
            self._lock.release()

    async def _refresh(self) -> None:
        try:
            await self._cluster.refresh()
        except LOST as lost:
            log.debug("%s", lost)


def _fenced(name: str) -> Fenced:
    return Fenced(f"another run of the mirror {name!r} has begun and this one has ended; run one at a time, or give each its own --name")
