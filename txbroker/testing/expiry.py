"""Ends members of groups and transactions by name, as by their timeouts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from txbroker.broker.components import Components
from txbroker.groups.group import Group
from txbroker.names import amount
from txbroker.testing.due_work import PATIENCE_S, until_settled
from txbroker.testing.errors import KitError
from txbroker.transactions.transaction_states import TransactionState

NAMES_MAX = 10  # in an error


def members(components: Components, group_name: str, member: str) -> list[str]:
    """End the sessions of a group's members, or of one: by its member id, group.instance.id or client id. Their member ids; KitError.

    Without a group the member is looked for in all of them; without a member all members of the group are evicted.
    """
    groups = [hosted.group for hosted in components.coordinators.groups.groups()]
    if group_name:
        known = _shown(group.group_id for group in groups)
        groups = [group for group in groups if group.group_id == group_name]
        if not groups:
            raise KitError(f"there is no group {group_name}; the groups are {known}")
    found = {group.group_id: _matching(group, member) for group in groups}
    if not any(found.values()):
        if not member:
            raise KitError(f"group {group_name} has no members")
        known = _shown(one.member_id for group in groups for one in group.roster)
        where = f"group {group_name} has no member {member}; its" if group_name else f"no group has a member {member}; the"
        raise KitError(f"{where} members are {known}")
    for group_id, member_ids in found.items():
        if member_ids:
            components.coordinators.groups.evict(group_id, member_ids)
    return [member_id for member_ids in found.values() for member_id in member_ids]


def _matching(group: Group, member: str) -> list[str]:
    return [each.member_id for each in group.roster if member in ("", each.member_id, each.group_instance_id, each.client_id)]


async def transaction(reactor: Any, components: Components, transactional_id: str) -> None:
    """Abort the open transaction of an id. Returns when it has ended; KitError."""
    coordinator = components.coordinators.transactions
    waiting = await until_settled(reactor, components)
    hosted = {each.transaction.transactional_id: each for each in coordinator}
    found = hosted.get(transactional_id)
    if found is None:
        raise KitError(f"there is no transactional id {transactional_id}; the ids are {_shown(hosted)}")
    state = found.transaction.record.state
    if transactional_id not in waiting and state is not TransactionState.ONGOING:
        raise KitError(f"transactional id {transactional_id} has no open transaction: its state is {state.title}")
    coordinator.abort(found)
    waiting = await until_settled(reactor, components)
    if transactional_id in waiting:
        raise KitError(f"the transaction of {transactional_id} has not ended after {PATIENCE_S:g} s: has one of its partitions no leader?")


def _shown(names: Iterable[str]) -> str:
    """Some names, for an error."""
    known = sorted(names)
    rest = f" and {amount(len(known) - NAMES_MAX, 'other')}" if len(known) > NAMES_MAX else ""
    return ", ".join(known[:NAMES_MAX]) + rest if known else "none"
