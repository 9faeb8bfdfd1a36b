"""Whether a broker creates topics by itself when a client requests one that does not exist."""

from __future__ import annotations

from txbroker.client.blocking_connection import BlockingConnection
from txbroker.client.client_errors import ClientError
from txbroker.client.config_requests import BROKER_RESOURCE, describe_configs
from txbroker.wire.messages.metadata import MetadataRequest, MetadataResponse

KEY = "auto.create.topics.enable"


def creates_topics(connection: BlockingConnection) -> bool | None:
    """The broker's auto.create.topics.enable; None when the broker does not show it (it may need the right to describe configurations)."""
    try:
        response: MetadataResponse = connection.call(MetadataRequest(topics=[], allow_auto_topic_creation=False))
    except ClientError:
        return None
    for broker in response.brokers:
        try:
            value = describe_configs(connection.call, BROKER_RESOURCE, str(broker.node_id), [KEY]).get(KEY)
        except ClientError:
            continue  # a broker describes only itself
        if value is not None:
            return value == "true"
    return None
