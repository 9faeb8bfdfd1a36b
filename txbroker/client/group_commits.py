"""The state of a group and its committed offsets with metadata: by its coordinator, with retries while an error passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import NamedTuple, Self

from txbroker.client.blocking_connection import BlockingConnection
from txbroker.client.client_errors import NotKafka, RequestFailed
from txbroker.client.client_machine import ClientSettings
from txbroker.client.coordinator_connection import CoordinatorConnection, KeyType
from txbroker.client.topic_leaders import RETRIABLE
from txbroker.errors import ErrorCode
from txbroker.names import TopicPartition
from txbroker.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from txbroker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from txbroker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse

RETRY_S = 0.2
# The newest versions for one group and with topics by name.
_FETCH_VERSION, _COMMIT_VERSION = 7, 9
DEAD = "Dead"  # the state of a group that does not exist


class Committed(NamedTuple):
    """A committed offset; its metadata is text of the client."""

    offset: int
    metadata: str


class GroupCommits:
    """Connects when it is first used. ClientError from every method."""

    def __init__(self, addresses: Sequence[tuple[str, int]], group: str, settings: ClientSettings) -> None:
        self.group = group
        self._coordinator = CoordinatorConnection(addresses, KeyType.GROUP, group, settings, RETRY_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._coordinator.close()

    def state(self) -> str:
        """The group's state, as in Kafka (`Empty`, `Stable`, ...); `DEAD` if it does not exist."""

        def ask(coordinator: BlockingConnection) -> tuple[int, str]:
            answer: DescribeGroupsResponse = coordinator.call(DescribeGroupsRequest(groups=[self.group]))
            if len(answer.groups) != 1:
                raise NotKafka("the broker's DescribeGroups response does not have the requested group")
            found = answer.groups[0]
            if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:  # from version 6 on
                return ErrorCode.NONE, DEAD
            return found.error_code, found.group_state

        return self._coordinator.ask(ask, f"group {self.group} cannot be described")

    def fetch(self, topic: str, partitions: Sequence[int]) -> dict[int, Committed]:
        """What is committed for these partitions; those without an offset are left out."""
        found = self._fetch([OffsetFetchRequestTopic(name=topic, partition_indexes=list(partitions))])
        return {partition.partition: one for partition, one in found.items()}

    def fetch_all(self) -> dict[TopicPartition, Committed]:
        """All committed offsets of the group."""
        return self._fetch(None)

    def commit(self, topic: str, offsets: Mapping[int, Committed]) -> None:
        """Commit offsets of partitions of one topic; RequestFailed if one is refused."""
        refused = self.commit_all({TopicPartition(topic, index): one for index, one in offsets.items()})
        if refused:
            raise RequestFailed(f"the offsets of group {self.group} cannot be committed", next(iter(refused.values())))

    def commit_all(self, offsets: Mapping[TopicPartition, Committed]) -> dict[TopicPartition, int]:
        """Commit as a tool does, without a generation and a leader epoch; the error codes of the partitions that are refused."""
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for partition, one in sorted(offsets.items()):
            topics.setdefault(partition.topic, []).append(OffsetCommitRequestPartition(
                partition_index=partition.partition, committed_offset=one.offset, committed_metadata=one.metadata))
        named = [OffsetCommitRequestTopic(name=name, partitions=partitions) for name, partitions in topics.items()]
        request = OffsetCommitRequest(group_id=self.group, topics=named)

        def ask(coordinator: BlockingConnection) -> tuple[int, dict[TopicPartition, int]]:
            answer: OffsetCommitResponse = coordinator.call(request, version_max=_COMMIT_VERSION)
            codes = {TopicPartition(each.name, one.partition_index): one.error_code for each in answer.topics for one in each.partitions}
            if codes.keys() != offsets.keys():
                raise NotKafka("the broker's OffsetCommit response does not have the requested partitions")
            passing = next((code for code in codes.values() if code in RETRIABLE), ErrorCode.NONE)
            return passing, {partition: code for partition, code in codes.items() if code}

        return self._coordinator.ask(ask, f"the offsets of group {self.group} cannot be committed")

    def _fetch(self, topics: list[OffsetFetchRequestTopic] | None) -> dict[TopicPartition, Committed]:
        request = OffsetFetchRequest(group_id=self.group, topics=topics, require_stable=True)

        def ask(coordinator: BlockingConnection) -> tuple[int, dict[TopicPartition, Committed]]:
            answer: OffsetFetchResponse = coordinator.call(request, version_max=_FETCH_VERSION)
            found = [(TopicPartition(each.name, one.partition_index), one) for each in answer.topics for one in each.partitions]
            code = next((code for code in (answer.error_code, *(one.error_code for _, one in found)) if code), 0)
            return code, {partition: Committed(one.committed_offset, one.metadata or "")
                          for partition, one in found if one.committed_offset >= 0}  # fmt: skip

        return self._coordinator.ask(ask, f"the offsets of group {self.group} cannot be fetched")
