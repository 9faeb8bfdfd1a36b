"""Whether a topic exists or would be created, for `produce`: the client library would wait for one that is never created."""

from __future__ import annotations

from txbroker.client.auto_create import creates_topics
from txbroker.client.blocking_connection import connect_to_any
from txbroker.client.client_errors import ClientError
from txbroker.client.client_machine import ClientSettings
from txbroker.client.topic_leaders import metadata_request
from txbroker.console.addresses import addresses
from txbroker.console.failures import CommandFailed
from txbroker.errors import ErrorCode
from txbroker.wire.messages.metadata import MetadataResponse


def will_never_be(servers: str, topic: str, settings: ClientSettings) -> bool:
    """Whether a topic does not exist and the broker does not create it. False when that cannot be known."""
    try:
        with connect_to_any(addresses(servers), settings) as connection:
            response: MetadataResponse = connection.call(metadata_request(topic, create=False))
            missing = response.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return missing and creates_topics(connection) is False
    except (ClientError, CommandFailed, ValueError):
        return False
