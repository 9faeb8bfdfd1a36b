"""Controlled shutdown, the broker's part (`KafkaServer.controlledShutdown`): the controller moves its leadership to other brokers."""

from __future__ import annotations

import logging
from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from txbroker.clock import Clock
from txbroker.cluster.tree.interface import SessionExpired
from txbroker.config.resolve import BrokerConfig
from txbroker.errors import BrokerError, ErrorCode, error_name
from txbroker.names import amount
from txbroker.wire.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse

log = logging.getLogger("txbroker.broker")

Ask = Callable[[ControlledShutdownRequest], Deferred[ControlledShutdownResponse]]


async def leave_cluster(broker_id: int, broker_epoch: int, ask: Ask, config: BrokerConfig, clock: Clock) -> None:
    """Ask until no partition is left that another broker could lead, at most `controlled.shutdown.max.retries` times. Logs the result."""
    request = ControlledShutdownRequest(broker_id=broker_id, broker_epoch=broker_epoch)
    attempts = config.int("controlled.shutdown.max.retries")
    for attempt in range(attempts):
        if attempt:
            await deferLater(clock, config.int("controlled.shutdown.retry.backoff.ms") / 1000)  # type: ignore[arg-type]
        problem = await _problem(request, ask)
        if problem is None:
            log.info("controlled shutdown: this broker leads no partition that another one can lead")
            return
        log.warning("controlled shutdown, attempt %d of %d: %s", attempt + 1, attempts, problem)
    log.warning("controlled shutdown has failed: this broker stops while it leads partitions, which the controller notices then")


async def _problem(request: ControlledShutdownRequest, ask: Ask) -> str | None:
    """Why leadership has not been moved; None if it has."""
    try:
        response = await ask(request)
    except (BrokerError, SessionExpired) as error:
        return f"the controller cannot be asked: {error}"
    if response.error_code != ErrorCode.NONE:
        return f"the controller refuses with {error_name(response.error_code)}"
    left = response.remaining_partitions
    if left:
        return f"no other replica in sync can lead {amount(len(left), 'partition')}, such as {left[0].topic_name}-{left[0].partition_index}"
    return None
