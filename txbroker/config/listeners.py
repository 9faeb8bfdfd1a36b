"""The listeners of a broker: where it binds, what it tells clients, and how brokers reach each other.

Kafka's keys `listeners`, `advertised.listeners`, `listener.security.protocol.map`, `inter.broker.listener.name` and
`security.inter.broker.protocol`, with Kafka's checks.
"""

from __future__ import annotations

from dataclasses import dataclass

from txbroker.config.resolve import BrokerConfig


@dataclass(frozen=True, slots=True)
class Listener:
    """One listener: `host` is "" (or 0.0.0.0, ::) for all addresses, IPv6 without brackets; `port` 0 is any free one."""

    name: str
    host: str
    port: int
    protocol: str

    @property
    def wildcard(self) -> bool:
        """Whether it binds to every address, so that no single host can be told to clients."""
        return self.host in ("", "0.0.0.0", "::")


@dataclass(frozen=True, slots=True)
class Listeners:
    """All listeners of a broker.

    `advertised` maps a listener's name to the host and port that clients are told. A name that is missing there has no
    advertised address of its own: clients are told the bound one, or, with a wildcard, the address that they reached.
    """

    bound: tuple[Listener, ...]
    advertised: dict[str, Listener]
    inter_broker: str  # the name of the listener that brokers use among themselves


def parse_listeners(config: BrokerConfig) -> Listeners:
    """The listeners that `config` asks for; ConfigError with file, line and key when they make no sense together."""
    raise NotImplementedError
