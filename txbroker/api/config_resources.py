"""The resources of configuration requests: topics and brokers.

The broker "" is the default of all brokers. A request for another broker than this one is refused, because each broker knows only its own
configuration.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from txbroker.api.resources import CLUSTER_NAME, AclOperation, AclResource, Need, declared
from txbroker.cluster.image import ClusterImage
from txbroker.cluster.node_paths import ALL_BROKERS, Entity, broker_entity, topic_entity
from txbroker.errors import BrokerError, ErrorCode
from txbroker.names import check_topic_name


class ResourceType(IntEnum):
    """Kafka's ConfigResource types that are served."""

    TOPIC = 2
    BROKER = 4


# BROKER, BROKER_LOGGER and CLIENT_METRICS: their configurations are the cluster's.
_OF_THE_CLUSTER = (4, 8, 16)


def config_needs(operation: AclOperation, answers: str) -> Any:
    """`resources` of the handlers: each resource of a request needs `operation` on its topic, or on the cluster."""

    def needs(request: Any, context: object) -> Sequence[Need]:
        asked = request.resources
        topics = [each.resource_name if each.resource_type == ResourceType.TOPIC else None for each in asked]
        cluster = [CLUSTER_NAME if each.resource_type in _OF_THE_CLUSTER else None for each in asked]
        return (
            Need(operation, AclResource.TOPIC, topics, "resources", answers),
            Need(operation, AclResource.CLUSTER, cluster, "resources", answers),
        )

    return declared(needs, (operation, AclResource.TOPIC), (operation, AclResource.CLUSTER), are_all_needed=True)


class ConfigResources:
    """Maps the type and name of a resource to its entity in the metadata tree, for all three handlers."""

    def __init__(self, broker_id: int, image: ClusterImage) -> None:
        self._broker_id = broker_id
        self._image = image

    def entity(self, resource_type: int, name: str) -> Entity:
        """The entity. INVALID_REQUEST, INVALID_TOPIC_EXCEPTION or UNKNOWN_TOPIC_OR_PARTITION."""
        if resource_type == ResourceType.TOPIC:
            check_topic_name(name)
            if self._image.topic(name) is None:
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return topic_entity(name)
        if resource_type != ResourceType.BROKER:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"Resource type {resource_type} is not supported; use TOPIC (2) or BROKER (4).")
        if not name:
            return ALL_BROKERS
        if name != str(self._broker_id):
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"This is broker {self._broker_id}; send the request to broker {name!r}.")
        return broker_entity(self._broker_id)
