"""The settings of the brokers of a cluster for tests, and the places of their data: those of `txbroker run --processes`."""

from __future__ import annotations

from collections.abc import Mapping

from txbroker.config.process_layout import process_directory
from txbroker.testing.errors import KitError
from txbroker.testing.settings import DEFAULTS, HOST, INTERNAL, PORT_MAX, Secured, check_port, refuse_own, setting_text

BROKERS_MAX = 16
_REPLICAS = 3  # Kafka's default for internal topics


def check_brokers(brokers: int, port: int) -> None:
    """KitError unless there can be so many from this port on; 0 takes free ones."""
    if not 1 <= brokers <= BROKERS_MAX:
        raise KitError(f"brokers is {brokers}; it must be from 1 to {BROKERS_MAX}")
    check_port(port)
    if port + brokers - 1 > PORT_MAX:
        raise KitError(f"port {port} leaves no ports for {brokers} brokers: choose a lower one, or none, and free ones are taken")


def cluster_settings(settings: Mapping[str, object], brokers: int, security: Secured | None = None) -> dict[str, str]:
    """What all brokers have in common, as text; KitError. Topics have up to three replicas, so that leaders can move."""
    refuse_own(settings)
    replicas = str(min(_REPLICAS, brokers))
    return {
        **DEFAULTS,
        "default.replication.factor": replicas,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": str(max(1, int(replicas) - 1)),
        **({} if security is None else security.settings()),
        **{key: setting_text(value) for key, value in settings.items()},
    }


def broker_overrides(common: Mapping[str, str], number: int, port: int, data: str, socket: str, protocol: str) -> dict[str, str]:
    """All settings of broker `number`, from 0 on, which listens on `port`. `socket`: that of the server of the metadata.

    `protocol`: the security protocol of clients.
    """
    return {
        "listener.security.protocol.map": f"{protocol}:{protocol},{INTERNAL}:PLAINTEXT",
        "inter.broker.listener.name": INTERNAL,
        **common,
        "broker.id": str(int(common["broker.id"]) + number),
        "broker.id.generation.enable": "false",
        "listeners": f"{protocol}://{HOST}:{port},{INTERNAL}://{HOST}:0",
        "log.dirs": f"{data}/{process_directory(number)}",
        "txbroker.metadata.socket": socket,
    }
