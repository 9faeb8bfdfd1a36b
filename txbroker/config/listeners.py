"""The listeners of a broker: bound addresses, advertised addresses, and the listener between brokers.

Kafka's keys `listeners`, `advertised.listeners`, `listener.security.protocol.map`, `inter.broker.listener.name`,
`security.inter.broker.protocol` and `controller.listener.names`, with the checks of KafkaConfig and SocketServerConfigs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from ipaddress import AddressValueError, IPv4Address, IPv6Address

from txbroker.config.checks import csv_pairs
from txbroker.config.resolve import BrokerConfig
from txbroker.errors import ConfigError
from txbroker.lazy_dataclass import lazy_dataclass

# In the order of their ids in Kafka's SecurityProtocol.
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

# The keys that `parse_listeners` reads.
LISTENER_KEYS = (
    "listeners", "advertised.listeners", "listener.security.protocol.map", "inter.broker.listener.name", "security.inter.broker.protocol",
    "controller.listener.names",
)  # fmt: skip

WITH_TLS = ("SSL", "SASL_SSL")

_WILDCARDS = ("", "0.0.0.0", "::")


@lazy_dataclass(frozen=True, slots=True)
class Listener:
    """One listener. `host` "" (or 0.0.0.0, ::) is all addresses; IPv6 has no brackets. `port` 0 is any free port."""

    name: str
    host: str
    port: int
    protocol: str

    @property
    def wildcard(self) -> bool:
        """Whether it binds to all addresses, so that there is no host to advertise."""
        return self.host in _WILDCARDS

    @property
    def loopback(self) -> bool:
        """Whether only clients of this machine can connect."""
        return self.host in ("localhost", "::1") or (self.host.startswith("127.") and _is_address(IPv4Address, self.host))

    def __str__(self) -> str:
        return f"{self.name}://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


@lazy_dataclass(frozen=True, slots=True)
class Listeners:
    """All listeners of a broker.

    `advertised` has the addresses that clients receive, by the name of the listener they have connected to. If a listener is not in
    it, clients receive the bound address or, with a wildcard, the address that they have connected to. An advertised host "" is the
    address that the client has connected to, and an advertised port 0 is the bound port.
    """

    bound: tuple[Listener, ...]
    advertised: Mapping[str, Listener]
    inter_broker: str  # the name of the listener for requests between brokers
    unopened: tuple[Listener, ...] = ()  # those of KRaft controllers

    @property
    def have_tls(self) -> bool:
        """Whether one of them has TLS."""
        return any(listener.protocol in WITH_TLS for listener in self.bound)


def parse_listeners(config: BrokerConfig) -> Listeners:
    """The configured listeners; ConfigError with file, line and key if they conflict.

    Listeners of KRaft controllers (`controller.listener.names`) are only in `unopened`.
    """
    controllers = {name.upper() for name in config.list("controller.listener.names")}
    protocols = _protocol_map(config)
    wanted = _parse(config, "listeners", protocols)
    bound = [listener for listener in wanted if listener.name not in controllers]
    _check_bound(config, bound)
    advertised = [listener for listener in _parse(config, "advertised.listeners", protocols) if listener.name not in controllers]
    if config.optional_text("advertised.listeners") is not None and not advertised:
        raise _error(config, "advertised.listeners", "has no listener for clients; name one, or remove the key")
    _check_advertised(config, advertised, bound)
    by_name = {listener.name: listener for listener in advertised}
    unopened = tuple(listener for listener in wanted if listener.name in controllers)
    return Listeners(tuple(bound), by_name, _inter_broker(config, bound, by_name), unopened)


def connections_per_ip_overrides(config: BrokerConfig) -> dict[str, int]:
    """`max.connections.per.ip.overrides`: the maximum number of connections of each host name or address."""
    limits = {}
    for host, _, count in csv_pairs(config.text("max.connections.per.ip.overrides")):
        limits[host.strip("[]")] = int(count)
    return limits


# name://host:port; the host may be empty or in brackets, and the last colon is before the port, as in Kafka's EndPoint.
_LISTENER = re.compile(r"([^:/\s]+)://(\[[0-9a-zA-Z\-._:%]+\]|[0-9a-zA-Z\-._:%]*):0*([0-9]{1,5})", re.ASCII)


def _parse(config: BrokerConfig, key: str, protocols: Mapping[str, str]) -> list[Listener]:
    listeners: list[Listener] = []
    for text in config.list(key):
        listener = _parse_one(config, key, text, protocols)
        if any(other.name == listener.name for other in listeners):
            raise _error(config, key, f"has two listeners named {listener.name}")
        listeners.append(listener)
    return listeners


def _parse_one(config: BrokerConfig, key: str, text: str, protocols: Mapping[str, str]) -> Listener:
    match = _LISTENER.fullmatch(text)
    if match is None:
        raise _error(config, key, f"has '{text}', which is not name://host:port")
    name, host, port = match.group(1).upper(), match.group(2), int(match.group(3))
    host = host.removeprefix("[").removesuffix("]")
    if ":" in host and not _is_address(IPv6Address, host):
        raise _error(config, key, f"has '{text}', in which {host} is not an IPv6 address")
    if port > 65535:
        raise _error(config, key, f"has '{text}', whose port is above 65535")
    if name not in protocols:
        raise _error(config, key, f"has the listener {name}, which has no protocol in listener.security.protocol.map")
    return Listener(name, host, port, protocols[name])


def _check_bound(config: BrokerConfig, bound: Sequence[Listener]) -> None:
    if not bound:
        raise _error(config, "listeners", "has no listener for clients")
    for i, listener in enumerate(bound):
        same = [other for other in bound[:i] if other.port == listener.port and listener.port != 0]
        if same and not (len(same) == 1 and _two_families(same[0], listener)):
            raise _error(config, "listeners", f"has {same[0]} and {listener} on the same port")


def _check_advertised(config: BrokerConfig, advertised: Sequence[Listener], bound: Sequence[Listener]) -> None:
    names = {listener.name for listener in bound}
    for listener in advertised:
        if listener.name not in names:
            raise _error(config, "advertised.listeners", f"has {listener}, but listeners has no {listener.name}")
        if listener.wildcard and listener.host:
            raise _error(config, "advertised.listeners", f"has {listener}, to which no client can connect; use a host name")


def _inter_broker(config: BrokerConfig, bound: Sequence[Listener], advertised: Mapping[str, Listener]) -> str:
    """The listener with the configured name or protocol, as in Kafka; but its name can differ from the protocol's."""
    # If addresses are advertised, the one for brokers must be too.
    usable = [listener.name for listener in bound if not advertised or listener.name in advertised]
    name = config.optional_text("inter.broker.listener.name")
    protocol = config.text("security.inter.broker.protocol")
    if name is None:
        matching = [listener.name for listener in bound if listener.protocol == protocol and listener.name in usable]
        if not matching:
            raise _error(config, "security.inter.broker.protocol", f"is {protocol}, but no advertised listener has this protocol")
        return protocol if protocol in matching else matching[0]
    if "security.inter.broker.protocol" in config.static.values:
        raise _error(config, "inter.broker.listener.name", "and security.inter.broker.protocol are both set; remove one of them")
    if name.upper() not in usable:
        raise _error(config, "inter.broker.listener.name", f"is {name}, which is not among the advertised listeners ({', '.join(usable)})")
    return name.upper()


def _protocol_map(config: BrokerConfig) -> dict[str, str]:
    key = "listener.security.protocol.map"
    protocols: dict[str, str] = {}
    for name, colon, protocol in csv_pairs(config.text(key)):
        if not colon or not name:
            raise _error(config, key, f"has '{name or protocol}', which is not name:protocol")
        if protocol.upper() not in PROTOCOLS:
            raise _error(config, key, f"gives {name.upper()} the protocol {protocol.upper()}, which is not one of {', '.join(PROTOCOLS)}")
        protocols[name.upper()] = protocol.upper()
    for name in config.list("controller.listener.names"):
        protocols.setdefault(name.upper(), "PLAINTEXT")  # KIP-801; such a listener is never opened
    return protocols


def _two_families(one: Listener, other: Listener) -> bool:
    """Whether one is an IPv4 and the other an IPv6 address, which can share a port (KAFKA-14314)."""
    families = {(_is_address(IPv4Address, host), _is_address(IPv6Address, host)) for host in (one.host, other.host)}
    return families == {(True, False), (False, True)}


def _is_address(family: type[IPv4Address] | type[IPv6Address], host: str) -> bool:
    try:
        family(host)
    except AddressValueError:
        return False
    return True


def _error(config: BrokerConfig, key: str, problem: str) -> ConfigError:
    return config.static.error((key, "listeners"), f"{key} {problem}")
