"""One partition of a fetch: what the client requests of it, and what was found there."""

from __future__ import annotations

from txbroker.cluster.topic_counts import TopicCounts
from txbroker.errors import ErrorCode
from txbroker.log.log_results import AbortedTransaction, EpochEnd
from txbroker.log.region import EMPTY, Region
from txbroker.names import NULL_TOPIC_ID, TopicPartition
from txbroker.wire.messages.fetch import FetchPartition, LeaderIdAndEpoch

NO_PREFERENCE = -1  # of a replica from which the client should read instead

# The key of an item in a session.
Key = tuple[str, bytes, int]


class PartitionRead:
    """What was found: up to `size` bytes of records, and the offsets. `aborted`: None for read_uncommitted.

    `shared_key`: other fetches wait for the same (`PartitionReader.read_moved`); `block`: this partition in their responses, encoded for
    one version.
    """

    __slots__ = ("aborted", "block", "high_watermark", "last_stable_offset", "log_start_offset", "records", "shared_key", "size")

    is_usual = True
    """Whether there is nothing but this. The fields below are those of an `UnusualRead`."""
    error_code: int = ErrorCode.NONE
    diverging: EpochEnd | None = None
    preferred_replica: int = NO_PREFERENCE
    leader: LeaderIdAndEpoch | None = None

    def __init__(
        self,
        high_watermark: int,
        last_stable_offset: int,
        log_start_offset: int,
        records: Region | bytes = EMPTY,
        size: int = 0,
        aborted: list[AbortedTransaction] | None = None,
    ) -> None:
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.records = records
        self.size = size
        self.aborted = aborted
        self.block: tuple[int, bytes] | None = None
        self.shared_key: tuple[object, ...] | None = None


class UnusualRead(PartitionRead):
    """There are no records, as there is an error, or the client must truncate its log, or should read elsewhere.

    `leader`: the current one, for a client that is wrong about it (KIP-951).
    """

    __slots__ = ("diverging", "error_code", "leader", "preferred_replica")

    is_usual = False

    def __init__(
        self,
        high_watermark: int = -1,
        last_stable_offset: int = -1,
        log_start_offset: int = -1,
        *,
        error_code: int = ErrorCode.NONE,
        diverging: EpochEnd | None = None,
        preferred_replica: int = NO_PREFERENCE,
        leader: LeaderIdAndEpoch | None = None,
    ) -> None:
        super().__init__(high_watermark, last_stable_offset, log_start_offset, b"")
        self.error_code = error_code
        self.diverging = diverging
        self.preferred_replica = preferred_replica
        self.leader = leader


class FetchItem:
    """One partition that a client fetches, and the offsets that the client has received last.

    `place`: the partition's name, once it has been found. `is_watched`: its moves make the item pending in its session.
    """

    __slots__ = (
        "counts",
        "current_leader_epoch",
        "fetch_offset",
        "fetcher_log_start",
        "high_watermark",
        "is_out_of_sync",
        "is_throttled",
        "is_watched",
        "key",
        "last_fetched_epoch",
        "leader_end",
        "log_start_offset",
        "partition",
        "partition_max_bytes",
        "place",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str, topic_id: bytes, wanted: FetchPartition) -> None:
        self.counts: TopicCounts | None = None  # of its topic, once it has been found
        self.topic = topic
        self.topic_id = topic_id
        self.partition = wanted.partition
        self.key: Key = (topic, topic_id, wanted.partition)
        self.place: TopicPartition | None = None
        self.is_watched = False
        self.high_watermark = -1
        self.log_start_offset = -1
        self.is_out_of_sync = False  # the reader is a replica that is not in the ISR: each of its fetches shows whether it may join
        self.is_throttled = False  # its records count for the throttle of replication
        self.leader_end = -1  # where a replica had to stop when it was read last
        self.fetch_offset = wanted.fetch_offset
        self.fetcher_log_start = wanted.log_start_offset  # of a replica
        self.partition_max_bytes = wanted.partition_max_bytes
        self.current_leader_epoch = wanted.current_leader_epoch
        self.last_fetched_epoch = wanted.last_fetched_epoch

    def update(self, wanted: FetchPartition) -> None:
        """Take over what the client requests now."""
        self.fetch_offset = wanted.fetch_offset
        self.fetcher_log_start = wanted.log_start_offset
        self.partition_max_bytes = wanted.partition_max_bytes
        self.current_leader_epoch = wanted.current_leader_epoch
        self.last_fetched_epoch = wanted.last_fetched_epoch

    @property
    def is_by_id(self) -> bool:
        """Whether the request identified the topic by its id (Fetch v13+)."""
        return self.topic_id != NULL_TOPIC_ID

    def has_news(self, read: PartitionRead, end: int) -> bool:
        """Whether the next request of the session has to read the item again: for an incremental response, or for the ISR.

        `end`: where the reader must stop.
        """
        return (
            self.fetch_offset < end
            or read.high_watermark != self.high_watermark
            or read.log_start_offset != self.log_start_offset
            or not read.is_usual
            or self.is_out_of_sync
        )

    def changed(self, read: PartitionRead) -> bool:
        """Whether an incremental response must contain `read`; remembers its offsets."""
        moved = read.high_watermark != self.high_watermark or read.log_start_offset != self.log_start_offset
        self.high_watermark = read.high_watermark
        self.log_start_offset = read.log_start_offset
        if read.error_code:
            # An error is returned each time, and whatever follows it is new to the client.
            self.high_watermark = -1
            return True
        return moved or read.size > 0 or not read.is_usual
