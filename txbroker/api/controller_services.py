"""AlterPartition (key 56), ControlledShutdown (key 7) and AllocateProducerIds (key 67): what brokers ask of the controller.

Behaviour: served in a cluster only. A broker that is not the controller answers NOT_CONTROLLER, for ControlledShutdown
STALE_CONTROLLER_EPOCH as Kafka does. Requests of a broker whose registration has another epoch are refused with STALE_BROKER_EPOCH.
Version notes: AlterPartition v2 topic ids (KIP-841), v3 broker epochs of the ISR (KIP-903). ControlledShutdown v0 has a header of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred

from txbroker.api.controller_requests import ELEMENTS_MAX
from txbroker.api.registry import between_brokers
from txbroker.api.request_context import RequestContext
from txbroker.api.resources import AclOperation, on_cluster
from txbroker.cluster.controller.controller import Controller
from txbroker.cluster.node_data import ProducerIdBlock
from txbroker.errors import BrokerError, ErrorCode
from txbroker.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from txbroker.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from txbroker.wire.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from txbroker.wire.schema import Request

# This broker's part of the controller election; raises NOT_CONTROLLER before it takes part.
OwnController = Callable[[], Controller]


class AlterPartitionHandler:
    """Passes ISR changes to the controller."""

    request: type[Request] = AlterPartitionRequest
    is_exempt = staticmethod(between_brokers)
    resources = on_cluster(AclOperation.CLUSTER_ACTION)
    in_cluster = True
    elements_max = ELEMENTS_MAX

    def __init__(self, controller: OwnController) -> None:
        self._controller = controller

    def __call__(self, request: AlterPartitionRequest, context: RequestContext) -> Deferred[AlterPartitionResponse]:
        return self._controller().alter_partition(request)

    def failed(self, request: AlterPartitionRequest, context: RequestContext, error: BrokerError) -> AlterPartitionResponse:
        """The error of the request; no change was made."""
        return AlterPartitionResponse(throttle_time_ms=0, error_code=error.code, topics=[])


class ControlledShutdownHandler:
    """Moves the leadership of a broker that is about to stop."""

    request: type[Request] = ControlledShutdownRequest
    is_exempt = staticmethod(between_brokers)
    resources = on_cluster(AclOperation.CLUSTER_ACTION)
    in_cluster = True

    def __init__(self, controller: OwnController) -> None:
        self._controller = controller

    def __call__(self, request: ControlledShutdownRequest, context: RequestContext) -> Deferred[ControlledShutdownResponse]:
        return self._controller().controlled_shutdown(request)

    def failed(self, request: ControlledShutdownRequest, context: RequestContext, error: BrokerError) -> ControlledShutdownResponse:
        """The error of the request."""
        moved = error.code == ErrorCode.NOT_CONTROLLER
        return ControlledShutdownResponse(
            error_code=ErrorCode.STALE_CONTROLLER_EPOCH if moved else error.code, remaining_partitions=[]
        )


class AllocateProducerIdsHandler:
    """Allocates blocks of producer ids; brokers of Apache Kafka ask the controller for theirs (KIP-730)."""

    request: type[Request] = AllocateProducerIdsRequest
    is_exempt = staticmethod(between_brokers)
    resources = on_cluster(AclOperation.CLUSTER_ACTION)
    in_cluster = True

    def __init__(self, controller: OwnController, allocate: Callable[[int], Deferred[ProducerIdBlock]]) -> None:
        """`allocate` takes the id of the broker that the block is for."""
        self._controller = controller
        self._allocate = allocate

    def __call__(self, request: AllocateProducerIdsRequest, context: RequestContext) -> Deferred[AllocateProducerIdsResponse]:
        epoch = self._controller().broker_epoch(request.broker_id)
        if epoch is None:
            raise BrokerError(ErrorCode.BROKER_ID_NOT_REGISTERED)
        if epoch != request.broker_epoch:
            raise BrokerError(ErrorCode.STALE_BROKER_EPOCH)
        return self._allocate(request.broker_id).addCallback(_block)

    def failed(self, request: AllocateProducerIdsRequest, context: RequestContext, error: BrokerError) -> AllocateProducerIdsResponse:
        """The error, without a block."""
        return AllocateProducerIdsResponse(throttle_time_ms=0, error_code=error.code, producer_id_start=0, producer_id_len=0)


def _block(block: ProducerIdBlock) -> AllocateProducerIdsResponse:
    return AllocateProducerIdsResponse(
        throttle_time_ms=0, error_code=ErrorCode.NONE, producer_id_start=block.start, producer_id_len=block.end - block.start + 1
    )
