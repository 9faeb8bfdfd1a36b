"""Committed offsets of a group without members, with metadata: by its coordinator, with retries while an error passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from txbroker.client.blocking_connection import BlockingConnection
from txbroker.client.client_errors import NotKafka
from txbroker.client.client_machine import ClientSettings
from txbroker.client.coordinator_connection import CoordinatorConnection, KeyType
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


class Committed(NamedTuple):
    """A committed offset; its metadata is text of the client."""

    offset: int
    metadata: str


class GroupCommits:
    """Connects when it is first used. ClientError from every method."""

    def __init__(self, addresses: Sequence[tuple[str, int]], group: str, settings: ClientSettings) -> None:
        self.group = group
        self._coordinator = CoordinatorConnection(addresses, KeyType.GROUP, group, settings, RETRY_S)

    def close(self) -> None:
        """Close the connection."""
        self._coordinator.close()

    def fetch(self, topic: str, partitions: Sequence[int]) -> dict[int, Committed]:
        """What is committed for these partitions; those without an offset are left out."""
        wanted = [OffsetFetchRequestTopic(name=topic, partition_indexes=list(partitions))]
        request = OffsetFetchRequest(group_id=self.group, topics=wanted, require_stable=True)

        def ask(coordinator: BlockingConnection) -> tuple[int, dict[int, Committed]]:
            answer: OffsetFetchResponse = coordinator.call(request, version_max=_FETCH_VERSION)
            found = [partition for each in answer.topics for partition in each.partitions]
            code = next((code for code in (answer.error_code, *(one.error_code for one in found)) if code), 0)
            return code, {one.partition_index: Committed(one.committed_offset, one.metadata or "")
                          for one in found if one.committed_offset >= 0}

        return self._coordinator.ask(ask, f"the offsets of group {self.group} cannot be fetched")

    def commit(self, topic: str, offsets: Mapping[int, Committed]) -> None:
        """Commit offsets of partitions, without a generation and a leader epoch."""
        partitions = [OffsetCommitRequestPartition(partition_index=index, committed_offset=one.offset, committed_metadata=one.metadata)
                      for index, one in sorted(offsets.items())]
        request = OffsetCommitRequest(group_id=self.group, topics=[OffsetCommitRequestTopic(name=topic, partitions=partitions)])

        def ask(coordinator: BlockingConnection) -> tuple[int, None]:
            answer: OffsetCommitResponse = coordinator.call(request, version_max=_COMMIT_VERSION)
            codes = {one.partition_index: one.error_code for each in answer.topics for one in each.partitions}
            if codes.keys() != offsets.keys():
                raise NotKafka("the broker's OffsetCommit response does not have the requested partitions")
            return next((code for code in codes.values() if code), 0), None

        self._coordinator.ask(ask, f"the offsets of group {self.group} cannot be committed")
