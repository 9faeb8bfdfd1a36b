"""Reading for Fetch: one partition (`PartitionReader`), and all partitions of one request (`FetchReader`), once or each time it is woken.

What is read, and when, depends on the session (KIP-227):

|                  | without a session, or the first request of one | later requests of a session                         |
|------------------|------------------------------------------------|-----------------------------------------------------|
| partitions read  | all that the request names                     | those of the session that may have something new    |
| waits for        | each of these partitions                       | the session; moves of its partitions are noted there|
| read when woken  | the partition that moved                       | those that moved                                    |
| response         | all                                            | those that changed since the last response          |

A fetch of a replica shows where its log ends: the partitions that are read tell the leader; for the others of its session nothing has
changed since they were read, and the time of the session's last request is enough (`cluster/followers.py`).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeAlias, cast

from txbroker.api.current_leaders import CurrentLeaders
from txbroker.api.encoded.encoded_response import EncodedResponse, Part
from txbroker.api.encoded.fetch_response import FetchResponses
from txbroker.api.fetch_client import FetchClient
from txbroker.api.fetch_down_conversion import down_convert
from txbroker.api.fetch_sessions import FetchItem, FetchPlan, FetchSession, FetchSessions, named_by_id
from txbroker.api.read_replica import NO_PREFERENCE, ReadReplicas
from txbroker.api.request_context import RequestContext
from txbroker.api.request_counts import Errors
from txbroker.client_quotas.quotas import ClientQuotas
from txbroker.cluster.followers import FollowerFetch
from txbroker.cluster.partition import CONSUMER, Isolation
from txbroker.cluster.replicas import Replicas
from txbroker.cluster.replication_quota import ReplicationQuota
from txbroker.errors import BrokerError, ErrorCode
from txbroker.log.region import EMPTY
from txbroker.names import TopicPartition, amount
from txbroker.wire.compression import Codec
from txbroker.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from txbroker.wire.schema import shared_default

HARD_LIMIT_VERSION = 2  # up to here max.bytes holds even if the first batch is larger
V2_BATCH_VERSION = 4
ZSTD_VERSION = 10
CURRENT_LEADER_VERSION = 12
NODE_ENDPOINTS_VERSION = 16
_MAGIC_0_VERSION_MAX = 1
_NO_DIVERGENCE = shared_default(EpochEndOffset)

logger = logging.getLogger("txbroker.api")

Fetched: TypeAlias = FetchResponse | EncodedResponse

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


class PartitionReader:
    """Reads one partition for a fetch, and makes the response of one that cannot be read."""

    def __init__(
        self,
        replicas: Replicas,
        leaders: CurrentLeaders,
        errors: Errors,
        monotonic_s: Callable[[], float],
        read_replicas: ReadReplicas,
        quota: ReplicationQuota,
    ) -> None:
        """`errors` counts the error codes of partitions. `quota`: of what is sent to followers."""
        self._quota = quota
        self._leaders = leaders
        self._replicas = replicas
        self._errors = errors
        self._monotonic_s = monotonic_s
        self._read_replicas = read_replicas
        self._corrupt: Counter[TopicPartition] = Counter()

    def read(self, item: FetchItem, bytes_max: int, whole_first_batch: bool, client: FetchClient) -> PartitionData:
        """One partition's response; BrokerError when it cannot be read."""
        replicas = self._replicas
        by_id = named_by_id(item)
        partition = replicas.get_by_id(item.topic_id, item.partition) if by_id else replicas.get(item.topic, item.partition)
        item.counts = partition.counts
        replica, isolation = client.replica, client.isolation
        if replica != CONSUMER:
            partition.check_leader(item.current_leader_epoch)
            if replica >= 0:
                partition.check_replica(replica)
        elif client.any_replica:
            partition.check_epoch(item.current_leader_epoch)
        elif not partition.is_leader or item.current_leader_epoch != -1:
            partition.check_leader(item.current_leader_epoch)
        log = partition.log
        preferred = self._read_replicas.preferred(partition, client, item.fetch_offset)
        if preferred != NO_PREFERENCE:
            return PartitionData(
                partition_index=item.partition,
                error_code=0,
                high_watermark=partition.high_watermark,
                last_stable_offset=partition.last_stable_offset,
                log_start_offset=log.log_start_offset,
                aborted_transactions=None,
                preferred_read_replica=preferred,
                records=b"",
            )
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
        offset_end = item.leader_end = partition.end_for(isolation, replica)
        read = partition.read(item.fetch_offset, min(item.partition_max_bytes, bytes_max), offset_end, whole_first_batch)
        if replica >= 0 and not client.reads_again:
            partition.follower_fetched(
                FollowerFetch(
                    replica,
                    item.fetch_offset,
                    offset_end,
                    self._monotonic_s(),
                    item.fetcher_log_start,
                    client.broker_epoch,
                    client.session,
                )
            )
        region = read.region
        if replica >= 0:
            item.is_out_of_sync = replica not in partition.state.isr
            item.is_throttled = self._quota.covers(partition)
            if item.is_throttled and item.is_out_of_sync and self._quota.is_exceeded:
                region = EMPTY
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
            records=region,
        )

    def sent(self, results: Iterable[tuple[FetchItem, PartitionData]]) -> None:
        """A replica receives these results."""
        size = sum(_size(data) for item, data in results if item.is_throttled)
        if size:
            self._quota.record(size)

    def check_codec(self, item: FetchItem) -> None:
        """UNSUPPORTED_COMPRESSION_TYPE for a client older than zstd (KIP-110) and a topic with compression.type=zstd."""
        if self._replicas.get(item.topic, item.partition).log.config.compression_type is Codec.ZSTD:
            raise BrokerError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"{item.topic} has zstd, which needs Fetch v{ZSTD_VERSION}")

    def failed(self, item: FetchItem, error: BrokerError, version: int) -> PartitionData:
        """A partition's error; for a client at the wrong broker or epoch with the current leader (KIP-951)."""
        data = failure(item.partition, error)
        self._errors[error.code] += 1
        if error.code == ErrorCode.CORRUPT_MESSAGE:
            self._report_corrupt(item, error)
        if item.counts is not None and error.code not in _NO_FAILURES:
            item.counts.failed_fetch_requests += 1
        wrong_leader = error.code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
        if wrong_leader and version >= CURRENT_LEADER_VERSION:
            leader = self._leaders.of(*self.key(item))
            data.current_leader = LeaderIdAndEpoch(leader_id=leader.leader_id, leader_epoch=leader.leader_epoch)
        return data

    def _report_corrupt(self, item: FetchItem, error: BrokerError) -> None:
        """Log it, the first, second, fourth, eighth time: clients repeat the fetch."""
        key = self.key(item)
        self._corrupt[key] += 1
        times = self._corrupt[key]
        if times & (times - 1) == 0:
            what = f"{error.message}; `txbroker log verify` shows the damage, `txbroker log repair` removes it"
            logger.error("%s cannot be read from offset %d on (%s so far): %s", key, item.fetch_offset, amount(times, "time"), what)

    def nodes(self, results: Iterable[tuple[FetchItem, PartitionData]], context: RequestContext) -> list[NodeEndpoint]:
        """The addresses of the leaders in these results."""
        leaders = {data.current_leader.leader_id for _, data in results if data.error_code and data.current_leader.leader_id >= 0}
        if not leaders:
            return []
        nodes = self._leaders.nodes(leaders, context)
        return [NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack) for node in nodes]

    def failed_conversion(self, code: int) -> None:
        """Count the error of records that could not be converted for an old client."""
        self._errors[code] += 1

    def key(self, item: FetchItem) -> TopicPartition:
        """What a fetch of this item waits for."""
        if named_by_id(item):
            return TopicPartition(self._replicas.topic_name(item.topic_id) or "", item.partition)
        return TopicPartition(item.topic, item.partition)


class FetchReader:
    """The partitions of one request: read, read again, and the response. `limit`: how many bytes of records it may have."""

    __slots__ = (
        "_bytes",
        "_client",
        "_context",
        "_items",
        "_limit",
        "_min_bytes",
        "_partitions",
        "_plan",
        "_quotas",
        "_responses",
        "_results",
        "_sessions",
        "ready",
    )

    def __init__(
        self,
        partitions: PartitionReader,
        sessions: FetchSessions,
        responses: FetchResponses,
        plan: FetchPlan,
        context: RequestContext,
        *,
        limit: int,
        min_bytes: int,
        client: FetchClient,
        quotas: ClientQuotas,
    ) -> None:
        self._partitions = partitions
        self._quotas = quotas
        self._sessions = sessions
        self._responses = responses
        self._plan = plan
        self._limit = limit
        self._min_bytes = min(min_bytes, limit)
        self._client = client
        self._context = context
        self._results: dict[FetchItem, PartitionData] = {}
        self._bytes = 0  # of records in the results
        self._items: dict[Hashable, FetchItem] = {}  # by key, without a session
        self.ready = False

    @property
    def keys(self) -> Sequence[Hashable]:
        """What to wait for."""
        if self._plan.incremental:
            return [self._plan.session]
        self._items = {self._partitions.key(item): item for item in self._plan.items}
        return list(self._items)

    def read(self, *, count: bool = True) -> None:
        """Read every partition. `ready`: the response has enough records, or an error, and is to be sent now.

        `count`: count the request in the topics' counters, the first time.
        """
        partitions, version = self._partitions, self._context.api_version
        client = self._client
        limit = left = self._limit
        whole_first_batch = version > HARD_LIMIT_VERSION
        count = count and not client.reads_again
        results = self._results = {}
        urgent = False
        session = self._plan.session if self._plan.incremental else None
        if session is not None:
            session.take_moved()
        for item in self._plan.items:
            try:
                if version < ZSTD_VERSION:
                    partitions.check_codec(item)
                data = partitions.read(item, left, whole_first_batch, client)
                size = _size(data)
                if size:
                    left = max(left - size, 0)
                    whole_first_batch = False
                urgent = urgent or self._is_urgent(item, data)
            except BrokerError as error:
                data = partitions.failed(item, error, version)
                urgent = True
            if count and item.counts is not None:
                item.counts.fetch_requests += 1
            if session is None or self._has_news(session, item, data):
                results[item] = data
        client.reads_again = True
        self._bytes = limit - left
        self.ready = urgent or self._bytes >= self._min_bytes

    def _has_news(self, session: FetchSession, item: FetchItem, data: PartitionData) -> bool:
        """Whether the session must read the item again even if it is not named and does not move. From now on its moves are noted."""
        if item.watched is None and not data.error_code:
            self._sessions.watch(session, item, self._partitions.key(item))
        if self._client.replica != CONSUMER:
            end = item.leader_end
        else:
            end = data.last_stable_offset if self._client.isolation == Isolation.READ_COMMITTED else data.high_watermark
        if item.has_news(data, end):
            return True
        session.pending.pop(item.key, None)
        return False

    def _is_urgent(self, item: FetchItem, data: PartitionData) -> bool:
        """Whether the response is to be sent now even without records."""
        if data.diverging_epoch.epoch != -1 or data.preferred_read_replica != NO_PREFERENCE:
            return True
        # DeleteRecords waits until followers have the new log start.
        return self._client.replica != CONSUMER and self._plan.incremental and -1 < item.log_start_offset != data.log_start_offset

    def read_moved(self, key: Hashable) -> None:
        """Read what moved. The others are as they were read, since every move is reported; there may be thousands.

        As in Kafka, min.bytes is compared with what each partition alone has. Only when that is more than the limit everything is
        read again.
        """
        session = self._plan.session if self._plan.incremental else None
        moved: Iterable[FetchItem] = [self._items[key]] if session is None else session.take_moved()
        whole_first_batch = self._context.api_version > HARD_LIMIT_VERSION
        urgent = False
        for item in moved:
            try:
                data = self._partitions.read(item, self._limit, whole_first_batch, self._client)
            except BrokerError:
                self.read()
                return
            if session is None or self._has_news(session, item, data):
                self._bytes += _size(data) - _size(self._results.get(item))
                self._results[item] = data
                urgent = urgent or self._is_urgent(item, data)
        enough = urgent or self._bytes >= self._min_bytes
        if self._bytes > self._limit:
            self.read()
        self.ready = enough

    def response(self) -> Fetched:
        """The response: all that was read, or only what changed since the session's last response; nothing for a client above its quota."""
        plan = self._plan
        quotas = self._quotas
        if quotas.active and self._client.replica < 0:
            pause_ms = quotas.fetched(self._context.principal, self._context.client_id, self._bytes)
            if pause_ms:
                return self._throttled(pause_ms)
        version = self._context.api_version
        results = list(self._results.items())
        if plan.session is not None:
            changed = [(item, data) for item, data in results if item.changed(data)]
            plan.session.served(item for item, data in changed if data.records is not None and len(data.records) > 0)
            if plan.incremental:
                results = changed
        if version < V2_BATCH_VERSION:
            for item, data in results:
                if not down_convert(data, 0 if version <= _MAGIC_0_VERSION_MAX else 1, item.fetch_offset):
                    self._partitions.failed_conversion(data.error_code)
        if self._client.replica >= 0:
            self._partitions.sent(results)
        if len(results) == 1:
            encoded = self._encoded(*results[0])
            if encoded is not None:
                return encoded
        topics: dict[tuple[str, bytes], FetchableTopicResponse] = {}
        for item, data in results:
            key = (item.topic, item.topic_id)
            topic = topics.get(key)
            if topic is None:
                topic = topics[key] = FetchableTopicResponse(topic=item.topic, topic_id=item.topic_id, partitions=[])
            topic.partitions.append(data)
            if data.records and item.counts is not None:
                item.counts.bytes_out += len(data.records)
        nodes = self._partitions.nodes(results, self._context) if version >= NODE_ENDPOINTS_VERSION else []
        return FetchResponse(session_id=plan.session_id, responses=list(topics.values()), node_endpoints=nodes)

    def _throttled(self, pause_ms: int) -> FetchResponse:
        """An empty response: the client repeats the request after the pause. An existing session then reports the same partitions."""
        plan = self._plan
        if plan.incremental:
            return FetchResponse(throttle_time_ms=pause_ms, session_id=plan.session_id, responses=[])
        if plan.session is not None:
            self._sessions.close(plan.session)
        return FetchResponse(throttle_time_ms=pause_ms, responses=[])

    def _encoded(self, item: FetchItem, data: PartitionData) -> EncodedResponse | None:
        """The response for one partition; None if it has more than records and offsets."""
        aborted, records = data.aborted_transactions, data.records
        if data.error_code or aborted or records is None or data.diverging_epoch is not _NO_DIVERGENCE:
            return None
        if data.preferred_read_replica != NO_PREFERENCE:
            return None
        encoded = self._responses.encoded(
            self._context.api_version,
            self._context.correlation_id,
            self._plan.session_id,
            item.topic,
            item.topic_id,
            item.partition,
            data.high_watermark,
            data.last_stable_offset,
            data.log_start_offset,
            cast(Part, records),
            committed=aborted is not None,
        )
        if encoded is not None and item.counts is not None:
            item.counts.bytes_out += len(records)
        return encoded


def failure(partition: int, error: BrokerError) -> PartitionData:
    """A partition's response with nothing but an error."""
    return PartitionData(partition_index=partition, error_code=error.code, high_watermark=-1, records=b"")


def _size(data: PartitionData | None) -> int:
    return 0 if data is None or data.records is None else len(data.records)
