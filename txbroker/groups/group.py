"""One classic consumer group as a state machine: members join, one of them assigns, all sync, heartbeats keep them in.

The rules are those of Kafka's group coordinator: KIP-62 (rebalance timeout apart from the session's), KIP-134 (initial delay), KIP-345
(static members), KIP-389 (size limit), KIP-394 (member id required), KIP-559 (protocol checked at sync), KIP-814 (skipping the
assignment). Cooperative members (KIP-429) need nothing here: what they agree upon is in bytes that the group passes on.

Nothing is done here: what must be done is in `effects`, to be taken from the left and performed in that order. One deadline
serves all of a group's timers: `WakeAt` asks for `tick`, which looks at everything that may have run out. A heartbeat only moves
its member's deadline, so it costs no timer.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

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

log = logging.getLogger("txbroker.groups")

CLIENT_ID_PREFIX_MAX = 255  # characters of the client id that a member id begins with; a client id may have 32 thousand
RETRY_MS_MIN = 1_000  # between two attempts of a rebalance that no member came to, whatever timeout they asked for

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState


@dataclass(slots=True)
class _Rebalance:
    """The wait for members to join. `extend_until_ms` is set in a first rebalance, which always waits to its end."""

    deadline_ms: int
    extend_until_ms: int | None = None


class Group(GroupMembership):
    """One group. Methods take `monotonic_ms`, the time of a monotonic clock in milliseconds, and leave what is to be done in `effects`.

    `now_ms` is the wall clock, for the date in a group's record alone.
    """

    def __init__(self, group_id: str, config: GroupConfig, unique: Callable[[], str], now_ms: Callable[[], int]) -> None:
        super().__init__(group_id, config, now_ms)
        self.effects: deque[Effect] = deque()
        self._unique = unique
        self._rebalance: _Rebalance | None = None
        self._grew = False  # a member came while the first rebalance waited
        self._unsynced: set[str] = set()  # members of this generation that have not sent SyncGroup yet
        self._sync_deadline_ms: int | None = None
        self._assigning: int | None = None  # the generation whose assignment is being written
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
        """The group that a record describes: stable if it has members, whose sessions start anew."""
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
            group._prepare_rebalance("the group is larger than group.max.size", monotonic_ms)
        group._wake_at_next()
        return group

    # What clients ask for

    def join(self, request: JoinGroup, waiter: JoinWaiter, monotonic_ms: int) -> None:
        """A JoinGroup request; `waiter` gets its one answer, perhaps much later."""
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
        """A SyncGroup request; `waiter` gets its one answer once the leader's assignment is written."""
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
        self._answer_sync(member, SyncAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS), monotonic_ms)  # to an older request of its
        member.awaiting_sync = waiter
        if self.roster.leader == member.member_id and self._assigning != self.generation:
            self._assigning = self.generation
            assignments = {m.member_id: request.assignments.get(m.member_id, b"") for m in self.roster}
            self.effects.append(Persist(self.record(assignments), AssignmentWritten(self.generation, assignments)))

    def heartbeat(self, member_id: str, group_instance_id: str | None, generation_id: int, monotonic_ms: int) -> ErrorCode:
        """A member is alive. REBALANCE_IN_PROGRESS tells it to join again."""
        error = self.check_generation(member_id, group_instance_id, generation_id)
        if error:
            return error
        self._keep_alive(self.roster[member_id], monotonic_ms)
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is PREPARING else ErrorCode.NONE

    def leave(self, identities: Sequence[MemberIdentity], monotonic_ms: int) -> list[MemberLeft]:
        """Members go, by member id or by instance id alone; one result each, in order."""
        size = len(self.roster)
        results = []
        for identity in identities:
            error = self.check_leaver(identity)
            if identity.member_id in self.pending:
                del self.pending[identity.member_id]
            elif not error:
                member_id = identity.member_id or self.roster.instance(identity.group_instance_id or "") or ""
                self._remove(self.roster[member_id], f"it left the group ({identity.reason or 'no reason given'})")
            results.append(MemberLeft(member_id=identity.member_id, group_instance_id=identity.group_instance_id, error=error))
        self._after_removal(len(self.roster) < size, "members left", monotonic_ms)
        return results

    def check_commit(self, member_id: str, group_instance_id: str | None, generation_id: int, monotonic_ms: int) -> ErrorCode:
        """Whether these may commit offsets now. A commit counts as a heartbeat. Without members anyone may, with generation -1."""
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

    # What the coordinator tells

    def tick(self, monotonic_ms: int) -> None:
        """Look at everything that may have run out by now."""
        if self.state is DEAD:
            return
        self._wake_ms = None
        for member_id in [m for m, deadline in self.pending.items() if deadline <= monotonic_ms]:
            del self.pending[member_id]
        failed = [m for m in self.roster if m.is_watched and m.deadline_ms <= monotonic_ms]
        for member in failed:
            self._remove(member, "its session timed out")
        self._after_removal(bool(failed), "members failed", monotonic_ms)
        if self._rebalance is not None and self._rebalance.deadline_ms <= monotonic_ms:
            self._rebalance_timed_out(self._rebalance, monotonic_ms)
        if self._sync_deadline_ms is not None and self._sync_deadline_ms <= monotonic_ms:
            self._sync_timed_out(monotonic_ms)
        self._wake_at_next()

    def written(self, then: Written, error: ErrorCode, monotonic_ms: int) -> None:
        """A record that `Persist` asked for is in the log, or failed to get there."""
        if self.state is DEAD:
            return
        match then:
            case EmptyWritten():
                if error:  # the log still has the generation before: after a failover its members would time out
                    log.warning("group %s: could not write that it is empty: %s", self.group_id, error.name)
            case AssignmentWritten(generation, assignments):
                if self.state is COMPLETING and generation == self.generation:
                    self._assignment_written(assignments, error, monotonic_ms)
            case StaticMemberWritten():
                self._static_member_written(then, error, monotonic_ms)

    def die(self, error: ErrorCode) -> None:
        """The group ends here; whoever waits is answered with `error`."""
        for member in self.roster:
            self._answer_join(member, JoinAnswer(error=error, member_id=member.member_id))
            self._answer_sync(member, SyncAnswer(error=error), None)
        self.move_to(DEAD)

    # Joining

    def _join_new(self, request: JoinGroup, waiter: JoinWaiter, monotonic_ms: int) -> None:
        """A client without a member id: a static member may be known all the same, a dynamic one may have to ask twice (KIP-394)."""
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
            self.pending.pop(next(iter(self.pending)))  # the oldest; its owner starts over with UNKNOWN_MEMBER_ID
        self.pending[member_id] = deadline_ms
        self._wake_by(deadline_ms)

    def _admit(self, request: JoinGroup, member_id: str, waiter: JoinWaiter, monotonic_ms: int) -> None:
        """Add a member that was not in the group before, and rebalance."""
        self.pending.pop(member_id, None)
        if self.state is PREPARING and self.generation == 0:
            self._grew = True
        if not len(self.roster):
            self.protocol_type = request.protocol_type
        # It may not know its member id yet, so it cannot send heartbeats; a limited wait sheds those whose client has gone away.
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
        """A member joins again: to take part in a rebalance, to ask for one, or because it missed an answer."""
        error = self.check_member(request.member_id, request.group_instance_id)
        if error:
            self._refuse_join(waiter, request.member_id, error)
            return
        member = self.roster[request.member_id]
        unchanged = member.protocols == request.protocols
        leads = self.roster.leader == member.member_id
        # The leader of a stable group joins to have everything assigned anew, e.g. since a topic has more partitions now.
        if unchanged and (self.state is COMPLETING or (self.state is STABLE and not leads)):
            self.effects.append(AnswerJoin(waiter, self.join_answer(member)))
            return
        self._await_join(member, waiter)
        self.roster.update(member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
        why = "the leader joined again" if leads else f"member {member.member_id} changed its protocols"
        self._maybe_prepare_rebalance(why, monotonic_ms)

    def _replace_static(self, member: Member, member_id: str, request: JoinGroup, waiter: JoinWaiter, monotonic_ms: int) -> None:
        """A static member has restarted (KIP-345): its old id is fenced, and a stable group need not rebalance for it."""
        old_id, old_leader = member.member_id, self.roster.leader or ""
        old_protocols, old_timeouts = member.protocols, (member.rebalance_timeout_ms, member.session_timeout_ms)
        self._answer_join(member, JoinAnswer(error=ErrorCode.FENCED_INSTANCE_ID, member_id=old_id))
        self._answer_sync(member, SyncAnswer(error=ErrorCode.FENCED_INSTANCE_ID), None)
        self._rename(member, member_id)
        self.roster.update(member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
        self.roster.await_join(member, waiter)
        log.info("group %s: static member %s came back as %s, was %s", self.group_id, member.group_instance_id, member_id, old_id)
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
            # While a generation completes, its leader may have assigned to the old id already.
            self._maybe_prepare_rebalance(f"static member {member.group_instance_id} came back", monotonic_ms)

    def _static_member_written(self, then: StaticMemberWritten, error: ErrorCode, monotonic_ms: int) -> None:
        member = self.roster.get(then.member_id)
        if member is None or member.awaiting_join is not then.waiter or self.state is not STABLE or self.generation != then.generation:
            return  # it is gone, was answered, or takes part in a rebalance that has begun since
        leads = self.roster.leader == member.member_id
        if error:
            self._rename(member, then.old_member_id)
            self.roster.update(member, then.old_protocols, then.old_rebalance_timeout_ms, then.old_session_timeout_ms)
            answer = self.join_answer(member, error=error, member_id=UNKNOWN_MEMBER, leader=then.old_leader, members=())
        elif then.can_skip_assignment:
            answer = self.join_answer(member, skip_assignment=leads)
        else:  # it would assign if it took itself for the leader, and nobody would hear of it: name its old id
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
        """Begin to collect members. A group that was empty waits a while for more of them (KIP-134)."""
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
        log.info("group %s: rebalancing after generation %d: %s", self.group_id, self.generation, why)
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
        """End the collecting: dynamic members that did not come are out, static ones stay until their sessions end."""
        for member in [m for m in self.roster if m.awaiting_join is None and not m.is_static]:
            self._remove(member, "it did not join again in time")
        if len(self.roster) and not self.roster.elect_joined_leader():
            self._rebalance = _Rebalance(monotonic_ms + max(self.roster.rebalance_timeout_ms, RETRY_MS_MIN))
            log.info("group %s: no member joined the rebalance, waiting on", self.group_id)
            return
        self._rebalance = None
        self._start_generation(monotonic_ms)

    def _start_generation(self, monotonic_ms: int) -> None:
        self.generation += 1
        self.protocol_name = self.roster.select_protocol() if len(self.roster) else None
        self.read_subscriptions()
        log.info("group %s: generation %d has %d members", self.group_id, self.generation, len(self.roster))
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
            self._remove(self.roster[member_id], "it did not sync in time")
        self._prepare_rebalance("members did not sync in time", monotonic_ms)

    def _assignment_written(self, assignments: dict[str, bytes], error: ErrorCode, monotonic_ms: int) -> None:
        if error:
            self._refuse_assignments(error, monotonic_ms)
            self._prepare_rebalance(f"the assignment could not be written: {error.name}", monotonic_ms)
            return
        for member in self.roster:
            member.assignment = assignments[member.member_id]
            self._answer_sync(member, self.sync_answer(member), monotonic_ms)
        self.move_to(STABLE)

    def _refuse_assignments(self, error: ErrorCode, monotonic_ms: int) -> None:
        for member in self.roster:
            self._answer_sync(member, SyncAnswer(error=error), monotonic_ms)

    # Members

    def _remove(self, member: Member, why: str) -> None:
        """Let a member go. A client that still waits is told UNKNOWN_MEMBER_ID, and joins again if it lives."""
        log.info("group %s: member %s is out: %s", self.group_id, member.member_id, why)
        self._answer_join(member, JoinAnswer(error=ErrorCode.UNKNOWN_MEMBER_ID))
        self._answer_sync(member, SyncAnswer(error=ErrorCode.UNKNOWN_MEMBER_ID), None)
        self.roster.remove(member)

    def _forget(self, member_id: str) -> None:
        self.pending.pop(member_id, None)
        member = self.roster.get(member_id)
        if member is not None:
            self.roster.remove(member)

    def _after_removal(self, removed: bool, why: str, monotonic_ms: int) -> None:
        """Members or owners of pending ids are gone: whoever joins may not have to wait any more; `removed` members are to be replaced."""
        if self.state is PREPARING:
            self._try_complete_join(monotonic_ms)
        elif removed:
            self._prepare_rebalance(why, monotonic_ms)

    def _refuse_join(self, waiter: JoinWaiter, member_id: str, error: ErrorCode) -> None:
        self.effects.append(AnswerJoin(waiter, JoinAnswer(error=error, member_id=member_id)))

    def _await_join(self, member: Member, waiter: JoinWaiter) -> None:
        before = self.roster.await_join(member, waiter)
        if before is not None:  # the client asks again, so nobody reads this answer; but every request gets one
            self._refuse_join(before, member.member_id, ErrorCode.REBALANCE_IN_PROGRESS)

    def _answer_join(self, member: Member, answer: JoinAnswer) -> None:
        waiter = self.roster.await_join(member, None)
        if waiter is not None:
            self.effects.append(AnswerJoin(waiter, answer))

    def _answer_sync(self, member: Member, answer: SyncAnswer, alive_ms: int | None) -> None:
        """Answer a waiting SyncGroup, if any; its member's session starts anew unless it is on its way out (`alive_ms` None)."""
        waiter, member.awaiting_sync = member.awaiting_sync, None
        if waiter is not None:
            self.effects.append(AnswerSync(waiter, answer))
            if alive_ms is not None:
                self._keep_alive(member, alive_ms)

    # Time and records

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
