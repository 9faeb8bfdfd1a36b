"""Fetch (key 1): read record batches as file regions.

Partitions are read in the order of the request (of the session). The first batch is sent whole however large it is (KIP-74); what follows
only as far as max.bytes reaches. With fewer than min.bytes the request waits in the purgatory, at most max.wait.ms, until one of its
partitions moves, or until the next request of its session comes. An error of a partition is returned at once.

`FetchReader` reads any request; `SingleFetch` is the short way for the most frequent one.

Version notes: v0-v3 get batches converted to the old message formats (KIP-31); v4 isolation level; v7 sessions (KIP-227); v9 leader
epochs (KIP-320); v10 zstd (KIP-110); v11 consumers may read from followers (KIP-392, `read_replica.py`), up to the high watermark that
the follower knows: from there to its log's end they get nothing, and beyond it OFFSET_OUT_OF_RANGE, as in Kafka; v12 diverging epochs
(KIP-595) and current leaders, v16 their addresses (KIP-951); v13 topic ids (KIP-516); v15 a replica's broker epoch (KIP-903).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from txbroker.api.current_leaders import CurrentLeaders
from txbroker.api.encoded.fetch_response import FetchResponses
from txbroker.api.fetch_client import FetchClient
from txbroker.api.fetch_reading import Fetched, FetchReader, PartitionReader, failure
from txbroker.api.fetch_sessions import FetchItem, FetchPlan, FetchSessions
from txbroker.api.fetch_single import SingleFetches
from txbroker.api.parking import ParkedRequest
from txbroker.api.read_replica import ReadReplicas
from txbroker.api.request_context import RequestContext
from txbroker.api.request_counts import Errors
from txbroker.api.resources import in_place
from txbroker.client_quotas.quotas import ClientQuotas
from txbroker.cluster.image import ClusterImage
from txbroker.cluster.replicas import Replicas
from txbroker.cluster.replication_quota import ReplicationQuota
from txbroker.errors import BrokerError
from txbroker.purgatory import Purgatory
from txbroker.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse
from txbroker.wire.schema import Request

TOPIC_ID_VERSION = 13


class FetchHandler:
    """Reads, and parks requests that have fewer than min.bytes."""

    request: type[Request] = FetchRequest
    resources = staticmethod(in_place)
    overlaps = True

    def __init__(
        self,
        replicas: Replicas,
        image: ClusterImage,
        sessions: FetchSessions,
        purgatory: Purgatory,
        monotonic_s: Callable[[], float],
        *,
        leaders: CurrentLeaders,
        quota: ReplicationQuota,
        client_quotas: ClientQuotas,
        fetch_max_bytes: int,
        replica_selector: str | None = None,
    ) -> None:
        """`quota`: of what is sent to followers; `client_quotas`: to consumers. `fetch_max_bytes` and `replica_selector` are the keys
        fetch.max.bytes and replica.selector.class."""
        self._sessions = sessions
        self._purgatory = purgatory
        self._monotonic_s = monotonic_s
        self._fetch_max_bytes = fetch_max_bytes
        self._quotas = client_quotas
        self._responses = FetchResponses()
        self.errors: Errors = Counter()
        read_replicas = ReadReplicas(image, replica_selector)
        self.partitions = PartitionReader(replicas, leaders, self.errors, monotonic_s, read_replicas, quota)
        self.singles = SingleFetches(replicas, self._responses, purgatory, read_replicas, self._single_reader)

    def __call__(self, request: FetchRequest, context: RequestContext) -> Fetched | ParkedRequest[Fetched]:
        limit = min(request.max_bytes, self._fetch_max_bytes)
        if self._quotas.active and not self.is_exempt(request):
            window_bytes = self._quotas.fetch_bytes_max(context.principal, context.client_id)
            return self._read(request, limit if window_bytes is None else min(limit, window_bytes), context)
        single = self.singles.of(request, context, limit)
        if single is not None:
            encoded = single.response()
            if encoded is not None:
                single.partition.counts.fetch_requests += 1
                return encoded
            if request.max_wait_ms > 0 and not single.is_special:
                single.partition.counts.fetch_requests += 1
                return single.wait(request.max_wait_ms)
        return self._read(request, limit, context)

    def _read(self, request: FetchRequest, limit: int, context: RequestContext) -> Fetched | ParkedRequest[Fetched]:
        client = FetchClient.of(request, context)
        uses_ids = context.api_version >= TOPIC_ID_VERSION
        before = self._sessions.find(request.session_id)
        if before is not None:
            self._purgatory.expire(before)  # the fetch before it in the session, which waits: a follower has new partitions
        try:
            plan = self._sessions.plan(request, uses_ids, client, self._monotonic_s())
        except BrokerError as error:
            self.errors[error.code] += 1
            return FetchResponse(error_code=error.code, responses=[])
        reader = self._reader(plan, request.min_bytes, limit, client, context)
        reader.read()
        if reader.ready or request.max_wait_ms <= 0 or plan.is_empty:
            return reader.response()
        return _Waiting(reader).park(self._purgatory, reader.keys, request.max_wait_ms, internal=client.replica >= 0)

    def _single_reader(self, item: FetchItem, min_bytes: int, limit: int, client: FetchClient, context: RequestContext) -> FetchReader:
        return self._reader(FetchPlan([item], None, False), min_bytes, limit, client, context)

    def _reader(self, plan: FetchPlan, min_bytes: int, limit: int, client: FetchClient, context: RequestContext) -> FetchReader:
        return FetchReader(
            self.partitions,
            self._sessions,
            self._responses,
            plan,
            context,
            limit=limit,
            min_bytes=min_bytes,
            client=client,
            quotas=self._quotas,
        )

    @staticmethod
    def is_exempt(request: FetchRequest) -> bool:
        """A follower's fetch is subject to the throttles of replication instead."""
        return request.replica_id >= 0 or request.replica_state.replica_id >= 0

    def failed(self, request: FetchRequest, context: RequestContext, error: BrokerError) -> FetchResponse:
        """The error for the whole request, and from before v7 for each partition."""
        self.errors[error.code] += 1
        failures = [
            FetchableTopicResponse(
                topic=topic.topic, topic_id=topic.topic_id, partitions=[failure(p.partition, error) for p in topic.partitions]
            )
            for topic in request.topics
        ]
        return FetchResponse(error_code=error.code, responses=failures)


class _Waiting(ParkedRequest[Fetched]):
    """A fetch that waits for min.bytes (Kafka's DelayedFetch). Completes when they are there, or when a partition has an error, such as
    the loss of its leadership. Expired: it returns what there is."""

    __slots__ = ("_reader",)

    def __init__(self, reader: FetchReader) -> None:
        self._reader = reader

    def try_complete(self) -> bool:
        """Read again what moved; respond if it is enough."""
        self._reader.read_moved(self._purgatory.checked)
        if self._reader.ready:
            self.respond(self._reader.response())
            return True
        return False

    def on_expired(self) -> None:
        """max.wait.ms is over."""
        self._reader.read()
        self.respond(self._reader.response())
