"""Reads one partition for a fetch: what there is, where, and up to which offset. It knows nothing of requests and responses."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable

from txbroker.api.current_leaders import CurrentLeaders
from txbroker.api.fetch_item import NO_PREFERENCE, FetchClient, FetchItem, PartitionRead, Unusual
from txbroker.api.read_replica import ReadReplicas
from txbroker.api.request_counts import Errors
from txbroker.cluster.followers import FollowerFetch
from txbroker.cluster.local_replica import CONSUMER, Isolation
from txbroker.cluster.partition import Partition
from txbroker.cluster.replicas import Replicas
from txbroker.cluster.replication_quota import ReplicationQuota
from txbroker.errors import BrokerError, ErrorCode
from txbroker.log.region import EMPTY
from txbroker.names import NULL_TOPIC_ID, TopicPartition, amount
from txbroker.wire.compression import Codec
from txbroker.wire.messages.fetch import LeaderIdAndEpoch

ZSTD_VERSION = 10
CURRENT_LEADER_VERSION = 12

# Reads of at most this many bytes are shared by the fetches that are tried together: at most so many of them.
SHARED_BYTES_MAX = 8 * 1024
SHARED_READS_MAX = 16

logger = logging.getLogger("txbroker.api")

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
    """Reads partitions, and finds what a client must know of one that it cannot read."""

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
        self._shared: dict[tuple[object, ...], PartitionRead] = {}
        self._shared_in = 0  # the check of the purgatory

    def read(self, item: FetchItem, bytes_max: int, whole_first_batch: bool, client: FetchClient) -> PartitionRead:
        """Read one partition; BrokerError when it cannot be read."""
        place = item.place
        partition = None if place is None else self._replicas.find(place[0], place[1])
        if partition is None or (item.topic_id != NULL_TOPIC_ID and item.topic_id != partition.log.topic_id):
            partition = self._find(item)
        item.counts = partition.counts
        wanted = item.wanted
        epoch = wanted.current_leader_epoch
        if client.replica != CONSUMER:
            partition.check_leader(epoch)
            if client.replica >= 0:
                partition.check_replica(client.replica)
        elif client.any_replica:
            if epoch != -1 and epoch != partition.state.leader_epoch:
                partition.check_epoch(epoch)
        elif epoch != -1 or not partition.is_leader:
            partition.check_leader(epoch)
        log, offset = partition.log, wanted.fetch_offset
        high_watermark = partition.high_watermark
        stable = log.last_stable_offset(high_watermark)
        if client.rack:
            preferred = self._read_replicas.preferred(partition, client, offset)
            if preferred != NO_PREFERENCE:
                unusual = Unusual(preferred_replica=preferred)
                return PartitionRead(high_watermark, stable, log.log_start_offset, unusual=unusual)
        if wanted.last_fetched_epoch != -1:
            diverging = partition.diverging_epoch(wanted.last_fetched_epoch, offset)
            if diverging is not None:
                return PartitionRead(high_watermark, stable, log.log_start_offset, unusual=Unusual(diverging=diverging))
        if client.replica != CONSUMER:
            return self._read_as_replica(item, partition, min(wanted.partition_max_bytes, bytes_max), whole_first_batch, client)
        committed = client.isolation == Isolation.READ_COMMITTED
        end = stable if committed else high_watermark
        if offset == end:  # the usual place of a consumer
            return PartitionRead(high_watermark, stable, log.log_start_offset, EMPTY, 0, [] if committed else None)
        found = partition.read(offset, min(wanted.partition_max_bytes, bytes_max), end, whole_first_batch)
        aborted = partition.aborted_transactions(offset, found.end_offset) if committed else None
        region = found.region
        return PartitionRead(high_watermark, stable, log.log_start_offset, region, region.length, aborted)

    def _find(self, item: FetchItem) -> Partition:
        """The partition of this item, found by name or id; UNKNOWN_TOPIC_OR_PARTITION, for example, where there is none."""
        replicas, index = self._replicas, item.wanted.partition
        partition = replicas.get(item.topic, index) if item.topic_id == NULL_TOPIC_ID else replicas.get_by_id(item.topic_id, index)
        item.place = partition.topic_partition
        return partition

    def _read_as_replica(
        self, item: FetchItem, partition: Partition, bytes_max: int, whole_first_batch: bool, client: FetchClient
    ) -> PartitionRead:
        replica, offset = client.replica, item.wanted.fetch_offset
        item.leader_end = end = partition.log.log_end_offset
        found = partition.read(offset, bytes_max, end, whole_first_batch)
        region = found.region
        if replica >= 0:
            if not client.reads_again:
                partition.follower_fetched(
                    FollowerFetch(
                        replica, offset, end, self._monotonic_s(), item.wanted.log_start_offset, client.broker_epoch, client.session
                    )
                )
            item.is_out_of_sync = replica not in partition.state.isr
            item.is_throttled = self._quota.covers(partition)
            if item.is_throttled and item.is_out_of_sync and self._quota.is_exceeded:
                region = EMPTY
        committed = client.isolation == Isolation.READ_COMMITTED
        aborted = partition.aborted_transactions(offset, found.end_offset) if committed else None
        start = partition.log.log_start_offset
        return PartitionRead(partition.high_watermark, partition.last_stable_offset, start, region, region.length, aborted)

    def read_moved(self, item: FetchItem, bytes_max: int, whole_first_batch: bool, client: FetchClient, check: int) -> PartitionRead:
        """As `read`, for a fetch that waited. What several fetches wait for is read and encoded once.

        `check`: the number of the check of the purgatory, which tries these fetches together: what one of them has found, each of the
        others would find, too.
        """
        wanted = item.wanted
        if client.replica != CONSUMER or client.rack or wanted.last_fetched_epoch != -1:
            return self.read(item, bytes_max, whole_first_batch, client)
        if self._shared_in != check:
            self._shared.clear()
            self._shared_in = check
        key = (
            check,  # a fetch may respond in a later check with what it has read in this one
            item.place,
            item.topic_id,
            wanted.fetch_offset,
            min(wanted.partition_max_bytes, bytes_max),
            wanted.current_leader_epoch,
            client.isolation,
            client.any_replica,
            client.principal,
            whole_first_batch,
        )
        found = self._shared.get(key)
        if found is None:
            found = self.read(item, bytes_max, whole_first_batch, client)
            if 0 < found.size <= SHARED_BYTES_MAX:
                found.shared_key = key
        return found

    def share(self, key: tuple[object, ...], read: PartitionRead) -> None:
        """Keep what a fetch has found for the others of this check. Its records must be bytes: nothing else may keep a file open."""
        if len(self._shared) < SHARED_READS_MAX:
            self._shared[key] = read

    def sent(self, reads: Iterable[tuple[FetchItem, PartitionRead]]) -> None:
        """A replica receives these."""
        size = sum(read.size for item, read in reads if item.is_throttled)
        if size:
            self._quota.record(size)

    def check_codec(self, item: FetchItem) -> None:
        """UNSUPPORTED_COMPRESSION_TYPE for a client older than zstd (KIP-110) and a topic with compression.type=zstd."""
        if self._replicas.get(item.topic, item.partition).log.config.compression_type is Codec.ZSTD:
            raise BrokerError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"{item.topic} has zstd, which needs Fetch v{ZSTD_VERSION}")

    def failed(self, item: FetchItem, error: BrokerError, version: int) -> PartitionRead:
        """A partition's error; for a client at the wrong broker or epoch with the current leader (KIP-951)."""
        self._errors[error.code] += 1
        if error.code == ErrorCode.CORRUPT_MESSAGE:
            self._report_corrupt(item, error)
        if item.counts is not None and error.code not in _NO_FAILURES:
            item.counts.failed_fetch_requests += 1
        leader = None
        if error.code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH) and version >= CURRENT_LEADER_VERSION:
            current = self._leaders.of(*self.name(item))
            leader = LeaderIdAndEpoch(leader_id=current.leader_id, leader_epoch=current.leader_epoch)
        return PartitionRead(unusual=Unusual(error.code, leader=leader))

    def _report_corrupt(self, item: FetchItem, error: BrokerError) -> None:
        """Log it, the first, second, fourth, eighth time: clients repeat the fetch."""
        key = self.name(item)
        self._corrupt[key] += 1
        times = self._corrupt[key]
        if times & (times - 1) == 0:
            what = f"{error.message}; `txbroker log verify` shows the damage, `txbroker log repair` removes it"
            logger.error("%s cannot be read from offset %d on (%s so far): %s", key, item.wanted.fetch_offset, amount(times, "time"), what)

    def name(self, item: FetchItem) -> TopicPartition:
        """Its partition; the topic is "" if it has an unknown id."""
        topic = item.topic if item.topic_id == NULL_TOPIC_ID else self._replicas.topic_name(item.topic_id) or ""
        return TopicPartition(topic, item.partition)
