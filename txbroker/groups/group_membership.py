"""The members and the generation of a classic consumer group: what requests they permit, and what is written about them.

Nothing here changes with time or sends anything: `group.py` does, on top of this.
"""

from __future__ import annotations

from collections.abc import Callable

from txbroker.errors import ErrorCode
from txbroker.groups.group_config import GroupConfig
from txbroker.groups.group_effects import GroupRecord
from txbroker.groups.group_results import UNKNOWN_MEMBER, JoinAnswer, JoinedMember, JoinGroup, MemberIdentity, SyncAnswer, SyncGroup
from txbroker.groups.group_states import TRANSITIONS, GroupState
from txbroker.groups.roster import Member, Roster
from txbroker.groups.subscription import CONSUMER_PROTOCOL, all_topics


class GroupMembership:
    """State, generation, protocol and members of one group.

    `now_ms` is the wall clock; `state_ms` is the date of the last change of state, None if an old record has none. `pending` holds the
    member ids that KIP-394 has given out and that have not joined yet, with their deadlines (monotonic, ms).
    """

    def __init__(self, group_id: str, config: GroupConfig, now_ms: Callable[[], int]) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.state_ms: int | None = now_ms()
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.subscribed_topics: frozenset[str] | None = None
        self.roster = Roster()
        self.pending: dict[str, int] = {}
        self.config = config
        self._now_ms = now_ms

    @property
    def is_consumer_group(self) -> bool:
        """Whether its members use the consumer protocol, so that their subscriptions can be read."""
        return self.protocol_type == CONSUMER_PROTOCOL

    @property
    def is_unused(self) -> bool:
        """Whether it has neither members nor pending member ids."""
        return not self.roster and not self.pending

    def move_to(self, state: GroupState) -> None:
        """Change the state, and its date."""
        assert state in TRANSITIONS[self.state], f"group {self.group_id} cannot go from {self.state} to {state}"
        self.state = state
        self.state_ms = self._now_ms()

    # Checks of requests

    def has_room(self, member_id: str) -> bool:
        """KIP-389. During a rebalance only members that have joined it count, so that an oversized group drops the last to join."""
        if self.state is GroupState.EMPTY:
            return True
        member = self.roster.get(member_id)
        if self.state is GroupState.PREPARING_REBALANCE:
            return (member is not None and member.awaiting_join is not None) or self.roster.joined_count < self.config.size_max
        return member is not None or len(self.roster) < self.config.size_max

    def supports(self, request: JoinGroup) -> bool:
        """Whether the request has the group's protocol type and a protocol that every member supports."""
        if not self.roster:
            return bool(request.protocol_type and request.protocols)
        return request.protocol_type == self.protocol_type and self.roster.supports(request.protocols)

    def check_member(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """The member must be in the group; a static instance must still have this member id."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if group_instance_id is not None:
            current = self.roster.instance(group_instance_id)
            if current is not None and current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member_id in self.roster else ErrorCode.UNKNOWN_MEMBER_ID

    def check_generation(self, member_id: str, group_instance_id: str | None, generation_id: int) -> ErrorCode:
        """The member, and that it names the current generation."""
        error = self.check_member(member_id, group_instance_id)
        if error:
            return error
        return ErrorCode.NONE if generation_id == self.generation else ErrorCode.ILLEGAL_GENERATION

    def check_transactional_commit(self, member_id: str, group_instance_id: str | None, generation_id: int) -> ErrorCode:
        """A TxnOffsetCommit of this member (KIP-447), which is no heartbeat. Producers older than that KIP name no member."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation_id < 0 and (self.state is GroupState.EMPTY or (member_id == UNKNOWN_MEMBER and group_instance_id is None)):
            return ErrorCode.NONE
        return self.check_generation(member_id, group_instance_id, generation_id)

    def check_sync(self, request: SyncGroup) -> ErrorCode:
        """A SyncGroup request: member, generation and, if it names them (KIP-559), protocol type and name."""
        error = self.check_generation(request.member_id, request.group_instance_id, request.generation_id)
        if error:
            return error
        if request.protocol_type is not None and request.protocol_type != self.protocol_type:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.protocol_name is not None and request.protocol_name != self.protocol_name:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is GroupState.PREPARING_REBALANCE else ErrorCode.NONE

    def check_leaver(self, identity: MemberIdentity) -> ErrorCode:
        """A member to be removed; an administrator names a static member by its instance id alone."""
        if identity.member_id == UNKNOWN_MEMBER:
            known = identity.group_instance_id is not None and self.roster.instance(identity.group_instance_id) is not None
            return ErrorCode.NONE if known else ErrorCode.UNKNOWN_MEMBER_ID
        if identity.member_id in self.pending:
            return ErrorCode.NONE
        return self.check_member(identity.member_id, identity.group_instance_id)

    # Answers and records

    def join_answer(
        self,
        member: Member,
        *,
        error: ErrorCode = ErrorCode.NONE,
        member_id: str | None = None,
        leader: str | None = None,
        members: tuple[JoinedMember, ...] | None = None,
        skip_assignment: bool = False,
    ) -> JoinAnswer:
        """The current generation for one member; the leader's answer lists all members."""
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

    def sync_answer(self, member: Member) -> SyncAnswer:
        """A member's assignment."""
        return SyncAnswer(protocol_type=self.protocol_type, protocol_name=self.protocol_name, assignment=member.assignment)

    def record(self, assignments: dict[str, bytes]) -> GroupRecord:
        """The group as it is stored, with these assignments by member id."""
        return GroupRecord(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol_name,
            leader=self.roster.leader,
            state_ms=self.state_ms,
            members=self.roster.records(self.protocol_name, assignments),
        )

    def read_subscriptions(self) -> None:
        """Set `subscribed_topics`: the topics of all members, None if the subscriptions cannot be read."""
        metadata = (member.metadata(self.protocol_name) for member in self.roster)
        self.subscribed_topics = all_topics(metadata) if self.is_consumer_group else None
