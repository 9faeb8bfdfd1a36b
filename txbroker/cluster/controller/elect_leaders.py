"""ElectLeaders: preferred and unclean leader elections on request (KIP-183, KIP-460)."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from txbroker.cluster.controller.controller_context import ControllerContext
from txbroker.cluster.controller.election_rules import begin_epoch, elect_offline, elect_preferred
from txbroker.cluster.controller.leadership import Leadership
from txbroker.cluster.controller.outgoing_requests import OutgoingRequests
from txbroker.cluster.node_data import NO_LEADER, PartitionState
from txbroker.errors import ErrorCode
from txbroker.names import TopicPartition


class ElectionType(IntEnum):
    """Kafka's ElectionType."""

    PREFERRED = 0
    UNCLEAN = 1


class Election(NamedTuple):
    """The result for one partition: NONE and the new leader, or an error."""

    error: ErrorCode
    leader: int = NO_LEADER


async def elect_leaders(
    kind: ElectionType,
    partitions: Iterable[TopicPartition],
    context: ControllerContext,
    leadership: Leadership,
    outbox: OutgoingRequests,
) -> dict[TopicPartition, Election]:
    """Elect leaders of partitions, and return the result for each."""

    def rule(topic_partition: TopicPartition, state: PartitionState) -> PartitionState | None:
        replicas, online = context.assignment(topic_partition).replicas, context.online(topic_partition)
        if kind is ElectionType.PREFERRED:
            return elect_preferred(state, replicas, set(online) - context.suspected)
        return elect_offline(state, replicas, online, unclean=True)

    asked = list(partitions)
    outcomes = {tp: _not_needed(kind, tp, context) for tp in asked}
    changed = await leadership.change([tp for tp, error in outcomes.items() if error is None], rule)
    _send_roles(changed, context, outbox)
    preferred = kind is ElectionType.PREFERRED
    failed = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE if preferred else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    elected = {tp: Election(ErrorCode.NONE, context.states[tp].leader) for tp in changed}
    return {tp: elected.get(tp) or Election(failed if error is None else error) for tp, error in outcomes.items()}


async def begin_epochs(
    partitions: Iterable[TopicPartition], context: ControllerContext, leadership: Leadership, outbox: OutgoingRequests
) -> None:
    """Begin a new leader epoch of these partitions, with the leaders that they have."""
    led = [tp for tp in partitions if tp in context.states and context.states[tp].leader != NO_LEADER]
    _send_roles(await leadership.change(led, lambda _, state: begin_epoch(state)), context, outbox)


def _send_roles(partitions: Iterable[TopicPartition], context: ControllerContext, outbox: OutgoingRequests) -> None:
    batch = outbox.batch()
    for topic_partition in partitions:
        batch.roles(context.assignment(topic_partition).replicas, topic_partition)
    outbox.send(batch)


def _not_needed(kind: ElectionType, topic_partition: TopicPartition, context: ControllerContext) -> ErrorCode | None:
    """The error code of a partition that needs no election; None when it needs one."""
    state = context.states.get(topic_partition)
    if state is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic_partition.topic in context.deleting:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if kind is ElectionType.PREFERRED:
        needed = state.leader != context.assignment(topic_partition).replicas[0]
    else:
        needed = not context.is_online(state.leader, topic_partition)
    return None if needed else ErrorCode.ELECTION_NOT_NEEDED
