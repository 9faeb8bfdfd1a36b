"""OffsetCommit, OffsetFetch and OffsetDelete (keys 8, 9, 47): the messages of committed offsets.

Behaviour: a commit for a topic that does not exist gets UNKNOWN_TOPIC_OR_PARTITION; without a commit the offset is -1. A broker of a
cluster that has just started, and knows no topic yet, answers a commit with NOT_COORDINATOR, which clients retry.
Version notes: OffsetCommit v0 and OffsetFetch v0, which Kafka kept in ZooKeeper once, use the same store as all others. OffsetCommit v2-v4
have a retention time. OffsetFetch v2 may request all topics, v8 several groups (KIP-709). v10 of both identifies topics by id (KIP-848).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from twisted.internet.defer import Deferred, succeed

from txbroker.api.admin_log import offsets_deleted
from txbroker.api.request_context import RequestContext
from txbroker.api.resources import AclOperation, AclResource, Need, Rights, on_group
from txbroker.cluster.image import ClusterImage
from txbroker.errors import BrokerError, ErrorCode
from txbroker.groups.coordinator import GroupCoordinator
from txbroker.groups.group_results import FetchedOffset, OffsetCommit
from txbroker.names import NULL_TOPIC_ID, TopicPartition
from txbroker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from txbroker.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from txbroker.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from txbroker.wire.schema import Request

TOPIC_ID_VERSION = 10
GROUPS_VERSION = 8
GROUP_ERROR_VERSION = 2  # before it, an error of the group is in each partition

Codes = dict[TopicPartition, ErrorCode]


def check_knows_topics(image: ClusterImage) -> None:
    """NOT_COORDINATOR before the metadata is complete: librdkafka's consumers do not retry UNKNOWN_TOPIC_OR_PARTITION."""
    if not image.is_complete:
        raise BrokerError(ErrorCode.NOT_COORDINATOR)


def _name(image: ClusterImage, name: str, topic_id: bytes) -> str | None:
    """The topic's name, looked up if the request has its id; None when there is no such topic."""
    if topic_id == NULL_TOPIC_ID:
        return name
    known = image.topic_by_id(topic_id)
    return None if known is None else known.name


class OffsetCommitHandler:
    """Commits offsets of a group; the response is sent when they are in `__consumer_offsets`."""

    request: type[Request] = OffsetCommitRequest
    rights: Rights = ((AclOperation.READ, AclResource.GROUP), (AclOperation.READ, AclResource.TOPIC))

    def __init__(self, coordinator: GroupCoordinator, image: ClusterImage) -> None:
        self._coordinator = coordinator
        self._image = image

    def __call__(self, request: OffsetCommitRequest, context: RequestContext) -> Deferred[OffsetCommitResponse]:
        check_knows_topics(self._image)
        known: dict[TopicPartition, OffsetCommit] = {}
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if context.api_version >= TOPIC_ID_VERSION else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for topic in request.topics:
            name = _name(self._image, topic.name, topic.topic_id)
            for p in topic.partitions:
                if name is not None and self._image.partition(name, p.partition_index) is not None:
                    known[TopicPartition(name, p.partition_index)] = OffsetCommit(
                        offset=p.committed_offset, leader_epoch=p.committed_leader_epoch, metadata=p.committed_metadata
                    )
        if not known:
            return succeed(self._answer(request, {}, unknown))
        done = self._coordinator.commit_offsets(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            known,
            request.retention_time_ms,
        )
        return done.addCallback(lambda codes: self._answer(request, codes, unknown))

    def _answer(self, request: OffsetCommitRequest, codes: Codes, otherwise: ErrorCode) -> OffsetCommitResponse:
        topics = []
        for topic in request.topics:
            name = _name(self._image, topic.name, topic.topic_id)
            missing = otherwise if name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            partitions = [
                OffsetCommitResponsePartition(
                    partition_index=p.partition_index, error_code=codes.get(TopicPartition(name or "", p.partition_index), missing)
                )
                for p in topic.partitions
            ]
            topics.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
        return OffsetCommitResponse(topics=topics)

    def resources(self, request: OffsetCommitRequest, context: RequestContext) -> Sequence[Need]:
        """READ on the group and on each topic. An unknown id is no topic's."""
        names = [_name(self._image, topic.name, topic.topic_id) for topic in request.topics]
        group = Need(AclOperation.READ, AclResource.GROUP, (request.group_id,))
        return group, Need(AclOperation.READ, AclResource.TOPIC, names, "topics", "topics")

    def failed(self, request: OffsetCommitRequest, context: RequestContext, error: BrokerError) -> OffsetCommitResponse:
        """Every partition with the same error."""
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    name=t.name,
                    topic_id=t.topic_id,
                    partitions=[
                        OffsetCommitResponsePartition(partition_index=p.partition_index, error_code=error.code) for p in t.partitions
                    ],
                )
                for t in request.topics
            ]
        )


class OffsetFetchHandler:
    """Returns the committed offsets of one group, or of several."""

    request: type[Request] = OffsetFetchRequest
    rights: Rights = ((AclOperation.DESCRIBE, AclResource.GROUP), (AclOperation.DESCRIBE, AclResource.TOPIC))

    def __init__(self, coordinator: GroupCoordinator, image: ClusterImage) -> None:
        self._coordinator = coordinator
        self._image = image

    def __call__(self, request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
        if context.api_version >= GROUPS_VERSION:
            by_id = context.api_version >= TOPIC_ID_VERSION
            return OffsetFetchResponse(
                groups=[self._group(group, request.require_stable, by_id, context) for group in _each_once(request.groups)]
            )
        wanted = None
        if request.topics is not None:
            wanted = [TopicPartition(t.name, p) for t in request.topics for p in t.partition_indexes]
        code, found = self._fetch(request.group_id, wanted, request.require_stable, context)
        if code != ErrorCode.NONE:
            if context.api_version >= GROUP_ERROR_VERSION:
                return OffsetFetchResponse(error_code=code)
            found = {topic_partition: FetchedOffset(error=code) for topic_partition in wanted or ()}
        return _old_answer(found)

    def _fetch(
        self, group_id: str, wanted: list[TopicPartition] | None, require_stable: bool, context: RequestContext
    ) -> tuple[ErrorCode, dict[TopicPartition, FetchedOffset]]:
        """The offsets of a group. A topic that the client may not describe has an error, and is left out of an answer with all topics."""
        code, found = self._coordinator.fetch_offsets(group_id, wanted, require_stable)
        if context.is_checked and code == ErrorCode.NONE:
            may_describe = partial(context.may, AclOperation.DESCRIBE, AclResource.TOPIC, logged=wanted is not None)
            denied = {topic for topic in {each.topic for each in found} if not may_describe(topic)}
            error = FetchedOffset(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            found = {
                each: error if each.topic in denied else o for each, o in found.items() if wanted is not None or each.topic not in denied
            }
        return code, found

    def _group(
        self, wanted: OffsetFetchRequestGroup, require_stable: bool, by_id: bool, context: RequestContext
    ) -> OffsetFetchResponseGroup:
        unknown: list[OffsetFetchResponseTopics] = []
        partitions: list[TopicPartition] | None = None
        if wanted.topics is not None:
            partitions = []
            for topic in wanted.topics:
                name = _name(self._image, topic.name, topic.topic_id)
                if name is None:
                    unknown.append(_unknown_topic(topic.topic_id, topic.partition_indexes))
                else:
                    partitions += [TopicPartition(name, p) for p in topic.partition_indexes]
        code, found = self._fetch(wanted.group_id, partitions, require_stable, context)
        if code != ErrorCode.NONE:
            return OffsetFetchResponseGroup(group_id=wanted.group_id, error_code=code)
        topics = []
        for name, offsets in _by_topic(found).items():
            topic_id = NULL_TOPIC_ID
            if by_id:
                image = self._image.topic(name)
                if image is None:  # deleted meanwhile: it has no id any more
                    continue
                topic_id = image.topic_id
            answers = [
                OffsetFetchResponsePartitions(
                    partition_index=index,
                    committed_offset=o.offset,
                    committed_leader_epoch=o.leader_epoch,
                    metadata=o.metadata,
                    error_code=o.error,
                )
                for index, o in offsets
            ]
            topics.append(OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=answers))
        return OffsetFetchResponseGroup(group_id=wanted.group_id, topics=topics + unknown)

    @staticmethod
    def resources(request: OffsetFetchRequest, context: RequestContext) -> Sequence[Need]:
        """DESCRIBE on each group. For topics the handler asks itself: all of a group may be requested."""
        if context.api_version >= GROUPS_VERSION:
            return (Need(AclOperation.DESCRIBE, AclResource.GROUP, [group.group_id for group in request.groups], "groups", "groups"),)
        return (Need(AclOperation.DESCRIBE, AclResource.GROUP, (request.group_id,)),)

    def failed(self, request: OffsetFetchRequest, context: RequestContext, error: BrokerError) -> OffsetFetchResponse:
        """The error for each group, before v2 for each partition."""
        if context.api_version >= GROUPS_VERSION:
            return OffsetFetchResponse(
                groups=[OffsetFetchResponseGroup(group_id=g.group_id, error_code=error.code) for g in request.groups]
            )
        if context.api_version < GROUP_ERROR_VERSION:
            wanted = [TopicPartition(t.name, p) for t in request.topics or () for p in t.partition_indexes]
            return _old_answer({topic_partition: FetchedOffset(error=error.code) for topic_partition in wanted})
        return OffsetFetchResponse(error_code=error.code)


def _old_answer(found: dict[TopicPartition, FetchedOffset]) -> OffsetFetchResponse:
    """Of versions for one group."""
    topics = []
    for name, offsets in _by_topic(found).items():
        partitions = [
            OffsetFetchResponsePartition(
                partition_index=index,
                committed_offset=o.offset,
                committed_leader_epoch=o.leader_epoch,
                metadata=o.metadata,
                error_code=o.error,
            )
            for index, o in offsets
        ]
        topics.append(OffsetFetchResponseTopic(name=name, partitions=partitions))
    return OffsetFetchResponse(topics=topics)


def _each_once(groups: Iterable[OffsetFetchRequestGroup]) -> Iterable[OffsetFetchRequestGroup]:
    """Each group once, with everything that is requested of it."""
    merged: dict[str, OffsetFetchRequestGroup] = {}
    for group in groups:
        known = merged.setdefault(group.group_id, group)
        if known is group or known.topics is None:
            continue
        if group.topics is None:
            known.topics = None
        else:
            known.topics.extend(group.topics)
    return merged.values()


def _unknown_topic(topic_id: bytes, indexes: Iterable[int]) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        topic_id=topic_id,
        partitions=[
            OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
            for index in indexes
        ],
    )


def _by_topic(found: dict[TopicPartition, FetchedOffset]) -> dict[str, list[tuple[int, FetchedOffset]]]:
    topics: dict[str, list[tuple[int, FetchedOffset]]] = {}
    for (topic, index), offset in found.items():
        topics.setdefault(topic, []).append((index, offset))
    return topics


class OffsetDeleteHandler:
    """Deletes offsets of a group that is not subscribed to the topics (KIP-496)."""

    request: type[Request] = OffsetDeleteRequest
    rights: Rights = ((AclOperation.DELETE, AclResource.GROUP), (AclOperation.READ, AclResource.TOPIC))
    resources = on_group(AclOperation.DELETE)

    def __init__(self, coordinator: GroupCoordinator, image: ClusterImage) -> None:
        self._coordinator = coordinator
        self._image = image

    def __call__(self, request: OffsetDeleteRequest, context: RequestContext) -> Deferred[OffsetDeleteResponse]:
        wanted = [TopicPartition(t.name, p.partition_index) for t in request.topics for p in t.partitions]
        denied = {t.name for t in request.topics if not context.may(AclOperation.READ, AclResource.TOPIC, t.name)}
        known = [each for each in wanted if each.topic not in denied and self._image.partition(*each) is not None]
        refused = {each: ErrorCode.TOPIC_AUTHORIZATION_FAILED for each in wanted if each.topic in denied}
        done = self._coordinator.delete_offsets(request.group_id, known)

        def respond(result: tuple[ErrorCode, Codes]) -> OffsetDeleteResponse:
            code, codes = result
            offsets_deleted(request.group_id, [each for each in known if code == ErrorCode.NONE == codes.get(each)], context)
            return self._answer(request, code, {**codes, **refused})

        return done.addCallback(respond)

    def _answer(self, request: OffsetDeleteRequest, code: ErrorCode, codes: Codes) -> OffsetDeleteResponse:
        if code != ErrorCode.NONE:
            return OffsetDeleteResponse(error_code=code, throttle_time_ms=0, topics=[])
        topics = [
            OffsetDeleteResponseTopic(
                name=t.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=p.partition_index,
                        error_code=codes.get(TopicPartition(t.name, p.partition_index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                    )
                    for p in t.partitions
                ],
            )
            for t in request.topics
        ]
        return OffsetDeleteResponse(error_code=ErrorCode.NONE, throttle_time_ms=0, topics=topics)

    def failed(self, request: OffsetDeleteRequest, context: RequestContext, error: BrokerError) -> OffsetDeleteResponse:
        """Only the error."""
        return OffsetDeleteResponse(error_code=error.code, throttle_time_ms=0, topics=[])
