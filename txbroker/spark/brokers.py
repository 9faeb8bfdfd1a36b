"""How the jobs' own client reaches a cluster: the brokers to connect to first, TLS and SASL. Spark's consumers have the same properties.

It is sent to executors, which connect to leaders themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from txbroker.client.blocking_connection import BlockingConnection, connect_to_any, connect_to_broker
from txbroker.client.client_machine import ClientSettings
from txbroker.client.client_security import ClientSecurity, Unsupported
from txbroker.client.group_commits import GroupCommits
from txbroker.client.topic_leaders import Broker
from txbroker.client.topic_reader import TopicReader
from txbroker.console.addresses import addresses as addresses_of
from txbroker.console.failures import BadUsage

CLIENT_ID = "txbroker-spark"
NOTHING: Mapping[str, str] = {}


class Brokers(NamedTuple):
    """`addresses`: at least one. `security`: None for a PLAINTEXT listener."""

    addresses: Sequence[tuple[str, int]]
    security: ClientSecurity | None = None

    @classmethod
    def of(cls, servers: str, properties: Mapping[str, str] = NOTHING, flag: str = "--bootstrap-server") -> Brokers:
        """From HOST:PORT, comma-separated, and properties of a Java client; BadUsage, also for security that is not supported."""
        return cls(addresses_of(servers, flag), security_of(properties))

    @property
    def client(self) -> ClientSettings:
        """The settings of connections."""
        return ClientSettings(CLIENT_ID, security=self.security)

    def reader(self, topic: str, isolation: int) -> TopicReader:
        """A reader of a topic, connected; ClientError."""
        return TopicReader(self.addresses, topic, self.client, isolation)

    def commits(self, group: str) -> GroupCommits:
        """The committed offsets of a group."""
        return GroupCommits(self.addresses, group, self.client)

    def connect(self) -> BlockingConnection:
        """A connection to the first broker that answers; ClientError."""
        return connect_to_any(self.addresses, self.client)

    def connect_to(self, broker: Broker) -> BlockingConnection:
        """A connection to this broker of the cluster; ClientError."""
        return connect_to_broker(broker, self.client)


def security_of(properties: Mapping[str, str]) -> ClientSecurity | None:
    """TLS and SASL of a client with these properties; BadUsage for what this client does not support."""
    try:
        return ClientSecurity.of(properties)
    except Unsupported as error:
        raise BadUsage(f"{error}; correct the client's properties") from None
