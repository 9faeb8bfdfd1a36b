"""The group coordinator: answers the group APIs for the partitions of `__consumer_offsets` that this broker leads.

`group.py` has the members of a group, `group_offsets.py` its offsets, `hosted_groups.py` the groups of each partition; `writer.py`
writes their records, `offset_removal.py` the tombstones of what is removed or expires. This module checks requests and connects the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from twisted.internet.defer import Deferred, gatherResults, succeed

from txbroker.clock import Clock
from txbroker.coordinators.keyed_deadlines import monotonic_ms
from txbroker.coordinators.load_times import LoadTimes
from txbroker.coordinators.state_log import StateLog, TransactionalProducer
from txbroker.errors import ErrorCode
from txbroker.groups import group_descriptions
from txbroker.groups.group_config import GroupConfig
from txbroker.groups.group_records import fits
from txbroker.groups.group_results import (
    UNKNOWN_MEMBER,
    CommittedOffset,
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
from txbroker.groups.group_states import GroupState
from txbroker.groups.hosted_groups import GroupsOfPartition, HostedGroup, HostedGroups
from txbroker.groups.offset_removal import OffsetRemoval
from txbroker.groups.writer import Writer
from txbroker.names import TopicPartition

_LATEST_MS = 2**63 - 1  # the latest date that a record can hold


class GroupCoordinator:
    """The groups of this broker.

    Sessions and rebalances run on `clock`, which is monotonic; `now_ms` is the wall clock, which dates commits and expires them.
    `unique` returns a text that no member id had before (Kafka: a UUID). `partition_count` returns the number of partitions of
    `__consumer_offsets`, 0 while it does not exist. Methods raise nothing: errors are in the answers.
    """

    def __init__(
        self,
        clock: Clock,
        now_ms: Callable[[], int],
        state_log: StateLog,
        config: GroupConfig,
        partition_count: Callable[[], int],
        unique: Callable[[], str],
    ) -> None:
        self._clock = clock
        self._now_ms = now_ms
        self._config = config
        self._writer = Writer(clock, now_ms, state_log)
        self._hosted = HostedGroups(clock, now_ms, state_log, config, partition_count, unique, self._writer.perform, self._partition_loaded)
        self._removal = OffsetRemoval(clock, now_ms, config, self._hosted, self._writer)
        self._is_stopped = False

    # Leadership

    def load(self, partition_index: int) -> Deferred[None]:
        """Become coordinator of a partition: read its log. Until then its groups answer COORDINATOR_LOAD_IN_PROGRESS.

        Fires when loading has ended. If it failed, the reason is logged and the partition's groups answer NOT_COORDINATOR.
        """
        return self._hosted.load(partition_index)

    def unload(self, partition_index: int) -> None:
        """Resign from a partition: waiting requests are answered with NOT_COORDINATOR, and its groups are dropped from memory."""
        self._hosted.unload(partition_index)

    def start(self) -> None:
        """Start to expire offsets, every offsets.retention.check.interval.ms."""
        self._removal.start()

    def stop(self) -> None:
        """Cancel every timer. Waiting requests are answered with NOT_COORDINATOR, later ones with COORDINATOR_NOT_AVAILABLE."""
        self._is_stopped = True
        self._removal.stop()
        self._hosted.unload_all()
        self._writer.stop()

    def partition_of(self, group_id: str) -> int | None:
        """The partition of `__consumer_offsets` that stores this group; None while the topic does not exist."""
        return self._hosted.partition_of(group_id)

    @property
    def load_times(self) -> LoadTimes:
        """How long partitions of `__consumer_offsets` took to load."""
        return self._hosted.load_times

    def groups(self) -> Iterator[HostedGroup]:
        """All groups with their offsets, as of now, for reading only."""
        return iter(self._hosted)

    # Membership

    def join_group(self, request: JoinGroup) -> Deferred[JoinAnswer]:
        """Answers when the generation is formed; at once if the request fails, or the client must join again with a member id."""
        hosted = self._find(request.group_id)
        if hosted is None:
            return self._join_absent(request)
        if isinstance(hosted, ErrorCode):
            return _join_refused(request, hosted)
        return self._join(hosted, request)

    def sync_group(self, request: SyncGroup) -> Deferred[SyncAnswer]:
        """Answers with the member's assignment, after the leader's SyncGroup has been written to the log."""
        hosted = self._find(request.group_id)
        if isinstance(hosted, HostedGroup):
            answered: Deferred[SyncAnswer] = Deferred()
            hosted.group.sync(request, answered.callback, self._monotonic_ms())
            self._writer.perform(hosted)
            return answered
        if hosted is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            hosted = ErrorCode.REBALANCE_IN_PROGRESS  # its rebalance is lost; old clients do not know the other code
        return succeed(SyncAnswer(error=hosted or ErrorCode.UNKNOWN_MEMBER_ID))

    def heartbeat(self, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int) -> ErrorCode:
        """Extend a member's session."""
        hosted = self._find(group_id)
        if isinstance(hosted, HostedGroup):
            error = hosted.group.heartbeat(member_id, group_instance_id, generation_id, self._monotonic_ms())
            self._writer.perform(hosted)
            return error
        if hosted is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return ErrorCode.NONE  # its session starts again when loading is done
        return hosted or ErrorCode.UNKNOWN_MEMBER_ID

    def leave_group(self, group_id: str, members: Sequence[MemberIdentity]) -> tuple[ErrorCode, list[MemberLeft]]:
        """Remove members. An error of the whole request comes with no results for single members."""
        hosted = self._find(group_id)
        if isinstance(hosted, HostedGroup):
            results = hosted.group.leave(members, self._monotonic_ms())
            self._writer.perform(hosted)
            return ErrorCode.NONE, results
        if hosted is not None:
            return hosted, []
        absent = ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE, [MemberLeft(member_id=m.member_id, group_instance_id=m.group_instance_id, error=absent) for m in members]

    def evict(self, group_id: str, member_ids: Iterable[str]) -> None:
        """End the sessions of these members of a group of this broker now, as when they time out."""
        hosted = self._hosted.find(group_id)
        if hosted is not None:
            hosted.group.evict(member_ids, self._monotonic_ms())
            self._writer.perform(hosted)

    # Offsets

    def commit_offsets(
        self,
        group_id: str,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        offsets: Mapping[TopicPartition, OffsetCommit],
        retention_ms: int = -1,
    ) -> Deferred[dict[TopicPartition, ErrorCode]]:
        """Commit offsets; they are visible when they are in the log. `retention_ms`: from OffsetCommit v2-v4, else -1."""
        found = self._find(group_id, may_be_empty=True)
        hosted = self._create(group_id) if found is None and generation_id < 0 else found
        if isinstance(hosted, HostedGroup):
            error = hosted.group.check_commit(member_id, group_instance_id, generation_id, self._monotonic_ms())
            self._writer.perform(hosted)
        else:
            error = ErrorCode.ILLEGAL_GENERATION if hosted is None else hosted
        if error or not isinstance(hosted, HostedGroup):
            return succeed(dict.fromkeys(offsets, error))
        return self._commit(hosted, offsets, retention_ms)

    def commit_pending_offsets(
        self,
        group_id: str,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        producer: TransactionalProducer,
        offsets: Mapping[TopicPartition, OffsetCommit],
    ) -> Deferred[dict[TopicPartition, ErrorCode]]:
        """Commit offsets in a transaction (KIP-447): they are visible when it is committed. The caller has verified the transaction."""
        found = self._find(group_id)
        hosted = self._create(group_id) if found is None and generation_id < 0 else found
        if isinstance(hosted, HostedGroup):
            error = hosted.group.check_transactional_commit(member_id, group_instance_id, generation_id)
        else:
            error = ErrorCode.ILLEGAL_GENERATION if hosted is None else hosted
        if error or not isinstance(hosted, HostedGroup):
            return succeed(dict.fromkeys(offsets, error))
        return self._commit(hosted, offsets, producer=producer)

    def _commit(
        self,
        hosted: HostedGroup,
        offsets: Mapping[TopicPartition, OffsetCommit],
        retention_ms: int = -1,
        producer: TransactionalProducer | None = None,
    ) -> Deferred[dict[TopicPartition, ErrorCode]]:
        now_ms = self._now_ms()
        fitting = {p: _committed(o, now_ms, retention_ms) for p, o in offsets.items() if self._metadata_fits(o)}
        answers = {p: ErrorCode.NONE if p in fitting else ErrorCode.OFFSET_METADATA_TOO_LARGE for p in offsets}
        if not fitting:
            self._removal.forget_if_unused(hosted)
            return succeed(answers)
        if producer is None:
            written = self._writer.write_offsets(hosted, hosted.offsets.begin(fitting))
        else:
            written = self._writer.write_pending_offsets(hosted, hosted.offsets.begin(fitting, producer.id), producer)

        def finish(error: ErrorCode) -> dict[TopicPartition, ErrorCode]:
            self._removal.forget_if_unused(hosted)
            return answers | dict.fromkeys(fitting, error)

        return written.addCallback(finish)

    def fetch_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None, require_stable: bool = False
    ) -> tuple[ErrorCode, dict[TopicPartition, FetchedOffset]]:
        """Committed offsets of one group; all of them if `partitions` is None."""
        hosted = self._find(group_id, may_be_empty=True)
        if isinstance(hosted, ErrorCode):
            return hosted, {}
        if hosted is None:
            return ErrorCode.NONE, {p: FetchedOffset() for p in partitions or ()}
        if partitions is None:
            partitions = [p for p, _ in hosted.offsets]
        return ErrorCode.NONE, {p: _fetched(hosted, p, require_stable) for p in partitions}

    def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> Deferred[tuple[ErrorCode, dict[TopicPartition, ErrorCode]]]:
        """Delete offsets: any of an empty group; of other groups, those of topics that no member subscribes to."""
        hosted = self._find(group_id)
        if not isinstance(hosted, HostedGroup):
            return succeed((hosted or ErrorCode.GROUP_ID_NOT_FOUND, {}))
        group = hosted.group
        if group.state is not GroupState.EMPTY and not group.is_consumer_group:
            return succeed((ErrorCode.NON_EMPTY_GROUP, {}))
        answers = {p: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if _is_subscribed(hosted, p) else ErrorCode.NONE for p in partitions}
        free = [p for p, error in answers.items() if not error]
        return self._removal.remove(hosted, free).addCallback(lambda error: (ErrorCode.NONE, answers | dict.fromkeys(free, error)))

    def expire_offsets(self) -> Deferred[ErrorCode]:
        """Remove the offsets that have expired now, instead of at the next check; fires when their tombstones are written."""
        return self._removal.expire_now()

    def topics_deleted(self, topics: Iterable[str]) -> Deferred[None]:
        """Delete the offsets of deleted topics, with tombstones."""
        gone = frozenset(topics)
        for shard in self._hosted.loading():
            shard.content.topics_deleted |= gone
        return self._removal.forget_topics(list(self._hosted), gone)

    # Transactions

    def check_coordinates(self, partition_index: int) -> ErrorCode:
        """NONE if this broker coordinates the groups of a partition of `__consumer_offsets`; NOT_COORDINATOR, or it is loading."""
        shard = self._hosted.active(partition_index)
        return shard if isinstance(shard, ErrorCode) else ErrorCode.NONE

    def end_transaction(self, partition_index: int, producer_id: int, committed: bool) -> ErrorCode:
        """A producer's marker is in the partition, on all in-sync replicas: its pending offsets are committed or dropped.

        An error means that nothing has changed, as this broker is not the coordinator.
        """
        shard = self._hosted.active(partition_index)
        if isinstance(shard, ErrorCode):
            return shard
        for group_id in shard.content.transactions.pop(producer_id, ()):
            hosted = shard.content.groups.get(group_id)
            if hosted is not None:
                hosted.offsets.end_transaction(producer_id, committed)
                self._removal.forget_if_unused(hosted)
        return ErrorCode.NONE

    # Administration

    def list_groups(self, states: Sequence[str] = (), types: Sequence[str] = ()) -> tuple[ErrorCode, list[ListedGroup]]:
        """The groups of this broker; with COORDINATOR_LOAD_IN_PROGRESS while partitions are loading."""
        if self._is_stopped:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, []
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if self._hosted.loading() else ErrorCode.NONE
        rows = (group_descriptions.listed(hosted.group) for hosted in self._hosted)
        return error, [row for row in rows if group_descriptions.passes(row, states, types)]

    def describe_groups(self, group_ids: Iterable[str]) -> list[DescribedGroup]:
        """Groups with their members. An unknown group has GROUP_ID_NOT_FOUND and the state Dead, all that clients before v6 see."""
        return [self._describe(group_id) for group_id in group_ids]

    def delete_groups(self, group_ids: Iterable[str]) -> Deferred[dict[str, ErrorCode]]:
        """Delete groups without members, with all their offsets."""
        ids = list(dict.fromkeys(group_ids))
        deleted = gatherResults([self._delete(group_id) for group_id in ids], consumeErrors=True)
        return deleted.addCallback(lambda errors: dict(zip(ids, errors, strict=True)))

    # Internals

    def _monotonic_ms(self) -> int:
        return monotonic_ms(self._clock)

    def _find(self, group_id: str, may_be_empty: bool = False) -> HostedGroup | ErrorCode | None:
        """The group; None if it does not exist; an error if this broker is not its coordinator.

        The empty group id is valid only for offsets and administration: old simple consumers used it.
        """
        if not group_id and not may_be_empty:
            return ErrorCode.INVALID_GROUP_ID
        hosted = self._hosted.find(group_id)
        if hosted is not None:
            return hosted
        if self._is_stopped:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        shard = self._hosted.route(group_id)
        return shard if isinstance(shard, ErrorCode) else None

    def _create(self, group_id: str) -> HostedGroup | ErrorCode:
        shard = self._hosted.route(group_id)
        if isinstance(shard, ErrorCode):
            return shard
        return self._hosted.create(shard, group_id) if fits(group_id) else ErrorCode.INVALID_GROUP_ID

    def _join_absent(self, request: JoinGroup) -> Deferred[JoinAnswer]:
        if request.member_id != UNKNOWN_MEMBER:
            return _join_refused(request, ErrorCode.UNKNOWN_MEMBER_ID)
        hosted = self._create(request.group_id)
        if isinstance(hosted, ErrorCode):
            return _join_refused(request, hosted)
        answered = self._join(hosted, request)
        self._removal.forget_if_unused(hosted)
        return answered

    def _join(self, hosted: HostedGroup, request: JoinGroup) -> Deferred[JoinAnswer]:
        if not self._config.session_timeout_min_ms <= request.session_timeout_ms <= self._config.session_timeout_max_ms:
            return _join_refused(request, ErrorCode.INVALID_SESSION_TIMEOUT)
        names = (request.client_id, request.client_host, request.group_instance_id, request.protocol_type)
        if not fits(*names, *(p.name for p in request.protocols)):
            return _join_refused(request, ErrorCode.INVALID_REQUEST)
        if sum(len(p.metadata) for p in request.protocols) > self._config.member_metadata_max:
            return _join_refused(request, ErrorCode.INVALID_REQUEST)
        answered: Deferred[JoinAnswer] = Deferred()
        hosted.group.join(request, answered.callback, self._monotonic_ms())
        self._writer.perform(hosted)
        return answered

    def _metadata_fits(self, offset: OffsetCommit) -> bool:
        return not offset.metadata or (len(offset.metadata) <= self._config.offset_metadata_max and fits(offset.metadata))

    def _describe(self, group_id: str) -> DescribedGroup:
        hosted = self._find(group_id, may_be_empty=True)
        if hosted is None:
            return group_descriptions.unknown(group_id)
        if isinstance(hosted, ErrorCode):
            return DescribedGroup(group_id=group_id, error=hosted)
        return group_descriptions.described(hosted.group)

    def _delete(self, group_id: str) -> Deferred[ErrorCode]:
        hosted = self._find(group_id, may_be_empty=True)
        if not isinstance(hosted, HostedGroup):
            return succeed(hosted or ErrorCode.GROUP_ID_NOT_FOUND)
        if hosted.group.state is not GroupState.EMPTY:
            return succeed(ErrorCode.NON_EMPTY_GROUP)
        return self._removal.remove(hosted, hosted.offsets.partitions(), group_too=True)

    def _partition_loaded(self, loaded: GroupsOfPartition) -> None:
        for hosted in list(loaded.groups.values()):
            self._writer.perform(hosted)
        if loaded.topics_deleted:
            self._removal.forget_topics(list(loaded.groups.values()), frozenset(loaded.topics_deleted))


def _join_refused(request: JoinGroup, error: ErrorCode) -> Deferred[JoinAnswer]:
    return succeed(JoinAnswer(error=error, member_id=request.member_id))


def _committed(commit: OffsetCommit, now_ms: int, retention_ms: int) -> CommittedOffset:
    return CommittedOffset(
        offset=commit.offset,
        leader_epoch=commit.leader_epoch,
        metadata=commit.metadata or "",
        commit_ms=now_ms,
        expire_ms=None if retention_ms < 0 else min(now_ms + retention_ms, _LATEST_MS),
    )


def _fetched(hosted: HostedGroup, partition: TopicPartition, require_stable: bool) -> FetchedOffset:
    if require_stable and hosted.offsets.is_unstable(partition):
        return FetchedOffset(error=ErrorCode.UNSTABLE_OFFSET_COMMIT)
    committed = hosted.offsets.get(partition)
    if committed is None:
        return FetchedOffset()
    return FetchedOffset(offset=committed.offset, leader_epoch=committed.leader_epoch, metadata=committed.metadata)


def _is_subscribed(hosted: HostedGroup, partition: TopicPartition) -> bool:
    """Whether a member subscribes to the topic, or may do so because the subscriptions cannot be read."""
    topics = hosted.group.subscribed_topics
    return hosted.group.state is not GroupState.EMPTY and (topics is None or partition.topic in topics)
