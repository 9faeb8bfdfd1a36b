"""The group coordinator: answers the group APIs for the partitions of `__consumer_offsets` that this broker leads.

What it knows of a group is in `group.py` (membership) and `offsets.py`; which groups are here is in `shards.py`; records are written by
`writer.py`. This module checks what a request may do, and ties these together.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from twisted.internet.defer import Deferred, gatherResults, succeed

from txbroker.clock import Clock, DelayedCall
from txbroker.errors import ErrorCode
from txbroker.groups import group_descriptions
from txbroker.groups.group_config import GroupConfig
from txbroker.groups.group_records import fits, group_key
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
from txbroker.groups.offsets_expiry import expired
from txbroker.groups.offsets_store import OffsetsStore, Pair
from txbroker.groups.shards import Held, Shard, Shards
from txbroker.groups.timers import monotonic_ms
from txbroker.groups.writer import Writer
from txbroker.names import TopicPartition

log = logging.getLogger("txbroker.groups")

_LATEST_MS = 2**63 - 1  # the latest time that a record can tell

TOMBSTONES_A_BATCH = 1_000  # some 60 KB, far below what max.message.bytes can be set to


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
        store: OffsetsStore,
        config: GroupConfig,
        partition_count: Callable[[], int],
        unique: Callable[[], str],
    ) -> None:
        self._clock = clock
        self._now_ms = now_ms
        self._config = config
        self._writer = Writer(clock, now_ms, store)
        self._shards = Shards(clock, now_ms, store, config, partition_count, unique, self._writer.perform, self._shard_loaded)
        self._expiry: DelayedCall | None = None
        self._is_stopped = False

    # Leadership

    def load(self, partition_index: int) -> Deferred[None]:
        """Become coordinator of a partition: read its log. Until that is done its groups answer COORDINATOR_LOAD_IN_PROGRESS.

        Fires when it is done, also where it failed: then the log says why, and the partition's groups answer NOT_COORDINATOR.
        """
        return self._shards.load(partition_index)

    def unload(self, partition_index: int) -> None:
        """Resign from a partition: whoever waits is answered NOT_COORDINATOR, and all of its groups are forgotten."""
        self._shards.unload(partition_index)

    def start(self) -> None:
        """Begin to look for expired offsets at each check interval."""
        self._expiry = self._clock.callLater(self._config.offsets_retention_check_interval_ms / 1000, self._expire)

    def stop(self) -> None:
        """Cancel every timer; whoever waits is answered NOT_COORDINATOR, whoever comes later COORDINATOR_NOT_AVAILABLE."""
        self._is_stopped = True
        if self._expiry is not None and self._expiry.active():
            self._expiry.cancel()
        self._shards.unload_all()
        self._writer.stop()

    def partition_of(self, group_id: str) -> int | None:
        """The partition of `__consumer_offsets` that keeps this group; None while there are no partitions."""
        return self._shards.partition_of(group_id)

    def held(self) -> Iterator[Held]:
        """Every group that is here, with its offsets, as of now; for those who only look."""
        return iter(self._shards)

    # Membership

    def join_group(self, request: JoinGroup) -> Deferred[JoinAnswer]:
        """Answers once the generation is formed; at once where the request fails, or a member id has to be taken first."""
        held = self._held_for(request.group_id)
        if held is None:
            return self._join_absent(request)
        if isinstance(held, ErrorCode):
            return _join_refused(request, held)
        return self._join(held, request)

    def sync_group(self, request: SyncGroup) -> Deferred[SyncAnswer]:
        """Answers with the member's assignment once the leader's is written."""
        held = self._held_for(request.group_id)
        if isinstance(held, Held):
            answered: Deferred[SyncAnswer] = Deferred()
            held.group.sync(request, answered.callback, self._monotonic_ms())
            self._writer.perform(held)
            return answered
        if held is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            held = ErrorCode.REBALANCE_IN_PROGRESS  # the rebalance it belongs to is lost; old clients do not know the other code
        return succeed(SyncAnswer(error=held or ErrorCode.UNKNOWN_MEMBER_ID))

    def heartbeat(self, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int) -> ErrorCode:
        """A member is alive."""
        held = self._held_for(group_id)
        if isinstance(held, Held):
            error = held.group.heartbeat(member_id, group_instance_id, generation_id, self._monotonic_ms())
            self._writer.perform(held)
            return error
        if held is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return ErrorCode.NONE  # its session starts anew when loading is done
        return held or ErrorCode.UNKNOWN_MEMBER_ID

    def leave_group(self, group_id: str, members: Sequence[MemberIdentity]) -> tuple[ErrorCode, list[MemberLeft]]:
        """Members go. An error of the whole request comes without results of members."""
        held = self._held_for(group_id)
        if isinstance(held, Held):
            results = held.group.leave(members, self._monotonic_ms())
            self._writer.perform(held)
            return ErrorCode.NONE, results
        if held is not None:
            return held, []
        absent = ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE, [MemberLeft(member_id=m.member_id, group_instance_id=m.group_instance_id, error=absent) for m in members]

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
        """Keep offsets; they are seen once they are in the log. `retention_ms` is what OffsetCommit v2-v4 may name, else -1."""
        found = self._held_for(group_id, may_be_empty=True)
        held = self._create(group_id) if found is None and generation_id < 0 else found
        if isinstance(held, Held):
            error = held.group.check_commit(member_id, group_instance_id, generation_id, self._monotonic_ms())
            self._writer.perform(held)
        else:
            error = ErrorCode.ILLEGAL_GENERATION if held is None else held
        if error or not isinstance(held, Held):
            return succeed(dict.fromkeys(offsets, error))
        now_ms = self._now_ms()
        fitting = {p: _committed(o, now_ms, retention_ms) for p, o in offsets.items() if self._metadata_fits(o)}
        answers = {p: ErrorCode.NONE if p in fitting else ErrorCode.OFFSET_METADATA_TOO_LARGE for p in offsets}
        if not fitting:
            self._forget_if_unused(held)
            return succeed(answers)
        written = self._writer.write_offsets(held, held.offsets.begin(fitting))
        return written.addCallback(lambda error: answers | dict.fromkeys(fitting, error))

    def fetch_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None, require_stable: bool = False
    ) -> tuple[ErrorCode, dict[TopicPartition, FetchedOffset]]:
        """Offsets of one group; all that it has when `partitions` is None. The caller asks once for each group of OffsetFetch v8+."""
        held = self._held_for(group_id, may_be_empty=True)
        if isinstance(held, ErrorCode):
            return held, {}
        if held is None:
            return ErrorCode.NONE, {p: FetchedOffset() for p in partitions or ()}
        if partitions is None:
            partitions = [p for p, _ in held.offsets]
        return ErrorCode.NONE, {p: _fetched(held, p, require_stable) for p in partitions}

    def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> Deferred[tuple[ErrorCode, dict[TopicPartition, ErrorCode]]]:
        """Forget offsets that no member needs: any of an empty group, in others those of topics that no consumer subscribes to."""
        held = self._held_for(group_id)
        if not isinstance(held, Held):
            return succeed((held or ErrorCode.GROUP_ID_NOT_FOUND, {}))
        group = held.group
        if group.state is not GroupState.EMPTY and not group.is_consumer_group:
            return succeed((ErrorCode.NON_EMPTY_GROUP, {}))
        answers = {p: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if _is_subscribed(held, p) else ErrorCode.NONE for p in partitions}
        free = [p for p, error in answers.items() if not error]
        return self._remove(held, free).addCallback(lambda error: (ErrorCode.NONE, answers | dict.fromkeys(free, error)))

    def topics_deleted(self, topics: Iterable[str]) -> Deferred[None]:
        """Forget the offsets of deleted topics, with tombstones."""
        gone = frozenset(topics)
        for shard in self._shards.loading():
            shard.topics_deleted |= gone
        return self._forget_topics(list(self._shards), gone)

    # Administration

    def list_groups(self, states: Sequence[str] = (), types: Sequence[str] = ()) -> tuple[ErrorCode, list[ListedGroup]]:
        """The groups that are here; with COORDINATOR_LOAD_IN_PROGRESS while more are being read."""
        if self._is_stopped:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, []
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if self._shards.loading() else ErrorCode.NONE
        rows = (group_descriptions.listed(held.group) for held in self._shards)
        return error, [row for row in rows if group_descriptions.passes(row, states, types)]

    def describe_groups(self, group_ids: Iterable[str]) -> list[DescribedGroup]:
        """Groups with their members. An unknown one has GROUP_ID_NOT_FOUND and the state Dead: before v6 the answer is the state alone."""
        return [self._describe(group_id) for group_id in group_ids]

    def delete_groups(self, group_ids: Iterable[str]) -> Deferred[dict[str, ErrorCode]]:
        """Delete groups without members, with all of their offsets."""
        ids = list(dict.fromkeys(group_ids))
        deleted = gatherResults([self._delete(group_id) for group_id in ids])
        return deleted.addCallback(lambda errors: dict(zip(ids, errors, strict=True)))

    # Inside

    def _monotonic_ms(self) -> int:
        return monotonic_ms(self._clock)

    def _held_for(self, group_id: str, may_be_empty: bool = False) -> Held | ErrorCode | None:
        """The group; None when it does not exist but would be here; otherwise why this is not the place to ask.

        The empty group id is good only for offsets and administration: old simple consumers used it.
        """
        if not group_id and not may_be_empty:
            return ErrorCode.INVALID_GROUP_ID
        held = self._shards.find(group_id)
        if held is not None:
            return held
        if self._is_stopped:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        shard = self._shards.route(group_id)
        return shard if isinstance(shard, ErrorCode) else None

    def _create(self, group_id: str) -> Held | ErrorCode:
        shard = self._shards.route(group_id)
        if isinstance(shard, ErrorCode):
            return shard
        return self._shards.create(shard, group_id) if fits(group_id) else ErrorCode.INVALID_GROUP_ID

    def _join_absent(self, request: JoinGroup) -> Deferred[JoinAnswer]:
        if request.member_id != UNKNOWN_MEMBER:
            return _join_refused(request, ErrorCode.UNKNOWN_MEMBER_ID)
        held = self._create(request.group_id)
        if isinstance(held, ErrorCode):
            return _join_refused(request, held)
        answered = self._join(held, request)
        self._forget_if_unused(held)
        return answered

    def _join(self, held: Held, request: JoinGroup) -> Deferred[JoinAnswer]:
        if not self._config.session_timeout_min_ms <= request.session_timeout_ms <= self._config.session_timeout_max_ms:
            return _join_refused(request, ErrorCode.INVALID_SESSION_TIMEOUT)
        names = (request.client_id, request.client_host, request.group_instance_id, request.protocol_type)
        if not fits(*names, *(p.name for p in request.protocols)):
            return _join_refused(request, ErrorCode.INVALID_REQUEST)
        if sum(len(p.metadata) for p in request.protocols) > self._config.member_metadata_max:
            return _join_refused(request, ErrorCode.INVALID_REQUEST)
        answered: Deferred[JoinAnswer] = Deferred()
        held.group.join(request, answered.callback, self._monotonic_ms())
        self._writer.perform(held)
        return answered

    def _metadata_fits(self, offset: OffsetCommit) -> bool:
        return not offset.metadata or (len(offset.metadata) <= self._config.offset_metadata_max and fits(offset.metadata))

    def _describe(self, group_id: str) -> DescribedGroup:
        held = self._held_for(group_id, may_be_empty=True)
        if held is None:
            return group_descriptions.unknown(group_id)
        return DescribedGroup(group_id=group_id, error=held) if isinstance(held, ErrorCode) else group_descriptions.described(held.group)

    def _delete(self, group_id: str) -> Deferred[ErrorCode]:
        held = self._held_for(group_id, may_be_empty=True)
        if not isinstance(held, Held):
            return succeed(held or ErrorCode.GROUP_ID_NOT_FOUND)
        if held.group.state is not GroupState.EMPTY:
            return succeed(ErrorCode.NON_EMPTY_GROUP)
        return self._remove(held, [p for p, _ in held.offsets], group_too=True)

    def _remove(self, held: Held, partitions: Sequence[TopicPartition], group_too: bool = False) -> Deferred[ErrorCode]:
        """Write tombstones for offsets, and for the group itself if it goes too; then forget it unless somebody came meanwhile."""
        # A group that only ever kept offsets has no record of its own.
        tombstone: list[Pair] = [(group_key(held.group.group_id), None)] if group_too and held.group.generation > 0 else []
        writes = []
        rest = iter(partitions)
        while chunk := list(islice(rest, TOMBSTONES_A_BATCH)):
            writes.append(self._writer.write_offsets(held, held.offsets.begin(dict.fromkeys(chunk))))
        if tombstone:
            writes.append(self._writer.write_offsets(held, held.offsets.begin({}), tombstone))

        def finish(errors: list[ErrorCode]) -> ErrorCode:
            error = next((e for e in errors if e), ErrorCode.NONE)
            if group_too and not error:
                self._forget_if_unused(held)
            return error

        return gatherResults(writes).addCallback(finish)

    def _forget_if_unused(self, held: Held) -> None:
        if held.is_unused and held.group.state is GroupState.EMPTY:
            self._shards.forget(held)

    def _forget_topics(self, among: Iterable[Held], topics: frozenset[str]) -> Deferred[None]:
        removals = []
        for held in among:
            partitions = [p for p, _ in held.offsets if p.topic in topics]
            if partitions:
                log.info("group %s: forgets %d offsets of deleted topics", held.group.group_id, len(partitions))
                removals.append(self._clean(held, partitions))
        return gatherResults(removals).addCallback(lambda _: None)

    def _clean(self, held: Held, partitions: Sequence[TopicPartition]) -> Deferred[ErrorCode]:
        """Remove offsets; and the group with them if that leaves nothing of it."""
        empty = held.group.state is GroupState.EMPTY and not held.group.pending
        return self._remove(held, partitions, group_too=empty and held.offsets.would_be_unused_without(len(partitions)))

    def _shard_loaded(self, shard: Shard) -> None:
        for held in list(shard.groups.values()):
            self._writer.perform(held)
        if shard.topics_deleted:
            self._forget_topics(list(shard.groups.values()), frozenset(shard.topics_deleted))

    def _expire(self) -> None:
        """Offsets that were kept long enough go, and groups of which nothing is left."""
        self.start()
        now_ms = self._now_ms()
        for held in self._shards:
            try:
                self._expire_group(held, now_ms)
            except Exception:
                log.exception("group %s: its offsets could not expire", held.group.group_id)

    def _expire_group(self, held: Held, now_ms: int) -> None:
        partitions = expired(held.group, held.offsets, now_ms, self._config.offsets_retention_ms)
        if partitions:
            log.info("group %s: %d offsets expire", held.group.group_id, len(partitions))
        if partitions or held.is_unused:
            self._clean(held, partitions)


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


def _fetched(held: Held, partition: TopicPartition, require_stable: bool) -> FetchedOffset:
    if require_stable and held.offsets.is_unstable(partition):
        return FetchedOffset(error=ErrorCode.UNSTABLE_OFFSET_COMMIT)
    kept = held.offsets.get(partition)
    if kept is None:
        return FetchedOffset()
    return FetchedOffset(offset=kept.offset, leader_epoch=kept.leader_epoch, metadata=kept.metadata)


def _is_subscribed(held: Held, partition: TopicPartition) -> bool:
    """Whether members of a group that is not empty need this offset; where their subscriptions cannot be read, they may."""
    topics = held.group.subscribed_topics
    return held.group.state is not GroupState.EMPTY and (topics is None or partition.topic in topics)
