"""Committed offsets of a group without members, with metadata: by its coordinator, with retries while an error passes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from txbroker.client.blocking_connection import BlockingConnection, connect_to_any
from txbroker.client.client_errors import LOST, ClientError, NotKafka, RequestFailed
from txbroker.client.client_machine import ClientSettings
from txbroker.client.topic_leaders import RETRIABLE
from txbroker.errors import ErrorCode
from txbroker.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from txbroker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from txbroker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse

RETRY_S, RETRY_FOR_S = 0.2, 30.0
# The newest versions for one group and with topics by name.
_FIND_VERSION, _FETCH_VERSION, _COMMIT_VERSION = 3, 7, 9
T = TypeVar("T")


class Committed(NamedTuple):
    """A committed offset; its metadata is text of the client."""

    offset: int
    metadata: str


class GroupCommits:
    """Connects when it is first used. ClientError from every method."""

    def __init__(self, addresses: Sequence[tuple[str, int]], group: str, settings: ClientSettings) -> None:
        self.group = group
        self._addresses = addresses
        self._settings = settings
        self._coordinator: BlockingConnection | None = None

    def close(self) -> None:
        """Close the connection."""
        if self._coordinator is not None:
            self._coordinator.close()
            self._coordinator = None

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

        return self._ask(ask, "cannot be fetched")

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

        self._ask(ask, "cannot be committed")

    def _ask(self, ask: Callable[[BlockingConnection], tuple[int, T]], what: str) -> T:
        """Ask the coordinator, again while the error is retriable; ClientError after RETRY_FOR_S."""
        deadline_s = time.monotonic() + RETRY_FOR_S
        while True:
            problem: ClientError
            try:
                if self._coordinator is None:
                    self._coordinator = self._find()
                code, answer = ask(self._coordinator)
                if not code:
                    return answer
                problem = RequestFailed(f"the offsets of group {self.group} {what}", code)
                retriable = code in RETRIABLE
            except RequestFailed as refused:
                problem, retriable = refused, refused.code in RETRIABLE
            except LOST as lost:
                problem, retriable = lost, True
            self.close()
            if not retriable or time.monotonic() > deadline_s:
                raise problem
            time.sleep(RETRY_S)

    def _find(self) -> BlockingConnection:
        with connect_to_any(self._addresses, self._settings) as any_broker:
            request = FindCoordinatorRequest(key=self.group)
            answer: FindCoordinatorResponse = any_broker.call(request, version_max=_FIND_VERSION)
        if answer.error_code:
            raise RequestFailed(f"group {self.group} has no coordinator", ErrorCode(answer.error_code), answer.error_message)
        return BlockingConnection(answer.host, answer.port, self._settings)
