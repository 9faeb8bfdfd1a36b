"""What goes into the coordinator and what comes out: plain values, free of wire versions and of Deferreds."""

from __future__ import annotations

from dataclasses import dataclass

from txbroker.errors import ErrorCode

UNKNOWN_MEMBER = ""  # a member that has no id yet
NO_GENERATION = -1
NO_EPOCH = -1
NO_OFFSET = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """One assignment strategy a member can follow, with its subscription for it."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroup:
    """A JoinGroup request. `member_id_required`: the client speaks v4+ (KIP-394); `can_skip_assignment`: v9+ (KIP-814)."""

    group_id: str
    member_id: str = UNKNOWN_MEMBER
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[Protocol, ...]
    member_id_required: bool = True
    can_skip_assignment: bool = False
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedMember:
    """A member as the leader of its generation is told of it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAnswer:
    """The answer to a JoinGroup request; `members` is filled for the leader only."""

    error: ErrorCode = ErrorCode.NONE
    member_id: str = UNKNOWN_MEMBER
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroup:
    """A SyncGroup request; `assignments` (member id to bytes) counts when it comes from the leader."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: dict[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncAnswer:
    """The answer to a SyncGroup request."""

    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberIdentity:
    """One member of a LeaveGroup request: by member id, or by instance id with an empty member id (KIP-345)."""

    member_id: str = UNKNOWN_MEMBER
    group_instance_id: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberLeft:
    """What became of one member that was asked to leave."""

    member_id: str
    group_instance_id: str | None
    error: ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommit:
    """One offset that a client wants kept. `metadata` is None where the client sent null (stored as an empty string, as Kafka does)."""

    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str | None = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """One offset as it is kept. `expire_ms` is set only for commits that named a retention time (OffsetCommit v2-v4)."""

    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    commit_ms: int
    expire_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedOffset:
    """The answer to OffsetFetch for one partition; offset -1 and empty metadata when none is kept."""

    offset: int = NO_OFFSET
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGroup:
    """One row of ListGroups."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str = "classic"


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedMember:
    """One member in DescribeGroups; metadata and assignment are empty unless the group is stable."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedGroup:
    """One group in DescribeGroups."""

    group_id: str
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    state: str = ""
    protocol_type: str = ""
    protocol_name: str = ""
    members: tuple[DescribedMember, ...] = ()
