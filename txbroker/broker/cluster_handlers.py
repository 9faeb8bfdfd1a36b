"""The handlers of requests between brokers and to the controller. A broker alone does not serve them, nor import this module."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from twisted.internet.defer import Deferred

from txbroker.api.controller_requests import LeaderAndIsrHandler, StopReplicaHandler, UpdateMetadataHandler
from txbroker.api.controller_services import AllocateProducerIdsHandler, AlterPartitionHandler, ControlledShutdownHandler, OwnController
from txbroker.api.registry import Registry
from txbroker.cluster.node_data import ProducerIdBlock
from txbroker.cluster.own_broker import OwnBroker

# What the first follower and the first link to another broker need. An import fails while no file descriptor is free, and a partition whose
# change of its role has failed copies nothing until the next leader epoch. So they are imported at the start.
_NEEDED_LATER = ("txbroker.client.twisted_connection", "txbroker.cluster.fetcher_loop", "txbroker.cluster.replica_fetcher")


def register_for_cluster(
    registry: Registry,
    own: OwnBroker,
    controller: OwnController,
    allocate_producer_ids: Callable[[int], Deferred[ProducerIdBlock]],
) -> None:
    """Add the handlers, and import what they need later."""
    for module in _NEEDED_LATER:
        import_module(module)
    for handler in (
        LeaderAndIsrHandler(own),
        StopReplicaHandler(own),
        UpdateMetadataHandler(own),
        AlterPartitionHandler(controller),
        ControlledShutdownHandler(controller),
        AllocateProducerIdsHandler(controller, allocate_producer_ids),
    ):
        registry.register(handler)
