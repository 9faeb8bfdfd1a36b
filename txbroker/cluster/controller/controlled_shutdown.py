"""ControlledShutdown: moves leadership away from a broker before it stops."""

from __future__ import annotations

from txbroker.cluster.controller.controller_context import ControllerContext
from txbroker.cluster.controller.election_rules import elect_for_shutdown, without_replicas
from txbroker.cluster.controller.leadership import Leadership
from txbroker.cluster.controller.outgoing_requests import OutgoingRequests
from txbroker.cluster.node_data import PartitionState
from txbroker.errors import ErrorCode
from txbroker.names import TopicPartition
from txbroker.wire.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse, RemainingPartition


async def controlled_shutdown(
    request: ControlledShutdownRequest, context: ControllerContext, leadership: Leadership, outbox: OutgoingRequests
) -> ControlledShutdownResponse:
    """Elect other leaders and remove the broker from ISRs. Partitions without another replica do not change and are not in the response."""
    broker = context.brokers.get(request.broker_id)
    if broker is None:
        return ControlledShutdownResponse(error_code=ErrorCode.BROKER_NOT_AVAILABLE, remaining_partitions=[])
    if request.broker_epoch not in (-1, broker.epoch):
        return ControlledShutdownResponse(error_code=ErrorCode.STALE_BROKER_EPOCH, remaining_partitions=[])
    stopping = request.broker_id
    context.shutting_down.add(stopping)
    replicated = [
        tp
        for tp in context.partitions_on([stopping])
        if tp in context.states and tp.topic not in context.deleting and len(context.assignment(tp).replicas) > 1
    ]
    led = [tp for tp in replicated if context.states[tp].leader == stopping]
    followed = [tp for tp in replicated if context.states[tp].leader != stopping]
    await _hand_over(led, context, leadership, outbox)
    await _stop_following(followed, stopping, context, leadership, outbox)
    remaining = [tp for tp in led if context.states[tp].leader == stopping]
    return ControlledShutdownResponse(
        error_code=ErrorCode.NONE,
        remaining_partitions=[RemainingPartition(topic_name=tp.topic, partition_index=tp.partition) for tp in remaining],
    )


async def _hand_over(led: list[TopicPartition], context: ControllerContext, leadership: Leadership, outbox: OutgoingRequests) -> None:
    def rule(topic_partition: TopicPartition, state: PartitionState) -> PartitionState | None:
        replicas = context.by_preference(context.assignment(topic_partition).replicas)
        online = context.online(topic_partition, shutting_down_too=True)
        return elect_for_shutdown(state, replicas, online, context.shutting_down)

    batch = outbox.batch()
    for topic_partition in await leadership.change(led, rule):
        batch.roles(context.assignment(topic_partition).replicas, topic_partition)
    outbox.send(batch)


async def _stop_following(
    followed: list[TopicPartition], stopping: int, context: ControllerContext, leadership: Leadership, outbox: OutgoingRequests
) -> None:
    stop = outbox.batch()  # with the previous leader epochs, the latest that the replica has
    for topic_partition in followed:
        stop.stop(stopping, topic_partition, delete=False)
    outbox.send(stop)
    roles = outbox.batch()
    for topic_partition in await leadership.change(followed, lambda _, state: without_replicas(state, {stopping})):
        roles.roles([r for r in context.assignment(topic_partition).replicas if r != stopping], topic_partition)
    roles.metadata(context.brokers, context.partitions_on([stopping]))  # its replicas are offline from now on
    outbox.send(roles)
