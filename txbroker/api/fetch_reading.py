"""One fetch: its partitions are read when it comes, and again when they move, until there is enough for a response.

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
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from txbroker.api.authorization import denial
from txbroker.api.fetch_item import FetchClient, FetchItem, PartitionRead
from txbroker.api.fetch_partition import ZSTD_VERSION, PartitionReader
from txbroker.api.fetch_response import Fetched, FetchResponses
from txbroker.api.fetch_sessions import FetchSession, FetchSessions, Plan
from txbroker.api.parking import ParkedRequest
from txbroker.api.request_context import RequestContext
from txbroker.api.resources import AclOperation, AclResource
from txbroker.client_quotas.quotas import ClientQuotas
from txbroker.cluster.local_replica import CONSUMER, Isolation
from txbroker.errors import BrokerError, ErrorCode
from txbroker.purgatory import Purgatory
from txbroker.wire.messages.fetch import FetchResponse

log = logging.getLogger("txbroker.api")

HARD_LIMIT_VERSION = 2  # up to here max.bytes holds even if the first batch is larger


class FetchParts(NamedTuple):
    """What all fetches of a broker use."""

    partitions: PartitionReader
    sessions: FetchSessions
    responses: FetchResponses
    purgatory: Purgatory
    quotas: ClientQuotas


class Fetch(ParkedRequest[Fetched]):
    """The partitions of one request, what was read of them, and the response.

    While it waits for min.bytes it is Kafka's DelayedFetch: it completes when they are there, or when a partition has an error, such as the
    loss of its leadership. Expired: it returns what there is. Thousands may wait, so it is few objects.
    """

    __slots__ = ("_by_place", "_bytes", "_client", "_context", "_is_checked", "_items", "_limit", "_min_bytes", "_parts", "_reads",
                 "_watching", "session")  # fmt: skip

    _by_place: dict[Hashable, FetchItem]  # of several, without a session

    def __init__(
        self, parts: FetchParts, plan: Plan, client: FetchClient, context: RequestContext, *, limit: int, min_bytes: int
    ) -> None:
        """`limit`: how many bytes of records the response may have."""
        self._parts = parts
        self._client = client
        self._context = context
        self._is_checked = context.is_checked or context.api_version < ZSTD_VERSION
        self._items, self.session, incremental = plan
        self._watching = self.session if incremental else None  # the session, if only news of it are returned
        self._limit = limit
        self._min_bytes = min(min_bytes, limit)
        self._reads: dict[FetchItem, PartitionRead] = {}
        self._bytes = 0  # of records in these

    def wait(self, timeout_ms: int) -> Fetch:
        """Wait until something moves that the fetch reads, at most for the timeout.

        Each item has been found: one that could not be read is an error, which does not wait.
        """
        keys: Sequence[Hashable]
        if self._watching is not None:
            keys = (self._watching,)
        elif len(self._items) == 1:
            keys = (self._items[0].place,)
        else:
            self._by_place = {item.place: item for item in self._items}
            keys = tuple(self._by_place)
        return self.park(self._parts.purgatory, keys, timeout_ms, internal=self._client.replica >= 0)

    def read(self, *, is_first: bool = False) -> bool:
        """Read every partition that may have something new. Returns whether to respond now: with enough records, or with an error."""
        parts, client, version = self._parts, self._client, self._context.api_version
        partitions, session, items = parts.partitions, self._watching, self._items
        if session is not None and not is_first:
            session.moved = {}
            items = self._items = list(session.pending)
        left, size = self._limit, 0
        whole_first_batch = version > HARD_LIMIT_VERSION
        reads = self._reads = {}
        is_urgent = False
        is_checked = self._is_checked
        for item in items:
            try:
                if is_checked:
                    self._check(item)
                read = partitions.read(item, left, whole_first_batch, client)
                if read.size:
                    size += read.size
                    left = max(left - read.size, 0)  # the first batch may be larger than the limit
                    whole_first_batch = False
                is_urgent = is_urgent or read.unusual is not None or (client.replica != CONSUMER and self._has_new_start(item, read))
            except BrokerError as error:
                read = partitions.failed(item, error, version)
                is_urgent = True
            except Exception:  # a defect: other partitions can be read
                log.exception("internal error reading %s", partitions.name(item))
                read = partitions.failed(item, BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR), version)
                is_urgent = True
            if is_first and item.counts is not None:
                item.counts.fetch_requests += 1
            if session is None or self._has_news(session, item, read):
                reads[item] = read
        if client.replica != CONSUMER:
            client.reads_again = True
        self._bytes = size
        return is_urgent or self._bytes >= self._min_bytes

    def _check(self, item: FetchItem) -> None:
        """BrokerError if the client may not read this, or its version cannot have the topic's records."""
        if self._context.is_checked:
            self._authorize(item)
        if self._context.api_version < ZSTD_VERSION:
            self._parts.partitions.check_codec(item)

    def _authorize(self, item: FetchItem) -> None:
        """TOPIC_AUTHORIZATION_FAILED if the client may not read this; a replica needs the cluster. An unknown id is no topic's."""
        name = self._parts.partitions.name(item).topic
        if self._client.replica >= 0:
            may = self._context.may(AclOperation.CLUSTER_ACTION, AclResource.CLUSTER)
        else:
            may = not name or self._context.may(AclOperation.READ, AclResource.TOPIC, name)
        if not may:
            raise denial(AclResource.TOPIC)

    def _check_others(self) -> None:
        """Leave out what the client may not read any more: not all that is sent was read just now."""
        reads, partitions = self._reads, self._parts.partitions
        for item, read in list(reads.items()):
            try:
                self._authorize(item)
            except BrokerError as error:
                reads[item] = partitions.failed(item, error, self._context.api_version)
                self._bytes -= read.size

    def _has_news(self, session: FetchSession, item: FetchItem, read: PartitionRead) -> bool:
        """Whether the session must read the item again even if it is not named and does not move: for an incremental response, or for the
        ISR. From now on its moves are noted."""
        if not item.is_watched and read.unusual is None:
            self._parts.sessions.watch(session, item)
        client = self._client
        if client.replica != CONSUMER:
            end = item.leader_end
        else:
            end = read.last_stable_offset if client.isolation == Isolation.READ_COMMITTED else read.high_watermark
        has_news = (
            item.wanted.fetch_offset < end
            or read.high_watermark != item.high_watermark
            or read.log_start_offset != item.log_start_offset
            or read.unusual is not None
            or item.is_out_of_sync
        )
        if not has_news:
            session.pending.pop(item, None)
        return has_news

    def _has_new_start(self, item: FetchItem, read: PartitionRead) -> bool:
        """Whether a follower must know the new start of the log now: DeleteRecords waits until followers have it."""
        return self._watching is not None and -1 < item.log_start_offset != read.log_start_offset

    def read_moved(self) -> bool:
        """Read what moved, and return whether to respond now. The others are as they were read, since every move is reported.

        As in Kafka, min.bytes is compared with what each partition alone has. Only when that is more than the limit everything is
        read again.
        """
        partitions, client, session, reads = self._parts.partitions, self._client, self._watching, self._reads
        purgatory = self._purgatory
        if session is not None:
            moved, session.moved = list(session.moved), {}
        elif len(self._items) == 1:
            moved = self._items
        else:
            moved = [self._by_place[purgatory.checked]]
        whole_first_batch = self._context.api_version > HARD_LIMIT_VERSION
        is_urgent = False
        is_checked = self._is_checked
        for item in moved:
            try:
                if is_checked:
                    self._check(item)
                read = partitions.read_moved(item, self._limit, whole_first_batch, client, purgatory.checks)
            except Exception:  # which is answered, for this partition
                return self.read()
            if session is None or self._has_news(session, item, read):
                before = reads.get(item)
                self._bytes += read.size if before is None else read.size - before.size
                reads[item] = read
                is_urgent = is_urgent or read.unusual is not None or (client.replica != CONSUMER and self._has_new_start(item, read))
        is_enough = is_urgent or self._bytes >= self._min_bytes
        if self._bytes > self._limit:
            self.read()
        return is_enough

    def response(self) -> Fetched:
        """All that was read, or only what changed since the session's last response; nothing for a client above its quota."""
        parts, context, session, reads = self._parts, self._context, self.session, self._reads
        if parts.quotas.active and self._client.replica < 0:
            pause_ms = parts.quotas.fetched(context.principal, context.client_id, self._bytes)
            if pause_ms:
                return self._throttled(pause_ms)
        if session is None:
            session_id = 0
        else:
            session_id = session.session_id
            changed: dict[FetchItem, PartitionRead] = {}
            for item, read in reads.items():
                if item.changed(read):
                    changed[item] = read
            session.served(changed)
            if self._watching is not None:
                reads = changed
        if self._client.replica >= 0:
            parts.partitions.sent(reads.items())
        encoded = parts.responses.encoded(context.api_version, context.correlation_id, session_id, reads)
        return parts.responses.message(context, session_id, reads) if encoded is None else encoded

    def _throttled(self, pause_ms: int) -> Fetched:
        """An empty response: the client repeats the request after the pause. An existing session then reports the same partitions."""
        session = self.session
        if session is not None and self._watching is None:
            self._parts.sessions.remove(session.session_id)
            session = None
        return FetchResponse(throttle_time_ms=pause_ms, session_id=0 if session is None else session.session_id, responses=[])

    def try_complete(self) -> bool:
        """Read again what moved; respond if it is enough."""
        if not self.read_moved():
            return False
        if self._context.is_checked and len(self._reads) > 1:
            self._check_others()
        self.respond(self.response())
        return True

    def on_expired(self) -> None:
        """max.wait.ms is over."""
        self.read()
        self.respond(self.response())
