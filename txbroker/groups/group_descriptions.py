"""The results of ListGroups and DescribeGroups."""

from __future__ import annotations

from collections.abc import Collection

from txbroker.errors import ErrorCode
from txbroker.groups.group import Group
from txbroker.groups.group_results import DescribedGroup, DescribedMember, ListedGroup
from txbroker.groups.group_states import GroupState
from txbroker.groups.roster import Member

CLASSIC_TYPE = "classic"


def listed(group: Group) -> ListedGroup:
    """A group in ListGroups."""
    return ListedGroup(
        group_id=group.group_id, protocol_type=group.protocol_type or "", state=group.state.value, group_type=CLASSIC_TYPE
    )


def passes(row: ListedGroup, states: Collection[str], types: Collection[str]) -> bool:
    """Whether a row matches the filters (KIP-518, KIP-848), ignoring case; an empty filter matches all."""
    return (not states or row.state.lower() in {s.lower() for s in states}) and (
        not types or row.group_type in {t.lower() for t in types}
    )


def described(group: Group) -> DescribedGroup:
    """A group with its members; subscriptions and assignments only if it is stable."""
    stable = group.state is GroupState.STABLE
    return DescribedGroup(
        group_id=group.group_id,
        state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_name=(group.protocol_name or "") if stable else "",
        members=tuple(_described_member(m, group.protocol_name, stable) for m in group.roster),
    )


def unknown(group_id: str) -> DescribedGroup:
    """A group that does not exist."""
    return DescribedGroup(
        group_id=group_id,
        error=ErrorCode.GROUP_ID_NOT_FOUND,
        error_message=f"Group {group_id} not found.",
        state=GroupState.DEAD.value,
    )


def _described_member(member: Member, protocol_name: str | None, stable: bool) -> DescribedMember:
    return DescribedMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        metadata=member.metadata(protocol_name) if stable else b"",
        assignment=member.assignment if stable else b"",
    )
