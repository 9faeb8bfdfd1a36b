"""The configuration of each of the brokers that `txbroker run --processes N` starts on one machine.

Broker i has the base id, and the ports of the listeners, plus i, and a directory of its own below each log directory.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence
from itertools import combinations

from txbroker.config.listeners import Listener, parse_listeners
from txbroker.config.resolve import BrokerConfig, Source
from txbroker.errors import ConfigError
from txbroker.names import amount

PORT_MAX = 65_535
PROCESSES_MAX = 256
# One machine has no second place for a replica. Used unless the user configures them.
_DEFAULTS = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


def process_directory(number: int) -> str:
    """The name of a broker's directory below each log directory. No partition's directory has such a name."""
    return f"process.{number}"


def process_number(name: str) -> int | None:
    """The number in such a name; None for another one."""
    start, _, digits = name.partition(".")
    return int(digits) if start == "process" and digits.isdecimal() and len(digits) < 4 and name == process_directory(int(digits)) else None


def process_overrides(config: BrokerConfig, processes: int, socket: str, broker_id: int) -> list[dict[str, str]]:
    """For each process the keys that differ from the common configuration. ConfigError if the configuration permits no such processes.

    `broker_id`: that of process 0. Ids above reserved.broker.max.id are permitted, since none is generated.
    """
    if config.optional_text("zookeeper.connect"):
        raise ConfigError("zookeeper.connect is set, and the processes of --processes have their metadata in a file: remove one of the two")
    listeners = parse_listeners(config)
    _check_ports(config, listeners.bound, processes)
    has_advertised = config.optional_text("advertised.listeners") is not None
    common = {key: value for key, value in _DEFAULTS.items() if _is_default(config, key)} | {"broker.id.generation.enable": "false"}
    if config.int("txbroker.metrics.port") >= 0:
        common |= {"txbroker.metrics.host": "127.0.0.1", "txbroker.metrics.port": "0"}
    audit = config.optional_text("txbroker.audit.file")
    made = []
    for number in range(processes):
        overrides = {
            **common,
            "broker.id": str(broker_id + number),
            "listeners": _shifted("listeners", (*listeners.bound, *listeners.unopened), number),
            "log.dirs": ",".join(posixpath.join(directory, process_directory(number)) for directory in config.list("log.dirs")),
            "txbroker.metadata.socket": socket,
        }
        if audit is not None:
            overrides["txbroker.audit.file"] = f"{audit}.{process_directory(number)}"
        if has_advertised:
            overrides["advertised.listeners"] = _shifted("advertised.listeners", listeners.advertised.values(), number)
        made.append(overrides)
    return made


def _check_ports(config: BrokerConfig, bound: Sequence[Listener], processes: int) -> None:
    """Refuse ports that two processes would bind, as far as it is known without the names of hosts. ConfigError."""
    fewer = f"with {amount(processes, 'process')}: choose ports that are further apart, or fewer --processes"
    for one, other in combinations(bound, 2):
        if one.port and other.port and 0 < abs(one.port - other.port) < processes and _overlap(one, other):
            raise ConfigError(f"listeners: {one} and {other} need the same port {fewer}")
    metrics = Listener("metrics", config.text("txbroker.metrics.host"), config.int("txbroker.metrics.port"), "")
    for one in bound:
        if one.port and 0 <= metrics.port - one.port < processes and _overlap(one, metrics):
            raise ConfigError(f"txbroker.metrics.port: {metrics.port} is also a port of {one} {fewer}")


def _overlap(one: Listener, other: Listener) -> bool:
    return one.wildcard or other.wildcard or one.host == other.host


def _shifted(key: str, listeners: Iterable[Listener], number: int) -> str:
    """The listeners with higher ports. Port 0 is any free port."""
    shifted = []
    for listener in listeners:
        port = listener.port + number if listener.port else 0
        if port > PORT_MAX:
            raise ConfigError(f"{key}: {listener} leaves no port for process {number}: choose a lower port, or fewer --processes")
        shifted.append(str(Listener(listener.name, listener.host, port, listener.protocol)))
    return ",".join(shifted)


def _is_default(config: BrokerConfig, key: str) -> bool:
    found = next(config.found(key), None)
    return found is None or found.source is Source.DEFAULT_CONFIG
