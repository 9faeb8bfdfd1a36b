"""The group coordinator: the groups of those partitions of `__consumer_offsets` that this broker leads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from txbroker.errors import ErrorCode
from txbroker.groups.config import GroupConfig
from txbroker.groups.store import OffsetsStore
from txbroker.groups.values import (
    DescribedGroup,
    FetchedOffset,
    JoinAnswer,
    JoinGroup,
    ListedGroup,
    MemberIdentity,
    MemberLeft,
    OffsetCommit,
    SyncAnswer,
    SyncGroup,
)
from txbroker.names import TopicPartition


class GroupCoordinator:
    """Answers the group APIs for the partitions it has loaded.

    `clock.seconds()` is the wall clock, as the reactor's is. `unique` returns a text that no member id had before (Kafka: a UUID).
    `partition_count` says how many partitions `__consumer_offsets` has. Methods raise nothing: what failed is in the answers.
    """

    def __init__(
        self,
        clock: IReactorTime,
        store: OffsetsStore,
        config: GroupConfig,
        partition_count: Callable[[], int],
        unique: Callable[[], str],
    ) -> None: ...

    # Leadership

    def load(self, partition_index: int) -> Deferred[None]:
        """Become coordinator of a partition: read its log. Until that is done its groups answer COORDINATOR_LOAD_IN_PROGRESS."""

    def unload(self, partition_index: int) -> None:
        """Resign from a partition: whoever waits is answered NOT_COORDINATOR, and all of its groups are forgotten."""

    def start(self) -> None:
        """Begin to look for expired offsets at each check interval."""

    def stop(self) -> None:
        """Cancel every timer; whoever waits is answered NOT_COORDINATOR."""

    def partition_of(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that keeps this group."""

    # Membership

    def join_group(self, request: JoinGroup) -> Deferred[JoinAnswer]: ...
    def sync_group(self, request: SyncGroup) -> Deferred[SyncAnswer]: ...
    def heartbeat(self, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int) -> ErrorCode: ...
    def leave_group(self, group_id: str, members: Sequence[MemberIdentity]) -> tuple[ErrorCode, list[MemberLeft]]: ...

    # Offsets

    def commit_offsets(
        self,
        group_id: str,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        offsets: Mapping[TopicPartition, OffsetCommit],
        retention_ms: int = -1,
    ) -> Deferred[dict[TopicPartition, ErrorCode]]: ...

    def fetch_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None, require_stable: bool = False
    ) -> tuple[ErrorCode, dict[TopicPartition, FetchedOffset]]:
        """Offsets of one group; all that it has when `partitions` is None. The caller asks once for each group of OffsetFetch v8+."""

    def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> Deferred[tuple[ErrorCode, dict[TopicPartition, ErrorCode]]]: ...

    def topics_deleted(self, topics: Iterable[str]) -> Deferred[None]:
        """Forget the offsets of deleted topics, with tombstones."""

    # Administration

    def list_groups(self, states: Sequence[str] = (), types: Sequence[str] = ()) -> tuple[ErrorCode, list[ListedGroup]]: ...
    def describe_groups(self, group_ids: Iterable[str]) -> list[DescribedGroup]: ...
    def delete_groups(self, group_ids: Iterable[str]) -> Deferred[dict[str, ErrorCode]]: ...
