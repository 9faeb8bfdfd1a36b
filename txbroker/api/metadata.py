"""Metadata (key 3): brokers, topics, and the leaders of partitions.

Behaviour: a topic that is requested by name and does not exist is created if both the client and auto.create.topics.enable allow it. The
response is sent when it has leaders, at the latest after topic_creation.WAIT_MS, then with UNKNOWN_TOPIC_OR_PARTITION, as Kafka 4 answers
at once. Addresses are those of the client's listener. A partition whose leader is not alive has LEADER_NOT_AVAILABLE, one whose leader
lacks the client's listener LISTENER_NOT_FOUND; both without a leader. A broker that has just started waits until it has all metadata from
the controller, at most FIRST_BROKERS_WAIT_MS, and then answers LEADER_NOT_AVAILABLE for each topic that it does not know: Kafka's brokers
answer at once, with UNKNOWN_TOPIC_OR_PARTITION, which fails clients. Responses without errors of topics are cached until the cluster image
changes.
Version notes: v0 requests all topics by an empty list, later versions by null; v4 may forbid auto-creation; v6 LISTENER_NOT_FOUND,
LEADER_NOT_AVAILABLE before it; v8-v10 have authorized operations of the cluster; v10 topic ids, v12 topics requested by id.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred

from txbroker.api.authorized_operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS, authorized_operations
from txbroker.api.encoded.cached_response import CachedResponse, ResponseCache
from txbroker.api.endpoints import Endpoints
from txbroker.api.request_context import RequestContext
from txbroker.api.resources import AclOperation, AclResource, Rights, in_place
from txbroker.api.topic_creation import TopicCreation
from txbroker.api.topic_waiting import TopicWaiting
from txbroker.cluster.image import ClusterImage, PartitionImage, TopicImage
from txbroker.cluster.node_data import NO_LEADER
from txbroker.errors import BrokerError, ErrorCode
from txbroker.names import INTERNAL_TOPICS, NULL_TOPIC_ID, check_topic_name
from txbroker.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from txbroker.wire.schema import Request

ALL_BY_EMPTY_VERSION = 0
LISTENER_ERROR_VERSION = 6
TOPIC_ID_VERSION = 12
FIRST_BROKERS_WAIT_MS = 3000

# Of all cached responses together; a partition takes some 40 bytes, and a topic or a response counts as five.
CACHED_PARTITIONS_MAX = 200_000
CACHED_TOPIC_WEIGHT = 5


class MetadataHandler:
    """Answers from the cluster image, and creates missing topics if that is allowed."""

    request: type[Request] = MetadataRequest
    rights: Rights = (
        (AclOperation.DESCRIBE, AclResource.TOPIC),
        (AclOperation.CREATE, AclResource.CLUSTER),
        (AclOperation.CREATE, AclResource.TOPIC),
    )
    refused: Sequence[AclResource] = (AclResource.TOPIC,)
    resources = staticmethod(in_place)

    def __init__(
        self, image: ClusterImage, endpoints: Endpoints, creation: TopicCreation, waiting: TopicWaiting, cluster_id: str
    ) -> None:
        self._image = image
        self._endpoints = endpoints
        self._creation = creation
        self._waiting = waiting
        self._cluster_id = cluster_id
        self._cache = ResponseCache(CACHED_PARTITIONS_MAX)

    def __call__(self, request: MetadataRequest, context: RequestContext) -> CachedResponse | MetadataResponse | Deferred[Any]:
        if not self._image.is_complete:
            return self._waiting.brokers(FIRST_BROKERS_WAIT_MS).addCallback(lambda _: self._now(request, context))
        return self._now(request, context)

    def _now(self, request: MetadataRequest, context: RequestContext) -> CachedResponse | MetadataResponse | Deferred[MetadataResponse]:
        session, image = context.session, self._image
        # Everything that a response depends on besides the image.
        wanted = request.topics
        key = (
            session.principal,
            None if wanted is None else tuple([(topic.name, topic.topic_id) for topic in wanted]),
            context.api_version,
            session.listener,
            session.local_host,
            request.include_topic_authorized_operations,
            request.include_cluster_authorized_operations,
        )
        cached = None if context.is_checked else self._cache.get(image.version, key)
        if cached is not None:
            return cached
        if wanted is not None and request.allow_auto_topic_creation:
            missing = [t.name for t in wanted if t.topic_id == NULL_TOPIC_ID and t.name is not None and image.topic(t.name) is None]
            missing = [name for name in missing if _may_describe(name, context, logged=False)]
            if missing:
                created = self._creation.on_demand([name for name in missing if _may_create(name, context, logged=False)], context)
                if created is not None:
                    denied = {name: ErrorCode.TOPIC_AUTHORIZATION_FAILED for name in missing if not _may_create(name, context, logged=True)}
                    return created.addCallback(lambda failures: self._answer(request, context, {**failures, **denied}))
        response = self._answer(request, context, {})
        if context.is_checked or any(topic.error_code for topic in response.topics):
            return response
        topics = 1 + len(wanted or ()) + len(response.topics)
        weight = CACHED_TOPIC_WEIGHT * topics + sum(len(topic.partitions) for topic in response.topics)
        return self._cache.keep(image.version, key, response, weight)

    def _answer(self, request: MetadataRequest, context: RequestContext, failures: Mapping[str, ErrorCode]) -> MetadataResponse:
        operations = partial(_topic_operations, request.include_topic_authorized_operations, context)
        errors = self._endpoints.leader_errors(context)
        if context.api_version < LISTENER_ERROR_VERSION:
            errors = {broker: error for broker, error in errors.items() if not error}
        everything = request.topics is None or (context.api_version == ALL_BY_EMPTY_VERSION and not request.topics)
        if everything:
            found = [topic for name, topic in sorted(self._image.topics.items()) if _may_describe(name, context, logged=False)]
            topics = [_topic(topic, operations(topic.name), errors) for topic in found]
        else:
            # A topic that is named twice is returned once, as in Kafka.
            wanted = {(topic.name, topic.topic_id): topic for topic in request.topics or ()}.values()
            topics = [self._wanted(topic, operations, errors, context, failures) for topic in wanted]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=n.id, host=n.host, port=n.port, rack=n.rack) for n in self._endpoints.nodes(context)],
            cluster_id=self._cluster_id,
            controller_id=self._image.controller_id,
            topics=topics,
            cluster_authorized_operations=authorized_operations(
                request.include_cluster_authorized_operations, CLUSTER_OPERATIONS, context, AclResource.CLUSTER
            ),
        )

    def _wanted(
        self,
        wanted: MetadataRequestTopic,
        operations: Callable[[str], int],
        errors: Mapping[int, ErrorCode],
        context: RequestContext,
        failures: Mapping[str, ErrorCode],
    ) -> MetadataResponseTopic:
        version = context.api_version
        if wanted.topic_id != NULL_TOPIC_ID:
            found = self._image.topic_by_id(wanted.topic_id)
            if version < TOPIC_ID_VERSION:
                return _missing("" if wanted.name is None else wanted.name, wanted.topic_id, ErrorCode.INVALID_REQUEST)
            if found is None:
                return _missing(None, wanted.topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
            if not _may_describe(found.name, context):
                return _missing(None, wanted.topic_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            return _topic(found, operations(found.name), errors)
        name = wanted.name
        if name is None:
            return _missing(None if version >= TOPIC_ID_VERSION else "", NULL_TOPIC_ID, ErrorCode.INVALID_REQUEST)
        if not _may_describe(name, context):
            return _missing(name, NULL_TOPIC_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        found = self._image.topic(name)
        if found is not None:
            return _topic(found, operations(name), errors)
        if name in failures:
            return _missing(name, NULL_TOPIC_ID, failures[name])
        try:
            check_topic_name(name)
        except BrokerError as error:
            return _missing(name, NULL_TOPIC_ID, error.code)
        # The topic may exist as long as the image is not complete: librdkafka's producers refuse records of topics that do not exist.
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if self._image.is_complete else ErrorCode.LEADER_NOT_AVAILABLE
        return _missing(name, NULL_TOPIC_ID, code)

    def failed(self, request: MetadataRequest, context: RequestContext, error: BrokerError) -> MetadataResponse:
        """Every topic with the same error."""
        by_id = context.api_version >= TOPIC_ID_VERSION
        topics = [_missing(t.name if by_id else t.name or "", t.topic_id, error.code) for t in request.topics or ()]
        return MetadataResponse(brokers=[], topics=topics, error_code=error.code)


def _may_describe(name: str, context: RequestContext, *, logged: bool = True) -> bool:
    return not context.is_checked or context.may(AclOperation.DESCRIBE, AclResource.TOPIC, name, logged=logged)


def _may_create(name: str, context: RequestContext, *, logged: bool) -> bool:
    """Whether a missing topic may be created, or will be answered with the error for one that may not be described."""
    may = context.may
    return may(AclOperation.CREATE, AclResource.CLUSTER, logged=False) or may(AclOperation.CREATE, AclResource.TOPIC, name, logged=logged)


def _topic_operations(requested: bool, context: RequestContext, name: str) -> int:
    return authorized_operations(requested, TOPIC_OPERATIONS, context, AclResource.TOPIC, name)


def _missing(name: str | None, topic_id: bytes, code: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=name, topic_id=topic_id, is_internal=name in INTERNAL_TOPICS, partitions=[])


def _topic(topic: TopicImage, operations: int, errors: Mapping[int, ErrorCode]) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            _partition(index, partition, errors.get(partition.leader, ErrorCode.LEADER_NOT_AVAILABLE))
            for index, partition in topic.partitions.items()
        ],
        topic_authorized_operations=operations,
    )


def _partition(index: int, partition: PartitionImage, error: ErrorCode) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        error_code=error,
        partition_index=index,
        leader_id=NO_LEADER if error else partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=list(partition.offline_replicas),
    )
