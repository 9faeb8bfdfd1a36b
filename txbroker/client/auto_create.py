"""Whether a broker creates topics by itself when a client asks for one that does not exist."""

from __future__ import annotations

from txbroker.client.blocking_connection import BlockingConnection
from txbroker.client.client_errors import ConnectionFailed
from txbroker.errors import ErrorCode
from txbroker.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from txbroker.wire.messages.metadata import MetadataRequest, MetadataResponse

KEY = "auto.create.topics.enable"
_BROKER = 4  # ConfigResource.Type


def creates_topics(connection: BlockingConnection) -> bool | None:
    """The broker's auto.create.topics.enable; None when the broker does not show it (it may need the right to describe configurations)."""
    try:
        answer: MetadataResponse = connection.call(MetadataRequest(topics=[], allow_auto_topic_creation=False))
        for broker in answer.brokers:
            resource = DescribeConfigsResource(resource_type=_BROKER, resource_name=str(broker.node_id), configuration_keys=[KEY])
            (result,) = connection.call(DescribeConfigsRequest(resources=[resource])).results
            if result.error_code == ErrorCode.NONE:
                for entry in result.configs:
                    if entry.name == KEY:
                        return bool(entry.value == "true")
    except ConnectionFailed:
        pass
    return None
