"""Committed offsets of consumer groups: translated through the offset maps, and committed on the target.

A group's offset is the next one that it reads. On the target it is the offset of the first record there that the group has not read in the
source, within the target's start and end. It is committed with leader epoch -1, because a consumer that has a higher epoch than the
target's partition asks for metadata again and again. Only for groups without members on the target, and never below what is committed
there: such a group has moved.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from twisted.internet.task import deferLater

from txbroker.client.client_errors import ClientError, RequestFailed
from txbroker.client.offset_requests import EARLIEST, LATEST
from txbroker.client.topic_leaders import RETRIABLE
from txbroker.errors import ErrorCode
from txbroker.mirror.cluster import Cluster
from txbroker.mirror.partition import PartitionCopy, State
from txbroker.names import TopicPartition
from txbroker.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from txbroker.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from txbroker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from txbroker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

log = logging.getLogger("txbroker.mirror")

RETRY_S, RETRIES = 0.2, 50
INACTIVE = ("Empty", "Dead")
NO_OFFSET = -1
_NAMES_VERSION = 9  # the newest of OffsetFetch and OffsetCommit with names of topics instead of ids
_GROUPS_VERSION = 8  # of OffsetFetch: several groups in a request


class Committed(NamedTuple):
    """An offset that a group has committed."""

    offset: int
    metadata: str


@dataclass(slots=True)
class GroupStatus:
    """One group: how many partitions' offsets were committed on the target in this run, and why none are now, if so."""

    commits: int = 0
    problem: str = ""


class GroupOffsets:
    """`copies` are the partitions that are copied. `statuses` by group."""

    def __init__(
        self, source: Cluster, target: Cluster, pattern: re.Pattern[str], copies: Mapping[TopicPartition, PartitionCopy], reactor: Any
    ) -> None:
        self.statuses: dict[str, GroupStatus] = {}
        self._source = source
        self._target = target
        self._pattern = pattern
        self._copies = copies
        self._reactor = reactor

    async def copy(self) -> None:
        """Commit what has changed, for all groups that match; ClientError if the source's groups cannot be listed."""
        for group in await self._groups():
            status = self.statuses.setdefault(group, GroupStatus())
            try:
                problem = await self._copy_in_time(group, status)
            except ClientError as error:
                problem = str(error)
            if problem and problem != status.problem:
                log.warning("group %s: %s", group, problem)
            status.problem = problem

    async def _copy_in_time(self, group: str, status: GroupStatus) -> str:
        """As `_copy`, again while a coordinator is not ready: a cluster creates its topic of offsets with the first group."""
        for _ in range(RETRIES):
            try:
                return await self._copy(group, status)
            except RequestFailed as failed:
                if failed.code not in RETRIABLE:
                    raise
            await deferLater(self._reactor, RETRY_S)
        return await self._copy(group, status)

    async def _groups(self) -> list[str]:
        found: set[str] = set()
        for node in list(self._source.brokers):
            response: ListGroupsResponse = await self._source.ask(ListGroupsRequest(), node)
            if response.error_code:
                raise RequestFailed("the groups of the source cannot be listed", response.error_code)
            found.update(group.group_id for group in response.groups)
        return sorted(group for group in found if self._pattern.fullmatch(group))

    async def _copy(self, group: str, status: GroupStatus) -> str:
        """Commit the offsets of one group; why none are committed, if so."""
        found = await self._committed(self._source, group)
        theirs = {partition: each for partition, each in found.items() if self._is_copied(partition)}
        translated = {partition: self._translated(partition, each.offset) for partition, each in theirs.items()}
        if not translated:
            return ""
        coordinator = await self._target.coordinator(group)
        state = await self._state(group, coordinator)
        if state not in INACTIVE:
            return f"it has members on the target (state {state}), so its offsets there are its own"
        now = await self._committed(self._target, group)
        bounds = await self._bounds(list(translated))
        wanted: dict[TopicPartition, Committed] = {}
        moved: list[str] = []
        for partition, offset in translated.items():
            start, end = bounds[partition]
            bounded = max(start, min(offset, end))
            known = now.get(partition)
            if known is None or known.offset < bounded:
                wanted[partition] = Committed(bounded, theirs[partition].metadata)
            elif known.offset > bounded:
                moved.append(str(partition))
        if wanted:
            await self._commit(group, coordinator, wanted)
            status.commits += len(wanted)
        return f"it has committed more on the target than on the source for {', '.join(sorted(moved)[:3])}: it has moved" if moved else ""

    def _is_copied(self, partition: TopicPartition) -> bool:
        """Whether offsets can be translated: not before the partition's map is there, and not if the target has other records."""
        copy = self._copies.get(partition)
        return copy is not None and (copy.map is not None or (copy.keep_offsets and copy.state is not State.STARTING))

    def _translated(self, partition: TopicPartition, offset: int) -> int:
        copy = self._copies[partition]
        return offset if copy.map is None else copy.map.target_of(offset)

    async def _bounds(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """Start and end in the target."""
        leaders: dict[TopicPartition, int] = {}
        for partition in partitions:
            topic = self._target.topics.get(partition.topic)
            leader = None if topic is None else topic.by_partition.get(partition.partition)
            if leader is None:
                raise ClientError(f"{partition} of the target has no leader")
            leaders[partition] = leader.node_id
        starts, ends = await self._target.offsets(EARLIEST, leaders), await self._target.offsets(LATEST, leaders)
        return {partition: (starts[partition], ends[partition]) for partition in partitions}

    async def _state(self, group: str, coordinator: int) -> str:
        response: DescribeGroupsResponse = await self._target.ask(DescribeGroupsRequest(groups=[group]), coordinator)
        (found,) = response.groups
        if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return INACTIVE[1]
        if found.error_code:
            raise RequestFailed(f"group {group} at the target", found.error_code, found.error_message)
        return found.group_state

    async def _committed(self, cluster: Cluster, group: str) -> dict[TopicPartition, Committed]:
        """All committed offsets of a group."""
        coordinator = await cluster.coordinator(group)
        version = cluster.version_of(coordinator, OffsetFetchRequest)
        if version is not None and version < _GROUPS_VERSION:
            request = OffsetFetchRequest(group_id=group, topics=None)
        else:
            request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
        response: Any = await cluster.ask(request, coordinator, version_max=_NAMES_VERSION)
        found: Any = response.groups[0] if response.groups else response
        if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return {}
        if found.error_code:
            raise RequestFailed(f"the offsets of group {group} at the {cluster.label}", found.error_code)
        return {
            TopicPartition(topic.name, each.partition_index): Committed(each.committed_offset, each.metadata or "")
            for topic in found.topics
            for each in topic.partitions
            if each.committed_offset != NO_OFFSET and not each.error_code
        }

    async def _commit(self, group: str, coordinator: int, wanted: Mapping[TopicPartition, Committed]) -> None:
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, index), (offset, metadata) in wanted.items():
            topics.setdefault(topic, []).append(
                OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata=metadata)
            )
        request = OffsetCommitRequest(
            group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=own) for topic, own in topics.items()]
        )
        response: OffsetCommitResponse = await self._target.ask(request, coordinator, version_max=_NAMES_VERSION)
        for answer in response.topics:
            for each in answer.partitions:
                if each.error_code:
                    what = f"the offset of group {group} for {answer.name}-{each.partition_index} cannot be committed on the target"
                    raise RequestFailed(what, each.error_code)
