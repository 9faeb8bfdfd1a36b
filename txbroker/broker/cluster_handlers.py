"""The handlers of requests between brokers and to the controller. A broker alone does not serve them, nor import this module."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred

from txbroker.api.controller_requests import LeaderAndIsrHandler, StopReplicaHandler, UpdateMetadataHandler
from txbroker.api.controller_services import AllocateProducerIdsHandler, AlterPartitionHandler, ControlledShutdownHandler, OwnController
from txbroker.api.registry import Registry
from txbroker.cluster.node_data import ProducerIdBlock
from txbroker.cluster.own_broker import OwnBroker


def register_for_cluster(
    registry: Registry,
    own: OwnBroker,
    controller: OwnController,
    allocate_producer_ids: Callable[[int], Deferred[ProducerIdBlock]],
) -> None:
    """Add the handlers."""
    for handler in (
        LeaderAndIsrHandler(own),
        StopReplicaHandler(own),
        UpdateMetadataHandler(own),
        AlterPartitionHandler(controller),
        ControlledShutdownHandler(controller),
        AllocateProducerIdsHandler(controller, allocate_producer_ids),
    ):
        registry.register(handler)
