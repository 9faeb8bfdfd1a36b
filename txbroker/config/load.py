"""Loads the configuration for a start, and checks values against each other (KafkaConfig.validateValues)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from txbroker.config.listeners import LISTENER_KEYS, parse_listeners
from txbroker.config.properties import Properties
from txbroker.config.resolve import BrokerConfig
from txbroker.config.sasl import check_sasl
from txbroker.config.static import invalid_values
from txbroker.config.zookeeper_login import CONFIG_KEY, has_zookeeper_login, zookeeper_login
from txbroker.errors import ConfigError

CLEANER_BYTES_PER_THREAD_MIN = 1024 * 1024
LOG_DIRECTORY_KEYS = ("log.dirs", "log.dir")


class Problem(NamedTuple):
    """What is wrong, and the keys involved."""

    names: tuple[str, ...]
    text: str


class InvalidConfig(ConfigError):
    """Values that are invalid alone or together with others; `valid` is the configuration without those that are invalid alone."""

    def __init__(self, problems: Sequence[str], valid: BrokerConfig) -> None:
        super().__init__(*problems)
        self.valid = valid


def load_broker_config(properties: Properties) -> BrokerConfig:
    """The configuration for a start; InvalidConfig with all invalid values.

    Its `static.warnings` (unknown keys, keys without effect) are for the log.
    """
    invalid = invalid_values(properties)
    config = BrokerConfig({name: written for name, written in properties.items() if name not in invalid})
    conflicts = [problem for problem in _conflicts(config) if invalid.keys().isdisjoint(problem.names)]
    problems = [*invalid.values(), *(str(config.static.error(*problem)) for problem in conflicts)]
    if invalid.keys().isdisjoint(LISTENER_KEYS) and _roles(config) is None:
        try:
            check_sasl(config, parse_listeners(config))
        except ConfigError as error:
            problems += error.problems
    if config.optional_text("zookeeper.connect"):
        try:
            zookeeper_login(config)
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise InvalidConfig(problems, config)
    return config


def broker_problem(config: BrokerConfig) -> Problem | None:
    """The first conflict between values, if any."""
    return next(_conflicts(config), None)


def _conflicts(config: BrokerConfig) -> Iterator[Problem]:
    for names, check in _CHECKS:
        text = check(config)
        if text is not None:
            yield Problem(names, text)


def _roles(config: BrokerConfig) -> str | None:
    if config.list("process.roles") == ("controller",):
        return "process.roles is controller, but txbroker has no KRaft controller: do not start this process"
    return None


def _metadata(config: BrokerConfig) -> str | None:
    if config.optional_text("zookeeper.connect") and config.list("process.roles"):
        return "zookeeper.connect and process.roles are both set: remove process.roles to join the cluster on ZooKeeper, or the other"
    return None


def _zookeeper_tls(config: BrokerConfig) -> str | None:
    if not (config.optional_text("zookeeper.connect") and config.boolean("zookeeper.ssl.client.enable")):
        return None
    for key in ("zookeeper.ssl.crl.enable", "zookeeper.ssl.ocsp.enable"):
        if config.boolean(key):
            return f"{key} is true, but txbroker does not check whether certificates are revoked: set it to false"
    return None


def _log_directories(config: BrokerConfig) -> str | None:
    directories = config.list("log.dirs")
    if not directories:
        return "log.dirs must have at least one directory"
    repeated = [directory for directory in directories if directories.count(directory) > 1]
    return f"log.dirs names {repeated[0]} twice" if repeated else None


def _broker_id(config: BrokerConfig) -> str | None:
    broker_id, highest = config.int("broker.id"), config.int("reserved.broker.max.id")
    if config.list("process.roles") and broker_id >= 0:
        return None  # with KRaft, ids are not generated and any number is allowed
    if broker_id == -1 and not config.boolean("broker.id.generation.enable"):
        return "broker.id must be set if broker.id.generation.enable is false"
    if broker_id > highest and config.boolean("broker.id.generation.enable"):
        return f"broker.id is {broker_id}; it must not be above reserved.broker.max.id ({highest}), as higher ids are generated"
    return None


def _session_timeouts(config: BrokerConfig) -> str | None:
    low, high = config.int("group.min.session.timeout.ms"), config.int("group.max.session.timeout.ms")
    if low > high:
        return f"group.min.session.timeout.ms is {low}; it must not be above group.max.session.timeout.ms ({high})"
    return None


def _queued_bytes(config: BrokerConfig) -> str | None:
    queued, largest = config.int("queued.max.request.bytes"), config.int("socket.request.max.bytes")
    if 0 < queued < largest:
        return f"queued.max.request.bytes is {queued}; it must be at least socket.request.max.bytes ({largest}), or -1"
    return None


def _failure_delay(config: BrokerConfig) -> str | None:
    delay_ms, idle_ms = config.int("connection.failed.authentication.delay.ms"), config.int("connections.max.idle.ms")
    if idle_ms >= 0 and delay_ms >= idle_ms:
        return f"connection.failed.authentication.delay.ms is {delay_ms}; it must be below connections.max.idle.ms ({idle_ms})"
    return None


def _connections_per_ip(config: BrokerConfig) -> str | None:
    if config.int("max.connections.per.ip") == 0 and not config.text("max.connections.per.ip.overrides"):
        return "max.connections.per.ip is 0, so max.connections.per.ip.overrides must be set, or no client could connect"
    return None


def _cleaner_memory(config: BrokerConfig) -> str | None:
    size, threads = config.int("log.cleaner.dedupe.buffer.size"), config.int("log.cleaner.threads")
    if config.boolean("log.cleaner.enable") and size < threads * CLEANER_BYTES_PER_THREAD_MIN:
        return f"log.cleaner.dedupe.buffer.size is {size}; it must be at least 1 MiB for each of log.cleaner.threads ({threads})"
    return None


def _compaction_strategy(config: BrokerConfig) -> str | None:
    header = config.text("log.cleaner.compaction.strategy.header")
    if config.text("log.cleaner.compaction.strategy") == "header" and not header:
        return "log.cleaner.compaction.strategy is header, so log.cleaner.compaction.strategy.header must name the header"
    return None


def _zookeeper_acls(config: BrokerConfig) -> str | None:
    """As KafkaServer.initZkClient."""
    if not (config.optional_text("zookeeper.connect") and config.boolean("zookeeper.set.acl")):
        return None
    has_certificate = config.boolean("zookeeper.ssl.client.enable") and config.optional_text("zookeeper.ssl.keystore.location")
    if has_certificate or has_zookeeper_login(config):
        return None
    return (f"zookeeper.set.acl is true, but this broker does not authenticate to ZooKeeper: set {CONFIG_KEY} for a login, or "
            "zookeeper.ssl.client.enable and zookeeper.ssl.keystore.location for a certificate")  # fmt: skip


def _offsets_acks(config: BrokerConfig) -> str | None:
    acks, replicas = config.int("offsets.commit.required.acks"), config.int("offsets.topic.replication.factor")
    if not -1 <= acks <= replicas:
        return f"offsets.commit.required.acks is {acks}; it must be from -1 to offsets.topic.replication.factor ({replicas})"
    return None


_CHECKS: tuple[tuple[tuple[str, ...], Callable[[BrokerConfig], str | None]], ...] = (
    (("process.roles",), _roles),
    (("zookeeper.connect", "process.roles"), _metadata),
    (("zookeeper.ssl.client.enable", "zookeeper.connect"), _zookeeper_tls),
    (("zookeeper.set.acl", "zookeeper.connect"), _zookeeper_acls),
    (LOG_DIRECTORY_KEYS, _log_directories),
    (("broker.id", "reserved.broker.max.id", "broker.id.generation.enable"), _broker_id),
    (("group.min.session.timeout.ms", "group.max.session.timeout.ms"), _session_timeouts),
    (("queued.max.request.bytes", "socket.request.max.bytes"), _queued_bytes),
    (("connection.failed.authentication.delay.ms", "connections.max.idle.ms"), _failure_delay),
    (("max.connections.per.ip",), _connections_per_ip),
    (("log.cleaner.dedupe.buffer.size", "log.cleaner.threads"), _cleaner_memory),
    (("log.cleaner.compaction.strategy", "log.cleaner.compaction.strategy.header"), _compaction_strategy),
    (("offsets.commit.required.acks", "offsets.topic.replication.factor"), _offsets_acks),
)
