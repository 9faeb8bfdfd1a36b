"""Fetch (key 1): read record batches as file regions.

Partitions are read in the order of the request (of the session). The first batch is sent whole however large it is (KIP-74); what follows
only as far as max.bytes reaches. With fewer than min.bytes the request waits in the purgatory, at most max.wait.ms, until one of its
partitions moves, or until the next request of its session comes. An error of a partition is returned at once.

    fetch_sessions.py    what a request fetches: its partitions, or those of its session that may have something new
    fetch_reading.py     `Fetch`, one request: reads its partitions, waits, reads again what moved
    fetch_partition.py   reads one partition
    fetch_response.py    makes the response of what was read

Version notes: v0-v3 get batches converted to the old message formats (KIP-31); v4 isolation level; v7 sessions (KIP-227); v9 leader
epochs (KIP-320); v10 zstd (KIP-110); v11 consumers may read from followers (KIP-392, `read_replica.py`), up to the high watermark that
the follower knows: from there to its log's end they get nothing, and beyond it OFFSET_OUT_OF_RANGE, as in Kafka; v12 diverging epochs
(KIP-595) and current leaders, v16 their addresses (KIP-951); v13 topic ids (KIP-516); v15 a replica's broker epoch (KIP-903).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from txbroker.api.current_leaders import CurrentLeaders
from txbroker.api.fetch_item import FetchClient, PartitionRead, Unusual
from txbroker.api.fetch_partition import PartitionReader
from txbroker.api.fetch_reading import Fetch, FetchParts
from txbroker.api.fetch_response import Fetched, FetchResponses, partition_data
from txbroker.api.fetch_sessions import FetchSessions
from txbroker.api.parking import ParkedRequest
from txbroker.api.read_replica import ReadReplicas
from txbroker.api.request_context import RequestContext
from txbroker.api.request_counts import Errors
from txbroker.api.resources import AclOperation, AclResource, Rights, in_place
from txbroker.client_quotas.quotas import ClientQuotas
from txbroker.cluster.image import ClusterImage
from txbroker.cluster.local_replica import CONSUMER
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
    rights: Rights = ((AclOperation.READ, AclResource.TOPIC), (AclOperation.CLUSTER_ACTION, AclResource.CLUSTER))
    refused: Sequence[AclResource] = (AclResource.TOPIC,)
    resources = staticmethod(in_place)  # a session has more partitions than the request: `Fetch` asks for each that it reads
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
        self._monotonic_s = monotonic_s
        self._fetch_max_bytes = fetch_max_bytes
        self.errors: Errors = Counter()
        partitions = PartitionReader(replicas, leaders, self.errors, monotonic_s, ReadReplicas(image, replica_selector), quota)
        responses = FetchResponses(leaders, self.errors, partitions.share)
        self.parts = FetchParts(partitions, sessions, responses, purgatory, client_quotas)
        self._consumer = FetchClient()  # of the last consumer's request

    def __call__(self, request: FetchRequest, context: RequestContext) -> Fetched | ParkedRequest[Fetched]:
        parts = self.parts
        limit = min(request.max_bytes, self._fetch_max_bytes)
        if parts.quotas.active and not self.is_exempt(request):
            window_bytes = parts.quotas.fetch_bytes_max(context.principal, context.client_id)
            limit = limit if window_bytes is None else min(limit, window_bytes)
        client = self._consumer
        if not client.is_of(request, context):
            client = FetchClient.of(request, context)
            if client.replica == CONSUMER:
                self._consumer = client
        before = parts.sessions.find(request.session_id, client)
        if before is not None and before in parts.purgatory.watched:
            parts.purgatory.expire(before)  # the fetch before it in the session, which waits: a follower has new partitions
        try:
            uses_ids = context.api_version >= TOPIC_ID_VERSION
            plan = items, session, _ = parts.sessions.plan(before, request, uses_ids, client, self._monotonic_s())
        except BrokerError as error:
            self.errors[error.code] += 1
            return FetchResponse(error_code=error.code, responses=[])
        fetch = Fetch(parts, plan, client, context, limit=limit, min_bytes=request.min_bytes)
        if fetch.read(is_first=True) or request.max_wait_ms <= 0 or not (items or session):
            return fetch.response()
        return fetch.wait(request.max_wait_ms)

    @staticmethod
    def is_exempt(request: FetchRequest) -> bool:
        """A follower's fetch is subject to the throttles of replication instead."""
        return request.replica_id >= 0 or request.replica_state.replica_id >= 0

    def failed(self, request: FetchRequest, context: RequestContext, error: BrokerError) -> FetchResponse:
        """The error for the whole request, and from before v7 for each partition."""
        self.errors[error.code] += 1
        read = PartitionRead(unusual=Unusual(error.code))
        failures = [
            FetchableTopicResponse(
                topic=topic.topic, topic_id=topic.topic_id, partitions=[partition_data(p.partition, read) for p in topic.partitions]
            )
            for topic in request.topics
        ]
        return FetchResponse(error_code=error.code, responses=failures)
