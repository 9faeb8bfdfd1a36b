"""What a fetch consists of: its sender, the partitions that it reads, and what was found there."""

from __future__ import annotations

from typing import NamedTuple

from txbroker.api.request_context import RequestContext
from txbroker.cluster.followers import UNKNOWN_EPOCH, SessionUse
from txbroker.cluster.local_replica import CONSUMER
from txbroker.cluster.topic_counts import TopicCounts
from txbroker.errors import ErrorCode
from txbroker.lazy_dataclass import lazy_dataclass
from txbroker.log.log_results import AbortedTransaction, EpochEnd
from txbroker.log.region import EMPTY, Region
from txbroker.names import TopicPartition
from txbroker.security.principals import ANONYMOUS
from txbroker.wire.messages.fetch import FetchPartition, FetchRequest, LeaderIdAndEpoch

NO_PREFERENCE = -1  # of a replica from which the client should read instead
ANY_REPLICA_VERSION = 11  # from here on consumers may read from followers


@lazy_dataclass(slots=True, eq=False)
class FetchClient:
    """A consumer (`replica` is CONSUMER), or a replica with its broker epoch. Other negative ids: Kafka's tools, which read everything.

    `principal`: who it is; another one has no access to its session, and shares no reads with it.
    `isolation`, `rack` ("": none) and `listener`: of a consumer. `any_replica`: it may read from followers.

    Of a replica's request only: `session`: when the fetch session was used last; None without a session. `reads_again`: the request waits,
    and its partitions are read again: only the first reading shows where a replica's log ends now.
    """

    replica: int = CONSUMER
    broker_epoch: int = UNKNOWN_EPOCH
    isolation: int = 0
    rack: str = ""
    listener: str = ""
    any_replica: bool = False
    principal: str = ANONYMOUS
    session: SessionUse | None = None
    reads_again: bool = False

    def is_of(self, request: FetchRequest, context: RequestContext) -> bool:
        """Whether this is the sender of a request, and a consumer: requests of the same kind of consumer share it."""
        return (
            self.replica == CONSUMER == request.replica_id
            and request.replica_state.replica_id == CONSUMER
            and self.isolation == request.isolation_level
            and self.rack == request.rack_id
            and self.listener == context.session.listener
            and self.principal == context.session.principal
            and self.any_replica == (context.api_version >= ANY_REPLICA_VERSION)
        )

    @classmethod
    def of(cls, request: FetchRequest, context: RequestContext) -> FetchClient:
        """The sender of a request."""
        replica, broker_epoch, session = request.replica_id, UNKNOWN_EPOCH, context.session
        if replica == CONSUMER:
            replica, broker_epoch = request.replica_state.replica_id, request.replica_state.replica_epoch
        any_replica = replica == CONSUMER and context.api_version >= ANY_REPLICA_VERSION
        return cls(replica, broker_epoch, request.isolation_level, request.rack_id, session.listener, any_replica, session.principal)


class Unusual(NamedTuple):
    """Why there are no records: an error, or the client must truncate its log, or should read elsewhere.

    `leader`: the current one, for a client that is wrong about it (KIP-951).
    """

    error_code: int = ErrorCode.NONE
    diverging: EpochEnd | None = None
    preferred_replica: int = NO_PREFERENCE
    leader: LeaderIdAndEpoch | None = None


@lazy_dataclass(slots=True, eq=False)
class PartitionRead:
    """What was found: up to `size` bytes of records, and the offsets. `aborted`: None for read_uncommitted.

    `shared_key`: other fetches wait for the same (`PartitionReader.read_moved`); `block`: this partition in their responses, encoded for
    one version.
    """

    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: Region | bytes = EMPTY
    size: int = 0
    aborted: list[AbortedTransaction] | None = None
    unusual: Unusual | None = None
    block: tuple[int, bytes] | None = None
    shared_key: tuple[object, ...] | None = None


@lazy_dataclass(slots=True, eq=False)
class FetchItem:
    """One partition that a client fetches, and the offsets that the client has received last. `wanted`: what it requests now.

    `topic_id` is NULL_TOPIC_ID if the request identified the topic by its name (before Fetch v13).
    """

    topic: str
    topic_id: bytes
    wanted: FetchPartition
    counts: TopicCounts | None = None  # of its topic, once it has been found
    place: TopicPartition | None = None  # the partition's name, once it has been found
    is_watched: bool = False  # its moves make it pending in its session
    high_watermark: int = -1
    log_start_offset: int = -1
    is_out_of_sync: bool = False  # the reader is a replica that is not in the ISR: each of its fetches shows whether it may join
    is_throttled: bool = False  # its records count for the throttle of replication
    leader_end: int = -1  # where a replica had to stop when it was read last

    @property
    def partition(self) -> int:
        return self.wanted.partition

    def changed(self, read: PartitionRead) -> bool:
        """Whether an incremental response must contain `read`; remembers its offsets."""
        moved = read.high_watermark != self.high_watermark or read.log_start_offset != self.log_start_offset
        self.high_watermark = read.high_watermark
        self.log_start_offset = read.log_start_offset
        if read.unusual is None:
            return moved or read.size > 0
        if read.unusual.error_code:
            self.high_watermark = -1  # an error is returned each time, and whatever follows it is new to the client
        return True
