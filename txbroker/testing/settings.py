"""The settings of a broker for tests: Kafka's keys, with defaults that suit tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from txbroker.testing.errors import KitError

HOST = "127.0.0.1"
PORT_MAX = 65535
INTERNAL = "INTERNAL"  # the listener for the other brokers of a cluster and for the test kit
OWN_CLIENT_ID = "txbroker-testing"  # of the test kit's own requests: no rule acts on them

# A test has one broker and little time. Everything else has Kafka's defaults.
DEFAULTS: Mapping[str, str] = {
    "broker.id": "0",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    # Every Fetch then names its partitions, for rules and the journal.
    "max.incremental.fetch.session.cache.slots": "0",
}
# What the arguments of `Kafka` set, and what would make the broker a part of a cluster.
_DATA = "use data= of Kafka or txbroker_factory"
_ARGUMENTS = {"listeners": "use port= of Kafka or txbroker_factory, or --txbroker-port", "log.dirs": _DATA, "log.dir": _DATA}
_CLUSTER = ("zookeeper.connect", "process.roles")


def broker_settings(settings: Mapping[str, object], port: int, data: str, security: Secured | None = None) -> dict[str, str]:
    """All settings of a broker, as text; KitError. `port`: 0 takes a free one. The broker itself checks keys and values."""
    listeners = f"PLAINTEXT://{HOST}:{port}" if security is None else f"{security.protocol}://{HOST}:{port},{INTERNAL}://{HOST}:0"
    refuse_own(settings)
    check_port(port)
    return {
        **DEFAULTS,
        **({} if security is None else security.settings()),
        **{key: setting_text(value) for key, value in settings.items()},
        "listeners": listeners,
        "log.dirs": data,
    }


class Secured(Protocol):
    """TLS and logins of a broker (`secured.py`)."""

    @property
    def protocol(self) -> str: ...

    def settings(self) -> dict[str, str]: ...


def refuse_own(settings: Mapping[str, object]) -> None:
    """KitError for keys that the test kit sets, or does not support."""
    for key in settings:
        if key in _ARGUMENTS:
            raise KitError(f"settings has {key}, which the test kit sets: {_ARGUMENTS[key]}")
        if key in _CLUSTER:
            advice = "remove it, or use brokers= of Kafka or txbroker_factory"
            raise KitError(f"settings has {key}, but a broker for tests has no cluster of this kind: {advice}")


def check_port(port: int) -> None:
    """KitError unless a broker can listen on this port."""
    if not 0 <= port <= PORT_MAX:
        raise KitError(f"the port is {port}; it must be from 0 to {PORT_MAX}, and 0 takes a free one")


def setting_text(value: object) -> str:
    """A value as server.properties has it: true and false in lower case, the elements of a list with commas."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(setting_text, value))
    return str(value)
