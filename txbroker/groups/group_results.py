"""Requests to the coordinator and its results, as plain values without wire versions or Deferreds."""

from __future__ import annotations

from txbroker.errors import ErrorCode
from txbroker.lazy_dataclass import lazy_dataclass

UNKNOWN_MEMBER = ""  # a member without an id
NO_GENERATION = -1
NO_EPOCH = -1
NO_OFFSET = -1


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """One assignment strategy that a member supports, with its subscription for it."""

    name: str
    metadata: bytes


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroup:
    """A JoinGroup request. `member_id_required`: the request is v4+ (KIP-394); `can_skip_assignment`: v9+ (KIP-814)."""

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


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class JoinedMember:
    """A member, as it is listed in the leader's JoinGroup response."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class JoinAnswer:
    """The answer to a JoinGroup request; only the leader receives `members`."""

    error: ErrorCode = ErrorCode.NONE
    member_id: str = UNKNOWN_MEMBER
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroup:
    """A SyncGroup request; `assignments` (member id to bytes) is used only from the leader."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: dict[str, bytes]


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class SyncAnswer:
    """The answer to a SyncGroup request."""

    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class MemberIdentity:
    """One member of a LeaveGroup request: by member id, or by instance id with an empty member id (KIP-345)."""

    member_id: str = UNKNOWN_MEMBER
    group_instance_id: str | None = None
    reason: str | None = None


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class MemberLeft:
    """The result for one member of a LeaveGroup request."""

    member_id: str
    group_instance_id: str | None
    error: ErrorCode


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommit:
    """One offset to commit. `metadata` is None if the client sent null, which is stored as an empty string as in Kafka."""

    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str | None = ""


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """One committed offset. `expire_ms` is set only by commits with a retention time (OffsetCommit v2-v4). Dates in ms since 1970."""

    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    commit_ms: int
    expire_ms: int | None = None


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class FetchedOffset:
    """The answer to OffsetFetch for one partition; offset -1 and empty metadata if no offset is committed."""

    offset: int = NO_OFFSET
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    error: ErrorCode = ErrorCode.NONE


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class ListedGroup:
    """One group in ListGroups."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str = "classic"


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class DescribedMember:
    """One member in DescribeGroups; metadata and assignment are empty unless the group is stable."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class DescribedGroup:
    """One group in DescribeGroups."""

    group_id: str
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    state: str = ""
    protocol_type: str = ""
    protocol_name: str = ""
    members: tuple[DescribedMember, ...] = ()
