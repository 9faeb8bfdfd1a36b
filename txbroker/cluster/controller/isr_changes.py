"""AlterPartition: a leader changes its ISR (KIP-497), or reports its recovery from an unclean election (KIP-704)."""

from __future__ import annotations

from dataclasses import replace

from txbroker.cluster.controller.controller_context import ControllerContext
from txbroker.cluster.controller.leadership import Leadership
from txbroker.cluster.controller.outgoing_requests import OutgoingRequests
from txbroker.cluster.node_data import PartitionState
from txbroker.errors import BrokerError, ErrorCode
from txbroker.names import NULL_TOPIC_ID, TopicPartition
from txbroker.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionData,
    PartitionDataResult,
    TopicData,
    TopicDataResult,
)

_NO_STATE = PartitionState(leader=0, leader_epoch=0, isr=(), controller_epoch=0)  # in responses with an error


async def alter_partition(
    request: AlterPartitionRequest, context: ControllerContext, leadership: Leadership, outbox: OutgoingRequests
) -> AlterPartitionResponse:
    """Validate each partition, write all valid changes together, notify all brokers, and respond with the current states."""
    broker = context.brokers.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        return AlterPartitionResponse(throttle_time_ms=0, error_code=ErrorCode.STALE_BROKER_EPOCH, topics=[])
    errors: dict[tuple[str, bytes, int], ErrorCode] = {}
    found: dict[tuple[str, bytes, int], TopicPartition] = {}
    wanted: dict[TopicPartition, PartitionState] = {}
    for topic in request.topics:
        for partition in topic.partitions:
            key = (topic.topic_name, topic.topic_id, partition.partition_index)
            try:
                found[key] = _find(context, topic, partition.partition_index)
                asked = _asked(context, request.broker_id, found[key], partition)
            except BrokerError as error:
                errors[key] = error.code
                continue
            if asked is not None:
                wanted[found[key]] = asked
    lost = await _write(wanted, context, leadership, outbox)
    topics = []
    for topic in request.topics:
        results = []
        for partition in topic.partitions:
            key = (topic.topic_name, topic.topic_id, partition.partition_index)
            error_code = errors.get(key, ErrorCode.INVALID_UPDATE_VERSION if found.get(key) in lost else ErrorCode.NONE)
            state = context.states[found[key]] if error_code == ErrorCode.NONE else _NO_STATE
            results.append(_answer(partition.partition_index, error_code, state))
        topics.append(TopicDataResult(topic_name=topic.topic_name, topic_id=topic.topic_id, partitions=results))
    return AlterPartitionResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, topics=topics)


async def _write(
    wanted: dict[TopicPartition, PartitionState], context: ControllerContext, leadership: Leadership, outbox: OutgoingRequests
) -> set[TopicPartition]:
    """Write the states whose partition epoch is still the requested one. Returns the other partitions."""

    def rule(topic_partition: TopicPartition, state: PartitionState) -> PartitionState | None:
        asked = wanted[topic_partition]
        return asked if asked.partition_epoch == state.partition_epoch else None

    written = await leadership.change(wanted, rule)
    batch = outbox.batch()
    batch.metadata(context.brokers, written)
    if written:
        outbox.send(batch)
    return wanted.keys() - set(written)


def _find(context: ControllerContext, topic: TopicData, partition: int) -> TopicPartition:
    if topic.topic_id == NULL_TOPIC_ID:
        name, unknown = topic.topic_name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    else:
        name, unknown = context.topic_name(topic.topic_id) or "", ErrorCode.UNKNOWN_TOPIC_ID
    if name not in context.topics or name in context.deleting:
        raise BrokerError(unknown)
    topic_partition = TopicPartition(name, partition)
    if topic_partition not in context.states:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return topic_partition


def _asked(context: ControllerContext, broker_id: int, topic_partition: TopicPartition, asked: PartitionData) -> PartitionState | None:
    """The state to be written; None when it is already current. BrokerError when it is not allowed."""
    state = context.states[topic_partition]
    isr = tuple(item.broker_id for item in asked.new_isr_with_epochs) or tuple(asked.new_isr)
    recovering = asked.leader_recovery_state == 1
    if asked.leader_epoch != state.leader_epoch:
        raise BrokerError(ErrorCode.FENCED_LEADER_EPOCH)
    if (isr, recovering) == (state.isr, state.recovering):
        return None  # a retry after a lost response: accepted even with an old partition epoch
    if asked.partition_epoch != state.partition_epoch:
        raise BrokerError(ErrorCode.INVALID_UPDATE_VERSION)
    if broker_id != state.leader or broker_id not in isr or len(set(isr)) != len(isr):
        raise BrokerError(ErrorCode.INVALID_REQUEST)
    if not set(isr) <= {*context.assignment(topic_partition).replicas, *state.isr}:
        raise BrokerError(ErrorCode.INVALID_REQUEST)
    if recovering and (len(isr) > 1 or not state.recovering):
        raise BrokerError(ErrorCode.INVALID_REQUEST)
    epochs = {item.broker_id: item.broker_epoch for item in asked.new_isr_with_epochs}
    for replica in set(isr) - set(state.isr):
        if not context.is_online(replica, topic_partition) or epochs.get(replica, -1) not in (-1, context.brokers[replica].epoch):
            raise BrokerError(ErrorCode.INELIGIBLE_REPLICA)
    return replace(state, isr=isr, recovering=recovering)


def _answer(partition: int, error: ErrorCode, state: PartitionState) -> PartitionDataResult:
    return PartitionDataResult(
        partition_index=partition,
        error_code=error,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        leader_recovery_state=int(state.recovering),
        partition_epoch=state.partition_epoch,
    )
