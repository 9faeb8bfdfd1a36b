"""One classic consumer group as a state machine: members join, the leader assigns, all sync, heartbeats extend their sessions.

The rules are those of Kafka's group coordinator: KIP-62 (separate rebalance timeout), KIP-134 (initial delay), KIP-345 (static
members), KIP-389 (size limit), KIP-394 (member id required), KIP-559 (protocol checked at sync), KIP-814 (skipped assignment).
Cooperative members (KIP-429) need nothing more: their metadata is opaque to the group.

A group performs nothing itself. It appends to `effects`, which the coordinator performs in order. One deadline serves all timers of
a group: `WakeAt` schedules `tick`, which checks every deadline. A heartbeat only moves its member's deadline and costs no timer.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from txbroker.errors import ErrorCode
from txbroker.groups.group_config import GroupConfig
from txbroker.groups.group_effects import (
    AnswerJoin,
    AnswerSync,
    AssignmentWritten,
    Effect,
    EmptyWritten,
    GroupRecord,
    JoinWaiter,
    Persist,
    StaticMemberWritten,
    SyncWaiter,
    WakeAt,
    Written,
)
from txbroker.groups.group_membership import GroupMembership
from txbroker.groups.group_results import (
    UNKNOWN_MEMBER,
    JoinAnswer,
    JoinGroup,
    MemberIdentity,
    MemberLeft,
    SyncAnswer,
    SyncGroup,
)
from txbroker.groups.group_states import TRANSITIONS, GroupState
from txbroker.groups.roster import Member
from txbroker.lazy_dataclass import lazy_dataclass
from txbroker.names import amount

log = logging.getLogger("txbroker.groups")

CLIENT_ID_PREFIX_MAX = 255  # characters of the client id in a member id; a client id may have 32 thousand
RETRY_MS_MIN = 1_000  # between two attempts of a rebalance that no member has joined, whatever its timeout

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState


@lazy_dataclass(slots=True)
class _Rebalance:
    """Waiting for members to join. `extend_until_ms` is set in the first rebalance of a group, which waits for its whole delay."""

    deadline_ms: int
    extend_until_ms: int | None = None


class Group(GroupMembership):
    """One group. Methods take `monotonic_ms`, the time of a monotonic clock in milliseconds, and append to `effects`."""

    def __init__(self, group_id: str, config: GroupConfig, unique: Callable[[], str], now_ms: Callable[[], int]) -> None:
        super().__init__(group_id, config, now_ms)
        self.effects: deque[Effect] = deque()
        self._unique = unique
        self._rebalance: _Rebalance | None = None
        self._grew = False  # a member has joined during the first rebalance
        self._unsynced: set[str] = set()  # members of this generation that have not sent SyncGroup
        self._sync_deadline_ms: int | None = None
        self._assigning: int | None = None  # the generation whose assignment is being written
        self._progress = logging.INFO  # the level of lines about rebalances: DEBUG while assignments cannot be written, as they repeat
        self._wake_ms: int | None = None

    @classmethod
    def restored(
        cls,
        group_id: str,
        config: GroupConfig,
        unique: Callable[[], str],
        now_ms: Callable[[], int],
        record: GroupRecord,
        monotonic_ms: int,
    ) -> Group:
        """The group that a record describes: stable if it has members, whose sessions start now."""
        group = cls(group_id, config, unique, now_ms)
        group.state = STABLE if record.members else EMPTY
        group.state_ms = record.state_ms
        group.generation = record.generation
        group.protocol_type = record.protocol_type or None
        group.protocol_name = record.protocol
        for member in {m.member_id: m for m in record.members}.values():
            group.roster.add(Member.restored(member, record.protocol, monotonic_ms))
        if record.leader in group.roster.members:
            group.roster.leader = record.leader
        group.read_subscriptions()
        if len(group.roster) > config.size_max:
            group._prepare_rebalance("the group has more members than group.max.size", monotonic_ms)
        group._wake_at_next()
        return group

    # Requests

    def join(self, request: JoinGroup, waiter: JoinWaiter, monotonic_ms: int) -> None:
        """A JoinGroup request; `waiter` receives the answer when the rebalance is complete."""
        member_id = request.member_id
        if self.state is DEAD:
            self._refuse_join(waiter, member_id, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif not self.has_room(member_id):
            self._forget(member_id)
            self._refuse_join(waiter, UNKNOWN_MEMBER, ErrorCode.GROUP_MAX_SIZE_REACHED)
        elif not self.supports(request):
            self._refuse_join(waiter, member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif member_id == UNKNOWN_MEMBER:
            self._join_new(request, waiter, monotonic_ms)
        elif member_id in self.pending and request.group_instance_id is None:
            self._admit(request, member_id, waiter, monotonic_ms)
        else:
            self._join_known(request, waiter, monotonic_ms)
        if self.state is PREPARING:
            self._try_complete_join(monotonic_ms)

    def sync(self, request: SyncGroup, waiter: SyncWaiter, monotonic_ms: int) -> None:
        """A SyncGroup request; `waiter` receives the answer when the leader's assignment is in the log."""
        error = self.check_sync(request)
        if error:
            self.effects.append(AnswerSync(waiter, SyncAnswer(error=error)))
            return
        member = self.roster[request.member_id]
        self._has_synced(member.member_id)
        if self.state is STABLE:
            self.effects.append(AnswerSync(waiter, self.sync_answer(member)))
            self._keep_alive(member, monotonic_ms)
            return
        self._answer_sync(member, SyncAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS), monotonic_ms)  # to an earlier request
        member.awaiting_sync = waiter
        if self.roster.leader == member.member_id and self._assigning != self.generation:
            self._assigning = self.generation
            assignments = {m.member_id: request.assignments.get(m.member_id, b"") for m in self.roster}
            self.effects.append(Persist(self.record(assignments), AssignmentWritten(self.generation, assignments)))

    def heartbeat(self, member_id: str, group_instance_id: str | None, generation_id: int, monotonic_ms: int) -> ErrorCode:
        """Extend a member's session. After REBALANCE_IN_PROGRESS it has to join again."""
        error = self.check_generation(member_id, group_instance_id, generation_id)
        if error:
            return error
        self._keep_alive(self.roster[member_id], monotonic_ms)
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is PREPARING else ErrorCode.NONE

    def leave(self, identities: Sequence[MemberIdentity], monotonic_ms: int) -> list[MemberLeft]:
        """Remove members, by member id or by instance id alone; one result each, in order."""
        size = len(self.roster)
        results = []
        for identity in identities:
            error = self.check_leaver(identity)
            if identity.member_id in self.pending:
                del self.pending[identity.member_id]
            elif not error:
                member_id = identity.member_id or self.roster.instance(identity.group_instance_id or "") or ""
                self._remove(self.roster[member_id], f"it left ({identity.reason or 'no reason given'})")
            results.append(MemberLeft(member_id=identity.member_id, group_instance_id=identity.group_instance_id, error=error))
        self._after_removal(len(self.roster) < size, "members left", monotonic_ms)
        return results

    def check_commit(self, member_id: str, group_instance_id: str | None, generation_id: int, monotonic_ms: int) -> ErrorCode:
        """Whether this member may commit offsets; a commit counts as a heartbeat. Without members any client may, with generation -1."""
        if self.state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if self.state is EMPTY and generation_id < 0:
            return ErrorCode.NONE
        error = self.check_generation(member_id, group_instance_id, generation_id)
        if not error and self.state is COMPLETING:
            return ErrorCode.REBALANCE_IN_PROGRESS
        if not error:
            self._keep_alive(self.roster[member_id], monotonic_ms)
        return error

    # Events

    def tick(self, monotonic_ms: int) -> None:
        """Check every deadline."""
        if self.state is DEAD:
            return
        self._wake_ms = None
        for member_id in [m for m, deadline in self.pending.items() if deadline <= monotonic_ms]:
            del self.pending[member_id]
        self._end_sessions([m for m in self.roster if m.is_watched and m.deadline_ms <= monotonic_ms], monotonic_ms)
        if self._rebalance is not None and self._rebalance.deadline_ms <= monotonic_ms:
            self._rebalance_timed_out(self._rebalance, monotonic_ms)
        if self._sync_deadline_ms is not None and self._sync_deadline_ms <= monotonic_ms:
            self._sync_timed_out(monotonic_ms)
        self._wake_at_next()

    def evict(self, member_ids: Iterable[str], monotonic_ms: int) -> None:
        """End the sessions of members now, as when they time out."""
        self._end_sessions([self.roster[member_id] for member_id in member_ids], monotonic_ms)

    def _end_sessions(self, failed: Sequence[Member], monotonic_ms: int) -> None:
        for member in failed:
            self._remove(member, "its session timed out")
        self._after_removal(bool(failed), "members failed", monotonic_ms)

    def written(self, then: Written, error: ErrorCode, monotonic_ms: int) -> None:
        """The record of a `Persist` effect is in the log, or could not be written."""
        if self.state is DEAD:
            return
        match then:
            case EmptyWritten():
                if error:  # the log has the previous generation, whose members time out if it is loaded again
                    log.warning("group %s: cannot write the record of the empty group: %s", self.group_id, error.name)
            case AssignmentWritten(generation, assignments):
                if self.state is COMPLETING and generation == self.generation:
                    self._assignment_written(assignments, error, monotonic_ms)
            case StaticMemberWritten():
                self._static_member_written(then, error, monotonic_ms)

    def die(self, error: ErrorCode) -> None:
        """Unload or delete the group; waiting requests are answered with `error`."""
        for member in self.roster:
            self._answer_join(member, JoinAnswer(error=error, member_id=member.member_id))
            self._answer_sync(member, SyncAnswer(error=error), None)
        self.move_to(DEAD)

    # Joining

    def _join_new(self, request: JoinGroup, waiter: JoinWaiter, monotonic_ms: int) -> None:
        """A client without a member id: a static member may be known; a dynamic one may have to join twice (KIP-394)."""
        instance = request.group_instance_id
        member_id = f"{(instance or request.client_id)[:CLIENT_ID_PREFIX_MAX]}-{self._unique()}"
        old_member_id = None if instance is None else self.roster.instance(instance)
        if old_member_id is not None:
            self._replace_static(self.roster[old_member_id], member_id, request, waiter, monotonic_ms)
        elif instance is None and request.member_id_required:
            self._give_out(member_id, monotonic_ms + request.session_timeout_ms)
            self._refuse_join(waiter, member_id, ErrorCode.MEMBER_ID_REQUIRED)
        else:
            self._admit(request, member_id, waiter, monotonic_ms)

    def _give_out(self, member_id: str, deadline_ms: int) -> None:
        if len(self.pending) >= self.config.pending_members_max:
            self.pending.pop(next(iter(self.pending)))  # the oldest; its client receives UNKNOWN_MEMBER_ID and starts over
        self.pending[member_id] = deadline_ms
        self._wake_by(deadline_ms)

    def _admit(self, request: JoinGroup, member_id: str, waiter: JoinWaiter, monotonic_ms: int) -> None:
        """Add a new member, and rebalance."""
        self.pending.pop(member_id, None)
        if self.state is PREPARING and self.generation == 0:
            self._grew = True
        if not len(self.roster):
            self.protocol_type = request.protocol_type
        # It sends no heartbeats while it waits in JoinGroup; the deadline removes it if its client is gone.
        deadline_ms = monotonic_ms + self.config.new_member_join_timeout_ms
        self.roster.add(
            Member(
                member_id=member_id,
                group_instance_id=request.group_instance_id,
                client_id=request.client_id,
                client_host=request.client_host,
                rebalance_timeout_ms=request.rebalance_timeout_ms,
                session_timeout_ms=request.session_timeout_ms,
                protocols=request.protocols,
                deadline_ms=deadline_ms,
                is_new=True,
                awaiting_join=waiter,
            )
        )
        self._wake_by(deadline_ms)
        self._maybe_prepare_rebalance(f"member {member_id} joined", monotonic_ms)

    def _join_known(self, request: JoinGroup, waiter: JoinWaiter, monotonic_ms: int) -> None:
        """A member joins again: for a rebalance in progress, to start one, or because it missed an answer."""
        error = self.check_member(request.member_id, request.group_instance_id)
        if error:
            self._refuse_join(waiter, request.member_id, error)
            return
        member = self.roster[request.member_id]
        unchanged = member.protocols == request.protocols
        leads = self.roster.leader == member.member_id
        # The leader of a stable group joins to start a rebalance, e.g. when a topic has new partitions.
        if unchanged and (self.state is COMPLETING or (self.state is STABLE and not leads)):
            self.effects.append(AnswerJoin(waiter, self.join_answer(member)))
            return
        self._await_join(member, waiter)
        self.roster.update(member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
        why = "the leader joined again" if leads else f"member {member.member_id} changed its protocols"
        self._maybe_prepare_rebalance(why, monotonic_ms)

    def _replace_static(self, member: Member, member_id: str, request: JoinGroup, waiter: JoinWaiter, monotonic_ms: int) -> None:
        """A static member has restarted (KIP-345): its old id is fenced, and a stable group does not rebalance."""
        old_id, old_leader = member.member_id, self.roster.leader or ""
        old_protocols, old_timeouts = member.protocols, (member.rebalance_timeout_ms, member.session_timeout_ms)
        self._answer_join(member, JoinAnswer(error=ErrorCode.FENCED_INSTANCE_ID, member_id=old_id))
        self._answer_sync(member, SyncAnswer(error=ErrorCode.FENCED_INSTANCE_ID), None)
        self._rename(member, member_id)
        self.roster.update(member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
        self.roster.await_join(member, waiter)
        log.info("group %s: static member %s rejoined as %s and replaces %s", self.group_id, member.group_instance_id, member_id, old_id)
        if self.state is STABLE and self.roster.select_protocol() == self.protocol_name:
            then = StaticMemberWritten(
                generation=self.generation,
                member_id=member_id,
                waiter=waiter,
                can_skip_assignment=request.can_skip_assignment,
                old_member_id=old_id,
                old_leader=old_leader,
                old_protocols=old_protocols,
                old_rebalance_timeout_ms=old_timeouts[0],
                old_session_timeout_ms=old_timeouts[1],
            )
            self.effects.append(Persist(self.record({m.member_id: m.assignment for m in self.roster}), then))
        else:
            # In CompletingRebalance the leader may have assigned partitions to the old id already.
            self._maybe_prepare_rebalance(f"static member {member.group_instance_id} rejoined", monotonic_ms)

    def _static_member_written(self, then: StaticMemberWritten, error: ErrorCode, monotonic_ms: int) -> None:
        member = self.roster.get(then.member_id)
        if member is None or member.awaiting_join is not then.waiter or self.state is not STABLE or self.generation != then.generation:
            return  # it is gone, has been answered, or is in a rebalance that has begun since
        leads = self.roster.leader == member.member_id
        if error:
            self._rename(member, then.old_member_id)
            self.roster.update(member, then.old_protocols, then.old_rebalance_timeout_ms, then.old_session_timeout_ms)
            answer = self.join_answer(member, error=error, member_id=UNKNOWN_MEMBER, leader=then.old_leader, members=())
        elif then.can_skip_assignment:
            answer = self.join_answer(member, skip_assignment=leads)
        else:  # it must not assign, as no other member would receive that: its old id is named as the leader
            answer = self.join_answer(member, leader=then.old_leader, members=())
        self._keep_alive(member, monotonic_ms)
        self._answer_join(member, answer)

    def _rename(self, member: Member, member_id: str) -> None:
        if member.member_id in self._unsynced:
            self._unsynced.remove(member.member_id)
            self._unsynced.add(member_id)
        self.roster.rename(member, member_id)

    # Rebalancing

    def _maybe_prepare_rebalance(self, why: str, monotonic_ms: int) -> None:
        if PREPARING in TRANSITIONS[self.state]:
            self._prepare_rebalance(why, monotonic_ms)

    def _prepare_rebalance(self, why: str, monotonic_ms: int) -> None:
        """Start a rebalance. A group that was empty waits for more members (KIP-134)."""
        if self.state is COMPLETING:
            self._refuse_assignments(ErrorCode.REBALANCE_IN_PROGRESS, monotonic_ms)
        self._unsynced.clear()
        self._sync_deadline_ms = None
        timeout_ms = self.roster.rebalance_timeout_ms
        if self.state is EMPTY:
            delay_ms = self.config.initial_rebalance_delay_ms
            self._rebalance = _Rebalance(monotonic_ms + delay_ms, monotonic_ms + max(timeout_ms, delay_ms))
            self._grew = False
        else:
            self._rebalance = _Rebalance(monotonic_ms + timeout_ms)
        self._wake_by(self._rebalance.deadline_ms)
        self.move_to(PREPARING)
        log.log(self._progress, "group %s: preparing to rebalance after generation %d: %s", self.group_id, self.generation, why)
        self._try_complete_join(monotonic_ms)

    def _rebalance_timed_out(self, rebalance: _Rebalance, monotonic_ms: int) -> None:
        until_ms = rebalance.extend_until_ms
        if until_ms is not None and self._grew and monotonic_ms < until_ms and self.config.initial_rebalance_delay_ms:
            self._grew = False
            rebalance.deadline_ms = min(monotonic_ms + self.config.initial_rebalance_delay_ms, until_ms)
        else:
            self._complete_join(monotonic_ms)

    def _try_complete_join(self, monotonic_ms: int) -> None:
        first = self._rebalance is not None and self._rebalance.extend_until_ms is not None
        if not first and self.roster.joined_count == len(self.roster) and not self.pending:
            self._complete_join(monotonic_ms)

    def _complete_join(self, monotonic_ms: int) -> None:
        """End the wait for members: dynamic members that have not joined are removed, static ones stay until their sessions end."""
        for member in [m for m in self.roster if m.awaiting_join is None and not m.is_static]:
            self._remove(member, "it did not rejoin within the rebalance timeout")
        if len(self.roster) and not self.roster.elect_joined_leader():
            self._rebalance = _Rebalance(monotonic_ms + max(self.roster.rebalance_timeout_ms, RETRY_MS_MIN))
            log.info("group %s: no member has joined the rebalance; waiting for another rebalance timeout", self.group_id)
            return
        self._rebalance = None
        self._start_generation(monotonic_ms)

    def _start_generation(self, monotonic_ms: int) -> None:
        self.generation += 1
        self.protocol_name = self.roster.select_protocol() if len(self.roster) else None
        self.read_subscriptions()
        log.log(self._progress, "group %s: generation %d with %s", self.group_id, self.generation, amount(len(self.roster), "member"))
        if not len(self.roster):
            self.move_to(EMPTY)
            self.effects.append(Persist(self.record({}), EmptyWritten(self.generation)))
            return
        self.move_to(COMPLETING)
        for member in self.roster:
            self._answer_join(member, self.join_answer(member))
            member.is_new = False
            self._keep_alive(member, monotonic_ms)
            self._unsynced.add(member.member_id)
        self._sync_deadline_ms = monotonic_ms + self.roster.rebalance_timeout_ms
        self._wake_by(self._sync_deadline_ms)

    # Syncing

    def _has_synced(self, member_id: str) -> None:
        self._unsynced.discard(member_id)
        if not self._unsynced:
            self._sync_deadline_ms = None

    def _sync_timed_out(self, monotonic_ms: int) -> None:
        for member_id in self._unsynced:
            self._remove(self.roster[member_id], "it did not send SyncGroup within the rebalance timeout")
        self._prepare_rebalance("members did not send SyncGroup in time", monotonic_ms)

    def _assignment_written(self, assignments: dict[str, bytes], error: ErrorCode, monotonic_ms: int) -> None:
        if error:
            self._refuse_assignments(error, monotonic_ms)
            self._prepare_rebalance(f"the assignment cannot be written: {error.name}", monotonic_ms)
            self._progress = logging.DEBUG
            return
        if self._progress == logging.DEBUG:
            self._progress = logging.INFO
            log.info("group %s: the assignment of generation %d is written", self.group_id, self.generation)
        for member in self.roster:
            member.assignment = assignments[member.member_id]
            self._answer_sync(member, self.sync_answer(member), monotonic_ms)
        self.move_to(STABLE)

    def _refuse_assignments(self, error: ErrorCode, monotonic_ms: int) -> None:
        for member in self.roster:
            self._answer_sync(member, SyncAnswer(error=error), monotonic_ms)

    # Members

    def _remove(self, member: Member, why: str) -> None:
        """Remove a member. If it waits for an answer, it receives UNKNOWN_MEMBER_ID and can join again."""
        log.info("group %s: removing member %s: %s", self.group_id, member.member_id, why)
        self._answer_join(member, JoinAnswer(error=ErrorCode.UNKNOWN_MEMBER_ID))
        self._answer_sync(member, SyncAnswer(error=ErrorCode.UNKNOWN_MEMBER_ID), None)
        self.roster.remove(member)

    def _forget(self, member_id: str) -> None:
        self.pending.pop(member_id, None)
        member = self.roster.get(member_id)
        if member is not None:
            self.roster.remove(member)

    def _after_removal(self, removed: bool, why: str, monotonic_ms: int) -> None:
        """Members or pending ids are gone: a rebalance may be complete now; if members were `removed`, one starts."""
        if self.state is PREPARING:
            self._try_complete_join(monotonic_ms)
        elif removed:
            self._prepare_rebalance(why, monotonic_ms)

    def _refuse_join(self, waiter: JoinWaiter, member_id: str, error: ErrorCode) -> None:
        self.effects.append(AnswerJoin(waiter, JoinAnswer(error=error, member_id=member_id)))

    def _await_join(self, member: Member, waiter: JoinWaiter) -> None:
        before = self.roster.await_join(member, waiter)
        if before is not None:  # the client has sent another request; every request is answered
            self._refuse_join(before, member.member_id, ErrorCode.REBALANCE_IN_PROGRESS)

    def _answer_join(self, member: Member, answer: JoinAnswer) -> None:
        waiter = self.roster.await_join(member, None)
        if waiter is not None:
            self.effects.append(AnswerJoin(waiter, answer))

    def _answer_sync(self, member: Member, answer: SyncAnswer, alive_ms: int | None) -> None:
        """Answer a waiting SyncGroup, if any; the member's session starts again, unless it is being removed (`alive_ms` None)."""
        waiter, member.awaiting_sync = member.awaiting_sync, None
        if waiter is not None:
            self.effects.append(AnswerSync(waiter, answer))
            if alive_ms is not None:
                self._keep_alive(member, alive_ms)

    # Deadlines

    def _keep_alive(self, member: Member, monotonic_ms: int) -> None:
        member.deadline_ms = monotonic_ms + member.session_timeout_ms
        self._wake_by(member.deadline_ms)

    def _wake_by(self, at_ms: int) -> None:
        if self._wake_ms is None or at_ms < self._wake_ms:
            self._wake_ms = at_ms
            self.effects.append(WakeAt(at_ms))

    def _wake_at_next(self) -> None:
        deadlines = [m.deadline_ms for m in self.roster if m.is_watched]
        deadlines.extend(self.pending.values())
        if self._rebalance is not None:
            deadlines.append(self._rebalance.deadline_ms)
        if self._sync_deadline_ms is not None:
            deadlines.append(self._sync_deadline_ms)
        if deadlines:
            self._wake_by(min(deadlines))
