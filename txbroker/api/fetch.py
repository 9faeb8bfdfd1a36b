"""Fetch (key 1): read record batches as file regions.

Behaviour: partitions are read in the order of the request (of the session); the first batch is sent whole however large it is
(KIP-74), what follows only as far as max.bytes reaches. When fewer than min.bytes are there the request waits in the purgatory, at most
max.wait.ms, until one of its partitions moves. An error of a partition is told at once.
Version notes: v0-v3 get batches converted to the old message formats (KIP-31); v4 isolation level; v7 sessions (KIP-227); v9 leader
epochs (KIP-320); v10 zstd (KIP-110); v12 diverging epochs (KIP-595); v13 topic ids (KIP-516). KIP-392 (reading from followers) is
not implemented: preferred_read_replica is always -1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence

from twisted.internet.defer import Deferred

from txbroker.api.encoded.encoded_response import MadeAnswer
from txbroker.api.encoded.fetch_response import FetchAnswers
from txbroker.api.fetch_sessions import FetchItem, FetchPlan, FetchSession, FetchSessions, named_by_id
from txbroker.api.parking import park
from txbroker.api.request_context import RequestContext
from txbroker.api.request_counts import Errors
from txbroker.cluster.image import ClusterImage
from txbroker.cluster.partition import CONSUMER, Isolation
from txbroker.cluster.replicas import Replicas
from txbroker.errors import BrokerError, ErrorCode
from txbroker.log.region import Region
from txbroker.names import TopicPartition
from txbroker.purgatory import Purgatory
from txbroker.wire.compression import Codec
from txbroker.wire.conversion import from_v2
from txbroker.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from txbroker.wire.schema import Request

HARD_LIMIT_VERSION = 2  # up to here a client wants no more than it asked for, even if that is less than a batch
V2_BATCH_VERSION = 4
ZSTD_VERSION = 10
CURRENT_LEADER_VERSION = 12
TOPIC_ID_VERSION = 13
_MAGIC_0_VERSION_MAX = 1
# Errors that Kafka (ReplicaManager.readFromLog) does not count as failures of the broker.
_NO_FAILURES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.OFFSET_OUT_OF_RANGE,
}
DOWN_CONVERTED_BYTES_MAX = 128 << 20  # what one partition's answer may decompress to while it is converted


class FetchHandler:
    """Reads, and parks what has too little to tell."""

    request: type[Request] = FetchRequest
    overlaps = True

    def __init__(
        self,
        replicas: Replicas,
        image: ClusterImage,
        sessions: FetchSessions,
        purgatory: Purgatory,
        monotonic_s: Callable[[], float],
        *,
        fetch_max_bytes: int,
    ) -> None:
        self._replicas = replicas
        self._image = image
        self._sessions = sessions
        self._purgatory = purgatory
        self._monotonic_s = monotonic_s
        self._fetch_max_bytes = fetch_max_bytes
        self.answers = FetchAnswers()
        self.errors: Errors = Counter()

    def __call__(self, request: FetchRequest, context: RequestContext) -> FetchResponse | MadeAnswer | Deferred[FetchResponse | MadeAnswer]:
        replica = request.replica_id if request.replica_id != CONSUMER else request.replica_state.replica_id
        uses_ids = context.api_version >= TOPIC_ID_VERSION
        try:
            plan = self._sessions.plan(request, uses_ids, replica != CONSUMER, self._monotonic_s())
        except BrokerError as error:
            self.errors[error.code] += 1
            return FetchResponse(error_code=error.code, responses=[])
        reader = Reader(self, plan, request, replica, context.api_version)
        reader.read()
        if reader.ready or request.max_wait_ms <= 0 or plan.is_empty:
            return reader.response()
        purgatory = self._purgatory
        return park(purgatory, reader.keys, request.max_wait_ms, lambda done: _Waiting(reader, purgatory, done), tried=True)

    def failed(self, request: FetchRequest, context: RequestContext, error: BrokerError) -> FetchResponse:
        """The error for the whole request, and from before v7 for each partition."""
        self.errors[error.code] += 1
        failures = [
            FetchableTopicResponse(
                topic=topic.topic, topic_id=topic.topic_id, partitions=[_failure(p.partition, error) for p in topic.partitions]
            )
            for topic in request.topics
        ]
        return FetchResponse(error_code=error.code, responses=failures)

    def read_item(self, item: FetchItem, bytes_max: int, whole_first_batch: bool, isolation: int, replica: int) -> PartitionData:
        """One partition's answer; BrokerError when it cannot be read."""
        name = item.topic
        if named_by_id(item):
            known = self._image.topic_by_id(item.topic_id)
            if known is None:
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_ID)
            name = known.name
        partition = self._replicas.get(name, item.partition)
        item.counts = partition.counts
        if replica != CONSUMER:
            partition.check_leader(item.current_leader_epoch)
            if replica >= 0:  # below are Kafka's tools, which see everything too
                partition.check_replica(replica)
        elif not partition.is_leader or item.current_leader_epoch != -1:
            partition.check_leader(item.current_leader_epoch)
        log = partition.log
        if item.last_fetched_epoch != -1:
            diverging = partition.diverging_epoch(item.last_fetched_epoch, item.fetch_offset)
            if diverging is not None:
                return PartitionData(
                    partition_index=item.partition,
                    error_code=0,
                    high_watermark=partition.high_watermark,
                    last_stable_offset=partition.last_stable_offset,
                    log_start_offset=log.log_start_offset,
                    diverging_epoch=EpochEndOffset(epoch=diverging.epoch, end_offset=diverging.end_offset),
                    records=b"",
                )
        offset_end = partition.end_for(isolation, replica)
        read = partition.read(item.fetch_offset, min(item.partition_max_bytes, bytes_max), offset_end, whole_first_batch)
        if replica >= 0:
            partition.follower_fetched(replica, item.fetch_offset)
        aborted = None
        if isolation == Isolation.READ_COMMITTED:
            aborted = [
                AbortedTransaction(producer_id=t.producer_id, first_offset=t.first_offset)
                for t in partition.aborted_transactions(item.fetch_offset, read.end_offset)
            ]
        return PartitionData(
            partition_index=item.partition,
            error_code=0,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=aborted,
            records=read.region,
        )

    def check_codec(self, item: FetchItem) -> None:
        """UNSUPPORTED_COMPRESSION_TYPE for a client older than zstd (KIP-110) and a topic whose compression.type that is."""
        if self._replicas.get(item.topic, item.partition).log.config.compression_type is Codec.ZSTD:
            raise BrokerError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"{item.topic} has zstd, which needs Fetch v{ZSTD_VERSION}")

    def failed_item(self, item: FetchItem, error: BrokerError, version: int) -> PartitionData:
        """A partition's error; for a client at the wrong broker or epoch, with the leader that it should ask (KIP-951)."""
        data = _failure(item.partition, error)
        self.errors[error.code] += 1
        if item.counts is not None and error.code not in _NO_FAILURES:
            item.counts.failed_fetch_requests += 1
        wrong_leader = error.code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
        if wrong_leader and version >= CURRENT_LEADER_VERSION:
            topic = self._image.topic_by_id(item.topic_id) if named_by_id(item) else self._image.topic(item.topic)
            known = None if topic is None else topic.partitions.get(item.partition)
            if known is not None:
                data.current_leader = LeaderIdAndEpoch(leader_id=known.leader, leader_epoch=known.leader_epoch)
        return data

    def watch(self, session: FetchSession, item: FetchItem) -> None:
        """Have the session told of the item's moves."""
        self._sessions.watch(session, item, self.key(item))

    def limit(self, request: FetchRequest) -> int:
        """How many bytes of records an answer may have: the client's limit, and the broker's fetch.max.bytes."""
        return min(request.max_bytes, self._fetch_max_bytes)

    def key(self, item: FetchItem) -> TopicPartition:
        """What the purgatory watches for this item."""
        if named_by_id(item):
            known = self._image.topic_by_id(item.topic_id)
            return TopicPartition(known.name if known else "", item.partition)
        return TopicPartition(item.topic, item.partition)


class Reader:
    """One Fetch request being read, once or again each time that one of its partitions moves."""

    __slots__ = (
        "_bytes",
        "_counted",
        "_handler",
        "_isolation",
        "_limit",
        "_min_bytes",
        "_places",
        "_plan",
        "_replica",
        "_results",
        "_version",
        "ready",
    )

    def __init__(self, handler: FetchHandler, plan: FetchPlan, request: FetchRequest, replica: int, version: int) -> None:
        self._handler = handler
        self._plan = plan
        self._limit = handler.limit(request)
        self._min_bytes = min(request.min_bytes, self._limit)
        self._replica = replica
        self._version = version
        self._isolation = request.isolation_level
        self._results: list[tuple[FetchItem, PartitionData]] = []
        self._bytes = 0  # of records in the results
        self._places: dict[Hashable, int] = {}
        self._counted = False
        self.ready = False

    @property
    def keys(self) -> Sequence[Hashable]:
        """What to wait for."""
        if self._plan.incremental:
            return [self._plan.session]  # whoever moves one of its partitions checks the session, too
        keys = [self._handler.key(item) for item in self._plan.items]
        if len(keys) > 1:
            self._places = {key: place for place, key in enumerate(keys)}
        return keys

    def read(self) -> None:
        """Read every partition. `ready` says whether the answer has enough, or an error, to be sent now."""
        handler, version = self._handler, self._version
        limit = left = self._limit
        whole_first_batch = version > HARD_LIMIT_VERSION
        results = self._results = []
        urgent = False
        session = self._plan.session if self._plan.incremental else None
        for item in self._plan.items:
            try:
                if version < ZSTD_VERSION:
                    handler.check_codec(item)
                data = handler.read_item(item, left, whole_first_batch, self._isolation, self._replica)
                size = len(data.records) if data.records is not None else 0
                if size:
                    left = max(left - size, 0)
                    whole_first_batch = False
                elif data.diverging_epoch.epoch != -1:
                    urgent = True
            except BrokerError as error:
                data = handler.failed_item(item, error, version)
                urgent = True
            if item.counts is not None and not self._counted:
                item.counts.fetch_requests += 1
            if session is not None:
                self._watch(session, item, data)
                if not self._tells(item, data):
                    session.pending.pop(item.key, None)
                    continue
            results.append((item, data))
        self._counted = True
        self._bytes = limit - left
        self.ready = urgent or self._bytes >= self._min_bytes

    def _watch(self, session: FetchSession, item: FetchItem, data: PartitionData) -> None:
        if item.watched is None and not data.error_code:
            self._handler.watch(session, item)

    def _tells(self, item: FetchItem, data: PartitionData) -> bool:
        """Whether the session must look at the item again before it is named or moves."""
        if self._replica != CONSUMER:
            return True
        end = data.last_stable_offset if self._isolation == Isolation.READ_COMMITTED else data.high_watermark
        return item.tells(data, end)

    def read_moved(self, key: Hashable) -> None:
        """Read what moved. The rest stands as it was read, as all that moves is told; there may be thousands of partitions.

        As in Kafka, what each partition alone has makes up min.bytes; only when that is too much everything is read again.
        """
        place = self._places.get(key)
        if place is None:
            self.read()
            return
        item, before = self._results[place]
        try:
            data = self._handler.read_item(item, self._limit, self._version > HARD_LIMIT_VERSION, self._isolation, self._replica)
        except BrokerError:
            self.read()
            return
        self._results[place] = item, data
        self._bytes += _size(data) - _size(before)
        enough = self._bytes >= self._min_bytes or data.diverging_epoch.epoch != -1
        if self._bytes > self._limit:
            self.read()
        self.ready = enough

    def response(self) -> FetchResponse | MadeAnswer:
        """The answer: everything, or only what changed since the session's last one."""
        plan = self._plan
        results = self._results
        if plan.session is not None:
            changed = [(item, data) for item, data in results if item.changed(data)]
            plan.session.served(item for item, data in changed if data.records is not None and len(data.records) > 0)
            if plan.incremental:
                results = changed
        if self._version < V2_BATCH_VERSION:
            for item, data in results:
                if not _down_convert(data, 0 if self._version <= _MAGIC_0_VERSION_MAX else 1, item.fetch_offset):
                    self._handler.errors[data.error_code] += 1
        if len(results) == 1:
            item, data = results[0]
            parts = self._handler.answers.parts(self._version, plan.session_id, item, data)
            if parts is not None:
                if item.counts is not None:
                    item.counts.bytes_out += _size(data)
                return MadeAnswer(parts)
        topics: dict[tuple[str, bytes], FetchableTopicResponse] = {}
        for item, data in results:
            key = (item.topic, item.topic_id)
            answer = topics.get(key)
            if answer is None:
                answer = topics[key] = FetchableTopicResponse(topic=item.topic, topic_id=item.topic_id, partitions=[])
            answer.partitions.append(data)
            if data.records and item.counts is not None:
                item.counts.bytes_out += len(data.records)
        return FetchResponse(session_id=plan.session_id, responses=list(topics.values()))


class _Waiting:
    """A fetch with too little to tell (Kafka's DelayedFetch): ends when A: min.bytes are there, or B: a partition has an error,
    lost its leader among them. Expired: it tells what there is."""

    __slots__ = ("_done", "_purgatory", "_reader")

    def __init__(self, reader: Reader, purgatory: Purgatory, done: Deferred[FetchResponse | MadeAnswer]) -> None:
        self._reader = reader
        self._purgatory = purgatory
        self._done = done

    def try_complete(self) -> bool:
        """Read again what moved; answer when it is enough."""
        self._reader.read_moved(self._purgatory.checked)
        if self._reader.ready:
            self._done.callback(self._reader.response())
            return True
        return False

    def on_expired(self) -> None:
        """max.wait.ms is over."""
        self._reader.read()
        self._done.callback(self._reader.response())


def _size(data: PartitionData) -> int:
    return len(data.records) if data.records is not None else 0


def _failure(partition: int, error: BrokerError) -> PartitionData:
    return PartitionData(partition_index=partition, error_code=error.code, high_watermark=-1, records=b"")


def _down_convert(data: PartitionData, magic: int, first_offset: int) -> bool:
    """Records for a client that knows no v2 batches; False: an error in their place.

    The one place where a fetch looks into records; nobody new comes here.
    """
    if not isinstance(data.records, Region):
        return True
    try:
        data.records = from_v2(data.records.read(), magic, first_offset=first_offset, bytes_max=DOWN_CONVERTED_BYTES_MAX)
    except BrokerError as error:
        data.error_code = error.code
        data.records = b""
        return False
    return True
