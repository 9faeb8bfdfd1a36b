"""The effects of a group: it decides them, and the coordinator performs them in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from txbroker.groups.group_results import JoinAnswer, Protocol, SyncAnswer
from txbroker.lazy_dataclass import lazy_dataclass

JoinWaiter: TypeAlias = Callable[[JoinAnswer], object]
SyncWaiter: TypeAlias = Callable[[SyncAnswer], object]


@lazy_dataclass(frozen=True, slots=True)
class AnswerJoin:
    """Answer a JoinGroup request by calling `waiter` with `answer`."""

    waiter: JoinWaiter
    answer: JoinAnswer


@lazy_dataclass(frozen=True, slots=True)
class AnswerSync:
    """Answer a SyncGroup request by calling `waiter` with `answer`."""

    waiter: SyncWaiter
    answer: SyncAnswer


@lazy_dataclass(frozen=True, slots=True)
class WakeAt:
    """Call `Group.tick` at this time (monotonic, ms); it replaces the one set before."""

    at_ms: int


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class MemberRecord:
    """A member in a group's record, with its subscription for the chosen protocol and its assignment."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecord:
    """A generation as it is stored in `__consumer_offsets`; `state_ms` is None if an old record has no date."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_ms: int | None
    members: tuple[MemberRecord, ...]


@lazy_dataclass(frozen=True, slots=True)
class EmptyWritten:
    """The record stores that the group is empty in this generation."""

    generation: int


@lazy_dataclass(frozen=True, slots=True)
class AssignmentWritten:
    """The record stores the leader's assignment for this generation."""

    generation: int
    assignments: dict[str, bytes]


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class StaticMemberWritten:
    """The record stores the new member id of a static member that rejoined a stable group; `old_...` restore it if the write fails."""

    generation: int
    member_id: str
    waiter: JoinWaiter
    can_skip_assignment: bool
    old_member_id: str
    old_leader: str
    old_protocols: tuple[Protocol, ...]
    old_rebalance_timeout_ms: int
    old_session_timeout_ms: int


Written: TypeAlias = EmptyWritten | AssignmentWritten | StaticMemberWritten


@lazy_dataclass(frozen=True, slots=True)
class Persist:
    """Append `record` to the group's partition, then call `Group.written` with `then` and the error."""

    record: GroupRecord
    then: Written


Effect: TypeAlias = AnswerJoin | AnswerSync | WakeAt | Persist
