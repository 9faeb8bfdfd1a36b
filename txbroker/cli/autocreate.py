"""Whether a broker makes topics by itself, when somebody writes to one that is not there."""

from __future__ import annotations

from txbroker.cli.failures import CommandFailed
from txbroker.client.blocking import Link, LinkFailed, open_link
from txbroker.errors import ErrorCode
from txbroker.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from txbroker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

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


def will_never_be(servers: str, topic: str) -> bool:
    """Whether a topic is not there, and the broker does not make it for who writes to it. A client library would wait for it.

    False when that cannot be known: the client library then finds out in its own way.
    """
    try:
        with open_link(servers, "txbroker") as link:
            request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
            answer: MetadataResponse = link.call(request)
            return answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and makes_topics(link) is False
    except (CommandFailed, ValueError):
        return False
