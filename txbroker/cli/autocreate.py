"""Whether a broker makes topics by itself, when somebody writes to one that is not there."""

from __future__ import annotations

from txbroker.cli.link import Link, LinkFailed
from txbroker.errors import ErrorCode
from txbroker.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from txbroker.wire.messages.metadata import MetadataRequest, MetadataResponse

KEY = "auto.create.topics.enable"
_BROKER = 4  # ConfigResource.Type


def makes_topics(link: Link) -> bool | None:
    """What auto.create.topics.enable says at the broker; None when it does not tell (it may need a right that we lack)."""
    try:
        answer: MetadataResponse = link.call(MetadataRequest(topics=[], allow_auto_topic_creation=False))
        for broker in answer.brokers:
            wanted = DescribeConfigsResource(resource_type=_BROKER, resource_name=str(broker.node_id), configuration_keys=[KEY])
            (result,) = link.call(DescribeConfigsRequest(resources=[wanted])).results
            if result.error_code == ErrorCode.NONE:
                for entry in result.configs:
                    if entry.name == KEY:
                        return bool(entry.value == "true")
    except LinkFailed:
        pass
    return None
