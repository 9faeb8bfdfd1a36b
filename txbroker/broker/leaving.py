"""Controlled shutdown, the broker's part (`KafkaServer.controlledShutdown`): the controller moves its leadership to other brokers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from txbroker.clock import Clock
from txbroker.cluster.image import ClusterImage
from txbroker.cluster.tree.interface import SessionExpired
from txbroker.config.resolve import BrokerConfig
from txbroker.errors import BrokerError, ErrorCode, error_name
from txbroker.names import amount
from txbroker.wire.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse, RemainingPartition

log = logging.getLogger("txbroker.broker")

LOOK_S = 0.1  # how often the brokers that are alive are looked at during a pause

Ask = Callable[[ControlledShutdownRequest], Deferred[ControlledShutdownResponse]]


async def leave_cluster(
    broker_id: int, broker_epoch: int, ask: Ask, image: ClusterImage, config: BrokerConfig, clock: Clock
) -> None:
    """Ask until no partition is left that another broker could lead, at most `controlled.shutdown.max.retries` times. Logs the result.

    It does not ask again, as Kafka does, if no other replica of the partitions that are left is on a live broker: the last broker of a
    cluster that is stopped would wait for nothing. Before the first response, all partitions of this broker are left.
    """
    request = ControlledShutdownRequest(broker_id=broker_id, broker_epoch=broker_epoch)
    attempts, pause_s = config.int("controlled.shutdown.max.retries"), config.int("controlled.shutdown.retry.backoff.ms") / 1000
    left: list[RemainingPartition] = []  # in the last response

    def is_useless() -> bool:
        others = image.brokers.keys() - {broker_id}
        replicas = (_replicas(image, one) for one in left) if left else _own_replicas(image, broker_id)
        return not any(others & set(found) for found in replicas)

    for attempt in range(1, attempts + 1):
        try:
            left = await _remaining(request, ask)
        except BrokerError as error:
            log.warning("controlled shutdown, attempt %d of %d: %s", attempt, attempts, error)
        else:
            if not left:
                log.info("controlled shutdown: this broker leads no partition that another one can lead")
                return
            such_as = f"{amount(len(left), 'partition')}, such as {left[0].topic_name}-{left[0].partition_index}"
            log.warning("controlled shutdown, attempt %d of %d: no other replica in sync can lead %s", attempt, attempts, such_as)
        if attempt < attempts:
            await _pause(pause_s, is_useless, clock)
        if is_useless():
            log.info("controlled shutdown, not retrying: no other live replica of the partitions that this broker leads")
            return
    log.warning("controlled shutdown has failed: this broker stops while it leads partitions, which the controller notices then")


async def _remaining(request: ControlledShutdownRequest, ask: Ask) -> list[RemainingPartition]:
    """The partitions whose leadership has not been moved; BrokerError."""
    try:
        response = await ask(request)
    except (BrokerError, SessionExpired) as error:
        raise BrokerError(ErrorCode.NOT_CONTROLLER, f"the controller cannot be asked: {error}") from error
    if response.error_code != ErrorCode.NONE:
        raise BrokerError(ErrorCode.NOT_CONTROLLER, f"the controller refuses with {error_name(response.error_code)}")
    return response.remaining_partitions


async def _pause(pause_s: float, is_useless: Callable[[], bool], clock: Clock) -> None:
    """Until the next attempt, or until it would be useless: the last other brokers may stop meanwhile."""
    end_s = clock.seconds() + pause_s
    while not is_useless() and (left_s := end_s - clock.seconds()) > 0:
        await deferLater(clock, min(left_s, LOOK_S))  # type: ignore[arg-type]


def _own_replicas(image: ClusterImage, broker_id: int) -> Iterator[Sequence[int]]:
    """The replicas of each partition that this broker has one of."""
    for topic in image.topics.values():
        for partition in topic.partitions.values():
            if broker_id in partition.replicas:
                yield partition.replicas


def _replicas(image: ClusterImage, partition: RemainingPartition) -> tuple[int, ...]:
    known = image.partition(partition.topic_name, partition.partition_index)
    return () if known is None else known.replicas
