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
from txbroker.groups.group_results import (
    UNKNOWN_MEMBER,
    JoinAnswer,
    JoinedMember,
    JoinGroup,
    MemberIdentity,
    MemberLeft,
    SyncAnswer,
    SyncGroup,
)
from txbroker.groups.group_states import TRANSITIONS, GroupState
from txbroker.groups.roster import Member, Roster
from txbroker.groups.subscription import CONSUMER_PROTOCOL, all_topics

log = logging.getLogger("txbroker.groups")

CLIENT_ID_PREFIX_MAX = 255  # characters of the client id that a member id begins with; a client id may have 32 thousand
RETRY_MS_MIN = 1_000  # between two attempts of a rebalance that no member came to, whatever timeout they asked for

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState


@dataclass(slots=True)
class _Rebalance:
    """The wait for members to join. `extend_until_ms` is set in a first rebalance, which always waits to its end."""

    deadline_ms: int
    extend_until_ms: int | None = None


class Group:
    """One group. Methods take `now_ms` (wall clock) and leave what is to be done in `effects`."""

    def __init__(self, group_id: str, config: GroupConfig, unique: Callable[[], str], now_ms: int) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.state_ms: int | None = now_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.subscribed_topics: frozenset[str] | None = None
        self.roster = Roster()
        self.effects: deque[Effect] = deque()
        self._config = config
        self._unique = unique
        self._pending: dict[str, int] = {}  # ids given out (KIP-394) whose owners have not joined yet -> deadline
        self._rebalance: _Rebalance | None = None
        self._grew = False  # a member came while the first rebalance waited
        self._unsynced: set[str] = set()  # members of this generation that have not sent SyncGroup yet
        self._sync_deadline_ms: int | None = None
        self._assigning: int | None = None  # the generation whose assignment is being written
        self._wake_ms: int | None = None

    @classmethod
    def restored(cls, group_id: str, config: GroupConfig, unique: Callable[[], str], record: GroupRecord, now_ms: int) -> Group:
        """The group that a record describes: stable if it has members, whose sessions start anew."""
        group = cls(group_id, config, unique, now_ms)
        group.state = STABLE if record.members else EMPTY
        group.state_ms = record.state_ms
        group.generation = record.generation
        group.protocol_type = record.protocol_type or None
        group.protocol_name = record.protocol
        for member in {m.member_id: m for m in record.members}.values():
            group.roster.add(Member.restored(member, record.protocol, now_ms))
        if record.leader in group.roster.members:
            group.roster.leader = record.leader
        group.subscribed_topics = group._find_subscribed_topics()
        if len(group.roster) > config.size_max:
            group._prepare_rebalance("the group is larger than group.max.size", now_ms)
        group._wake_at_next()
        return group

    @property
    def is_consumer_group(self) -> bool:
        """Whether its members speak the consumer protocol, so that their subscriptions can be read."""
        return self.protocol_type == CONSUMER_PROTOCOL

    @property
    def has_pending(self) -> bool:
        """Whether member ids are given out whose owners may still join."""
        return bool(self._pending)

    # What clients ask for

    def join(self, request: JoinGroup, waiter: JoinWaiter, now_ms: int) -> None:
        """A JoinGroup request; `waiter` gets its one answer, perhaps much later."""
        member_id = request.member_id
        if self.state is DEAD:
            self._refuse_join(waiter, member_id, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif not self._has_room(member_id):
            self._forget(member_id)
            self._refuse_join(waiter, UNKNOWN_MEMBER, ErrorCode.GROUP_MAX_SIZE_REACHED)
        elif not self._agrees(request):
            self._refuse_join(waiter, member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif member_id == UNKNOWN_MEMBER:
            self._join_new(request, waiter, now_ms)
        elif member_id in self._pending and request.group_instance_id is None:
            self._admit(request, member_id, waiter, now_ms)
        else:
            self._join_known(request, waiter, now_ms)
        if self.state is PREPARING:
            self._try_complete_join(now_ms)

    def sync(self, request: SyncGroup, waiter: SyncWaiter, now_ms: int) -> None:
        """A SyncGroup request; `waiter` gets its one answer once the leader's assignment is written."""
        error = self._check_sync(request)
        if error:
            self.effects.append(AnswerSync(waiter, SyncAnswer(error=error)))
            return
        member = self.roster[request.member_id]
        self._has_synced(member.member_id)
        if self.state is STABLE:
            self.effects.append(AnswerSync(waiter, self._assignment_of(member)))
            self._keep_alive(member, now_ms)
            return
        self._answer_sync(member, SyncAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS), now_ms)  # to an older request of its
        member.awaiting_sync = waiter
        if self.roster.leader == member.member_id and self._assigning != self.generation:
            self._assigning = self.generation
            assignments = {m.member_id: request.assignments.get(m.member_id, b"") for m in self.roster}
            self.effects.append(Persist(self._record(assignments), AssignmentWritten(self.generation, assignments)))

    def heartbeat(self, member_id: str, group_instance_id: str | None, generation_id: int, now_ms: int) -> ErrorCode:
        """A member is alive. REBALANCE_IN_PROGRESS tells it to join again."""
        error = self._check_member(member_id, group_instance_id) or self._check_generation(generation_id)
        if error:
            return error
        self._keep_alive(self.roster[member_id], now_ms)
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is PREPARING else ErrorCode.NONE

    def leave(self, identities: Sequence[MemberIdentity], now_ms: int) -> list[MemberLeft]:
        """Members go, by member id or by instance id alone; one result each, in order."""
        size = len(self.roster)
        results = []
        for identity in identities:
            error = self._check_leaver(identity)
            if identity.member_id in self._pending:
                del self._pending[identity.member_id]
            elif not error:
                member_id = identity.member_id or self.roster.instance(identity.group_instance_id or "") or ""
                self._remove(self.roster[member_id], f"it left the group ({identity.reason or 'no reason given'})")
            results.append(MemberLeft(member_id=identity.member_id, group_instance_id=identity.group_instance_id, error=error))
        self._after_removal(len(self.roster) < size, "members left", now_ms)
        return results

    def check_commit(self, member_id: str, group_instance_id: str | None, generation_id: int, now_ms: int) -> ErrorCode:
        """Whether these may commit offsets now. A commit counts as a heartbeat. Without members anyone may, with generation -1."""
        if self.state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if self.state is EMPTY and generation_id < 0:
            return ErrorCode.NONE
        error = self._check_member(member_id, group_instance_id) or self._check_generation(generation_id)
        if not error and self.state is COMPLETING:
            return ErrorCode.REBALANCE_IN_PROGRESS
        if not error:
            self._keep_alive(self.roster[member_id], now_ms)
        return error

    # What the coordinator tells

    def tick(self, now_ms: int) -> None:
        """Look at everything that may have run out by now."""
        if self.state is DEAD:
            return
        self._wake_ms = None
        for member_id in [m for m, deadline in self._pending.items() if deadline <= now_ms]:
            del self._pending[member_id]
        failed = [m for m in self.roster if m.is_watched and m.deadline_ms <= now_ms]
        for member in failed:
            self._remove(member, "its session timed out")
        self._after_removal(bool(failed), "members failed", now_ms)
        if self._rebalance is not None and self._rebalance.deadline_ms <= now_ms:
            self._rebalance_timed_out(self._rebalance, now_ms)
        if self._sync_deadline_ms is not None and self._sync_deadline_ms <= now_ms:
            self._sync_timed_out(now_ms)
        self._wake_at_next()

    def written(self, then: Written, error: ErrorCode, now_ms: int) -> None:
        """A record that `Persist` asked for is in the log, or failed to get there."""
        if self.state is DEAD:
            return
        match then:
            case EmptyWritten():
                if error:  # the log still has the generation before: after a failover its members would time out
                    log.warning("group %s: could not write that it is empty: %s", self.group_id, error.name)
            case AssignmentWritten(generation, assignments):
                if self.state is COMPLETING and generation == self.generation:
                    self._assignment_written(assignments, error, now_ms)
            case StaticMemberWritten():
                self._static_member_written(then, error, now_ms)

    def die(self, error: ErrorCode) -> None:
        """The group ends here; whoever waits is answered with `error`."""
        for member in self.roster:
            self._answer_join(member, JoinAnswer(error=error, member_id=member.member_id))
            self._answer_sync(member, SyncAnswer(error=error), None)
        self._move_to(DEAD, None)

    # Joining

    def _has_room(self, member_id: str) -> bool:
        """KIP-389. While a rebalance collects members those who joined count, so that an oversized group sheds the late ones."""
        if self.state is EMPTY:
            return True
        member = self.roster.get(member_id)
        if self.state is PREPARING:
            return (member is not None and member.awaiting_join is not None) or self.roster.joined_count < self._config.size_max
        return member is not None or len(self.roster) < self._config.size_max

    def _agrees(self, request: JoinGroup) -> bool:
        if not len(self.roster):
            return bool(request.protocol_type and request.protocols)
        return request.protocol_type == self.protocol_type and self.roster.supports(request.protocols)

    def _join_new(self, request: JoinGroup, waiter: JoinWaiter, now_ms: int) -> None:
        """A client without a member id: a static member may be known all the same, a dynamic one may have to ask twice (KIP-394)."""
        instance = request.group_instance_id
        member_id = f"{(instance or request.client_id)[:CLIENT_ID_PREFIX_MAX]}-{self._unique()}"
        old_member_id = None if instance is None else self.roster.instance(instance)
        if old_member_id is not None:
            self._replace_static(self.roster[old_member_id], member_id, request, waiter, now_ms)
        elif instance is None and request.member_id_required:
            self._give_out(member_id, now_ms + request.session_timeout_ms)
            self._refuse_join(waiter, member_id, ErrorCode.MEMBER_ID_REQUIRED)
        else:
            self._admit(request, member_id, waiter, now_ms)

    def _give_out(self, member_id: str, deadline_ms: int) -> None:
        if len(self._pending) >= self._config.pending_members_max:
            self._pending.pop(next(iter(self._pending)))  # the oldest; its owner starts over with UNKNOWN_MEMBER_ID
        self._pending[member_id] = deadline_ms
        self._wake_by(deadline_ms)

    def _admit(self, request: JoinGroup, member_id: str, waiter: JoinWaiter, now_ms: int) -> None:
        """Add a member that was not in the group before, and rebalance."""
        self._pending.pop(member_id, None)
        if self.state is PREPARING and self.generation == 0:
            self._grew = True
        if not len(self.roster):
            self.protocol_type = request.protocol_type
        # It may not know its member id yet, so it cannot send heartbeats; a limited wait sheds those whose client has gone away.
        deadline_ms = now_ms + self._config.new_member_join_timeout_ms
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
        self._maybe_prepare_rebalance(f"member {member_id} joined", now_ms)

    def _join_known(self, request: JoinGroup, waiter: JoinWaiter, now_ms: int) -> None:
        """A member joins again: to take part in a rebalance, to ask for one, or because it missed an answer."""
        error = self._check_member(request.member_id, request.group_instance_id)
        if error:
            self._refuse_join(waiter, request.member_id, error)
            return
        member = self.roster[request.member_id]
        unchanged = member.protocols == request.protocols
        leads = self.roster.leader == member.member_id
        # The leader of a stable group joins to have everything assigned anew, e.g. since a topic has more partitions now.
        if unchanged and (self.state is COMPLETING or (self.state is STABLE and not leads)):
            self.effects.append(AnswerJoin(waiter, self._generation_for(member)))
            return
        self._await_join(member, waiter)
        self.roster.update(member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
        why = "the leader joined again" if leads else f"member {member.member_id} changed its protocols"
        self._maybe_prepare_rebalance(why, now_ms)

    def _replace_static(self, member: Member, member_id: str, request: JoinGroup, waiter: JoinWaiter, now_ms: int) -> None:
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
            self.effects.append(Persist(self._record({m.member_id: m.assignment for m in self.roster}), then))
        else:
            # While a generation completes, its leader may have assigned to the old id already.
            self._maybe_prepare_rebalance(f"static member {member.group_instance_id} came back", now_ms)

    def _static_member_written(self, then: StaticMemberWritten, error: ErrorCode, now_ms: int) -> None:
        member = self.roster.get(then.member_id)
        if member is None or member.awaiting_join is not then.waiter or self.state is not STABLE or self.generation != then.generation:
            return  # it is gone, was answered, or takes part in a rebalance that has begun since
        leads = self.roster.leader == member.member_id
        if error:
            self._rename(member, then.old_member_id)
            self.roster.update(member, then.old_protocols, then.old_rebalance_timeout_ms, then.old_session_timeout_ms)
            answer = self._generation_for(member, error=error, member_id=UNKNOWN_MEMBER, leader=then.old_leader, members=())
        elif then.can_skip_assignment:
            answer = self._generation_for(member, skip_assignment=leads)
        else:  # it would assign if it took itself for the leader, and nobody would hear of it: name its old id
            answer = self._generation_for(member, leader=then.old_leader, members=())
        self._keep_alive(member, now_ms)
        self._answer_join(member, answer)

    def _rename(self, member: Member, member_id: str) -> None:
        if member.member_id in self._unsynced:
            self._unsynced.remove(member.member_id)
            self._unsynced.add(member_id)
        self.roster.rename(member, member_id)

    # Rebalancing

    def _maybe_prepare_rebalance(self, why: str, now_ms: int) -> None:
        if PREPARING in TRANSITIONS[self.state]:
            self._prepare_rebalance(why, now_ms)

    def _prepare_rebalance(self, why: str, now_ms: int) -> None:
        """Begin to collect members. A group that was empty waits a while for more of them (KIP-134)."""
        if self.state is COMPLETING:
            self._refuse_assignments(ErrorCode.REBALANCE_IN_PROGRESS, now_ms)
        self._unsynced.clear()
        self._sync_deadline_ms = None
        timeout_ms = self.roster.rebalance_timeout_ms
        if self.state is EMPTY:
            delay_ms = self._config.initial_rebalance_delay_ms
            self._rebalance = _Rebalance(now_ms + delay_ms, now_ms + max(timeout_ms, delay_ms))
            self._grew = False
        else:
            self._rebalance = _Rebalance(now_ms + timeout_ms)
        self._wake_by(self._rebalance.deadline_ms)
        self._move_to(PREPARING, now_ms)
        log.info("group %s: rebalancing after generation %d: %s", self.group_id, self.generation, why)
        self._try_complete_join(now_ms)

    def _rebalance_timed_out(self, rebalance: _Rebalance, now_ms: int) -> None:
        until_ms = rebalance.extend_until_ms
        if until_ms is not None and self._grew and now_ms < until_ms and self._config.initial_rebalance_delay_ms:
            self._grew = False
            rebalance.deadline_ms = min(now_ms + self._config.initial_rebalance_delay_ms, until_ms)
        else:
            self._complete_join(now_ms)

    def _try_complete_join(self, now_ms: int) -> None:
        first = self._rebalance is not None and self._rebalance.extend_until_ms is not None
        if not first and self.roster.joined_count == len(self.roster) and not self._pending:
            self._complete_join(now_ms)

    def _complete_join(self, now_ms: int) -> None:
        """End the collecting: dynamic members that did not come are out, static ones stay until their sessions end."""
        for member in [m for m in self.roster if m.awaiting_join is None and not m.is_static]:
            self._remove(member, "it did not join again in time")
        if len(self.roster) and not self.roster.elect_joined_leader():
            self._rebalance = _Rebalance(now_ms + max(self.roster.rebalance_timeout_ms, RETRY_MS_MIN))
            log.info("group %s: no member joined the rebalance, waiting on", self.group_id)
            return
        self._rebalance = None
        self._start_generation(now_ms)

    def _start_generation(self, now_ms: int) -> None:
        self.generation += 1
        self.protocol_name = self.roster.select_protocol() if len(self.roster) else None
        self.subscribed_topics = self._find_subscribed_topics()
        log.info("group %s: generation %d has %d members", self.group_id, self.generation, len(self.roster))
        if not len(self.roster):
            self._move_to(EMPTY, now_ms)
            self.effects.append(Persist(self._record({}), EmptyWritten(self.generation)))
            return
        self._move_to(COMPLETING, now_ms)
        for member in self.roster:
            self._answer_join(member, self._generation_for(member))
            member.is_new = False
            self._keep_alive(member, now_ms)
            self._unsynced.add(member.member_id)
        self._sync_deadline_ms = now_ms + self.roster.rebalance_timeout_ms
        self._wake_by(self._sync_deadline_ms)

    def _generation_for(
        self,
        member: Member,
        *,
        error: ErrorCode = ErrorCode.NONE,
        member_id: str | None = None,
        leader: str | None = None,
        members: tuple[JoinedMember, ...] | None = None,
        skip_assignment: bool = False,
    ) -> JoinAnswer:
        """The answer that tells a member of the present generation; the leader is told all members."""
        if members is None:
            members = self.roster.joined(self.protocol_name) if self.roster.leader == member.member_id else ()
        return JoinAnswer(
            error=error,
            member_id=member.member_id if member_id is None else member_id,
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=(self.roster.leader or "") if leader is None else leader,
            skip_assignment=skip_assignment,
            members=members,
        )

    # Syncing

    def _has_synced(self, member_id: str) -> None:
        self._unsynced.discard(member_id)
        if not self._unsynced:
            self._sync_deadline_ms = None

    def _sync_timed_out(self, now_ms: int) -> None:
        for member_id in self._unsynced:
            self._remove(self.roster[member_id], "it did not sync in time")
        self._prepare_rebalance("members did not sync in time", now_ms)

    def _assignment_written(self, assignments: dict[str, bytes], error: ErrorCode, now_ms: int) -> None:
        if error:
            self._refuse_assignments(error, now_ms)
            self._prepare_rebalance(f"the assignment could not be written: {error.name}", now_ms)
            return
        for member in self.roster:
            member.assignment = assignments[member.member_id]
            self._answer_sync(member, self._assignment_of(member), now_ms)
        self._move_to(STABLE, now_ms)

    def _refuse_assignments(self, error: ErrorCode, now_ms: int) -> None:
        for member in self.roster:
            self._answer_sync(member, SyncAnswer(error=error), now_ms)

    def _assignment_of(self, member: Member) -> SyncAnswer:
        return SyncAnswer(protocol_type=self.protocol_type, protocol_name=self.protocol_name, assignment=member.assignment)

    # Checks

    def _check_member(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """A static instance must have this member id still, and the member must be in the group."""
        if self.state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if group_instance_id is not None:
            current = self.roster.instance(group_instance_id)
            if current is not None and current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member_id in self.roster else ErrorCode.UNKNOWN_MEMBER_ID

    def _check_generation(self, generation_id: int) -> ErrorCode:
        return ErrorCode.NONE if generation_id == self.generation else ErrorCode.ILLEGAL_GENERATION

    def _check_sync(self, request: SyncGroup) -> ErrorCode:
        error = self._check_member(request.member_id, request.group_instance_id) or self._check_generation(request.generation_id)
        if error:
            return error
        if request.protocol_type is not None and request.protocol_type != self.protocol_type:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.protocol_name is not None and request.protocol_name != self.protocol_name:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is PREPARING else ErrorCode.NONE

    def _check_leaver(self, identity: MemberIdentity) -> ErrorCode:
        if identity.member_id == UNKNOWN_MEMBER:  # an administrator removes a static member
            known = identity.group_instance_id is not None and self.roster.instance(identity.group_instance_id) is not None
            return ErrorCode.NONE if known else ErrorCode.UNKNOWN_MEMBER_ID
        if identity.member_id in self._pending:
            return ErrorCode.NONE
        return self._check_member(identity.member_id, identity.group_instance_id)

    # Members

    def _remove(self, member: Member, why: str) -> None:
        """Let a member go. A client that still waits is told UNKNOWN_MEMBER_ID, and joins again if it lives."""
        log.info("group %s: member %s is out: %s", self.group_id, member.member_id, why)
        self._answer_join(member, JoinAnswer(error=ErrorCode.UNKNOWN_MEMBER_ID))
        self._answer_sync(member, SyncAnswer(error=ErrorCode.UNKNOWN_MEMBER_ID), None)
        self.roster.remove(member)

    def _forget(self, member_id: str) -> None:
        self._pending.pop(member_id, None)
        member = self.roster.get(member_id)
        if member is not None:
            self.roster.remove(member)

    def _after_removal(self, removed: bool, why: str, now_ms: int) -> None:
        """Members or owners of pending ids are gone: whoever joins may not have to wait any more; `removed` members are to be replaced."""
        if self.state is PREPARING:
            self._try_complete_join(now_ms)
        elif removed:
            self._prepare_rebalance(why, now_ms)

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

    def _keep_alive(self, member: Member, now_ms: int) -> None:
        member.deadline_ms = now_ms + member.session_timeout_ms
        self._wake_by(member.deadline_ms)

    def _wake_by(self, at_ms: int) -> None:
        if self._wake_ms is None or at_ms < self._wake_ms:
            self._wake_ms = at_ms
            self.effects.append(WakeAt(at_ms))

    def _wake_at_next(self) -> None:
        deadlines = [m.deadline_ms for m in self.roster if m.is_watched]
        deadlines.extend(self._pending.values())
        if self._rebalance is not None:
            deadlines.append(self._rebalance.deadline_ms)
        if self._sync_deadline_ms is not None:
            deadlines.append(self._sync_deadline_ms)
        if deadlines:
            self._wake_by(min(deadlines))

    def _move_to(self, state: GroupState, now_ms: int | None) -> None:
        assert state in TRANSITIONS[self.state], f"group {self.group_id} cannot go from {self.state} to {state}"
        self.state = state
        self.state_ms = now_ms if now_ms is not None else self.state_ms

    def _find_subscribed_topics(self) -> frozenset[str] | None:
        if not self.is_consumer_group:
            return None
        return all_topics(m.metadata(self.protocol_name) for m in self.roster)

    def _record(self, assignments: dict[str, bytes]) -> GroupRecord:
        return GroupRecord(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol_name,
            leader=self.roster.leader,
            state_ms=self.state_ms,
            members=self.roster.records(self.protocol_name, assignments),
        )
