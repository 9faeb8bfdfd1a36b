"""Makes this broker's connections to other brokers."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from txbroker.broker.environment import Environment
from txbroker.config.resolve import BrokerConfig
from txbroker.peers.broker_link import BrokerLink, Link
from txbroker.peers.peer_channel import OwnLink, PeerChannel, Unaddressed

if TYPE_CHECKING:
    from txbroker.client.client_security import ClientSecurity
    from txbroker.client.twisted_connection import TwistedConnection
    from txbroker.cluster.controller.broker_channels import Channel
    from txbroker.cluster.controller.controller_context import LiveBroker
    from txbroker.cluster.own_broker import OwnBroker
    from txbroker.transactions.marker_queues import Destination


class Address(Protocol):
    """Where a broker listens."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...


# The client's modules are imported in a cluster only: a broker alone starts without them.


class Connections:
    """The settings and the environment that all of them share."""

    def __init__(
        self, broker_id: int, config: BrokerConfig, environment: Environment, listener: str, login: ClientSecurity | None,
        tls: Callable[[], ssl.SSLContext] | None,
    ) -> None:  # fmt: skip
        """`listener`: the name of the inter-broker listener. `login`: this broker's own there, None without SASL.

        `tls` returns the context of a new connection to it, if it has TLS.
        """
        self._broker_id = broker_id
        self._config = config
        self._environment = environment
        self._listener = listener
        self._login = login
        self._tls = tls

    def open(
        self, address: Address, client_id: str, response_bytes_max: int | None = None, in_flight_max: int = 1
    ) -> TwistedConnection:
        """A connection that is not connected yet."""
        from txbroker.client.client_machine import ClientSettings
        from txbroker.client.twisted_connection import TwistedConnection

        settings = ClientSettings(client_id, in_flight_max=in_flight_max, security=self._login)
        if response_bytes_max is not None:
            settings = settings._replace(response_bytes_max=response_bytes_max)
        environment = self._environment
        return TwistedConnection(
            address.host, address.port, environment.reactor, environment.random.random, settings, nonce=environment.unique_id, tls=self._tls
        )

    def link(self, address: Address) -> BrokerLink:
        """For requests between a broker and the controller. As in Kafka, the client id is this broker's id."""
        return BrokerLink(self.open(address, str(self._broker_id)), self._config.int("controller.socket.timeout.ms") / 1000)

    def marker_channel(self, destination: Destination) -> PeerChannel:
        """A transaction coordinator's way to another broker."""
        link = self.link(destination)
        return PeerChannel(destination.broker_id, link, self._environment.reactor, self._environment.random.random)

    def channel(self, broker_id: int, broker: LiveBroker, own: OwnBroker) -> Channel:
        """The controller's way to a broker; `own` is this one."""
        endpoint = broker.endpoint(self._listener)
        link: Link
        if broker_id == self._broker_id:
            link = OwnLink(own)
        elif endpoint is None:
            return Unaddressed(broker_id, self._listener)
        else:
            link = self.link(endpoint)
        return PeerChannel(broker_id, link, self._environment.reactor, self._environment.random.random)
