"""The options of the pytest plugin: each is a key of the ini file and an option of the command line. Imports only pytest."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

PREFIX = "txbroker"


class Option(NamedTuple):
    """`key` after `txbroker_`; `flag` after `--txbroker-`. `kind`: string, linelist or bool."""

    key: str
    flag: str
    kind: Any
    metavar: str
    help: str


OPTIONS = (
    Option("settings", "setting", "linelist", "KEY=VALUE", "a setting of the broker, by its key in server.properties"),
    Option("topics", "topic", "linelist", "NAME[:PARTITIONS]", "a topic that the broker has from the start"),
    Option("port", "port", "string", "PORT", "the port of the broker; without it a free one is taken"),
    Option("partitions", "partitions", "string", "N", "the number of partitions of txbroker_topic (default: 1)"),
    Option("as_version", "as-version", "string", "RELEASE", "the release of Kafka whose requests and versions clients see, such as 2.8"),
    Option("security", "security", "string", "PROTOCOL", "SSL, MTLS, SASL_PLAINTEXT or SASL_SSL: the broker has certificates and a user"),
    Option("bootstrap_servers", "bootstrap-servers", "string", "HOST:PORT,...", "use a broker that runs already, txbroker or Apache Kafka"),
    Option("per_worker", "per-worker", "bool", "", "one broker for each process of pytest-xdist, instead of one for all"),
    Option("start_timeout", "start-timeout", "string", "SECONDS", "how long the broker may take to start (default: 60)"),
)


class Options(NamedTuple):
    """The values of one run."""

    settings: dict[str, str]
    topics: dict[str, int]
    port: int
    partitions: int
    as_version: str | None
    security: str
    bootstrap_servers: str | None
    per_worker: bool
    start_timeout_s: float


# What a broker that runs already has by itself. `settings`, `start_timeout` and `as_version` are also of `txbroker_factory`.
_OF_OWN_BROKER = ("settings", "port", "per_worker", "start_timeout", "as_version", "security")


def add_options(parser: pytest.Parser) -> None:
    """Declare them."""
    group = parser.getgroup(PREFIX, "a Kafka broker for tests (txbroker)")
    for option in OPTIONS:
        flag, name = f"--{PREFIX}-{option.flag}", f"{PREFIX}_{option.key}"
        parser.addini(name, f"{option.help} ({flag})", type=option.kind, default=None)
        if option.kind == "bool":
            group.addoption(flag, action="store_true", default=None, dest=name, help=option.help)
        elif option.kind == "linelist":
            several = f"{option.help}; can be specified several times"
            group.addoption(flag, action="append", default=None, dest=name, metavar=option.metavar, help=several)
        else:
            group.addoption(flag, default=None, dest=name, metavar=option.metavar, help=option.help)


def read_options(config: pytest.Config) -> Options:
    """The values, those of the command line first; UsageError for an invalid one."""
    return Options(
        settings=dict(_pair(text) for text in _lines(config, "settings")),
        topics=dict(_topic(text) for text in _lines(config, "topics")),
        port=_number(config, "port", 0, 0, 65535),
        partitions=_number(config, "partitions", 1, 1, 10_000),
        as_version=_value(config, "as_version"),
        security=_value(config, "security") or "PLAINTEXT",
        bootstrap_servers=_value(config, "bootstrap_servers"),
        per_worker=bool(_value(config, "per_worker")),
        start_timeout_s=_number(config, "start_timeout", 60, 1, 3600),
    )


def warn_of_ignored(config: pytest.Config) -> None:
    """Say which options do not concern the broker of `bootstrap_servers`; UsageError if the command line has them, too."""
    of_command = [f"--{PREFIX}-{each.flag}" for each in OPTIONS if each.key in _OF_OWN_BROKER and config.getoption(f"{PREFIX}_{each.key}")]
    in_file = [f"{PREFIX}_{each}" for each in _OF_OWN_BROKER if config.getini(f"{PREFIX}_{each}")]
    what = "the fixture txbroker uses a broker that runs already (txbroker_bootstrap_servers)"
    if of_command and config.getoption(f"{PREFIX}_bootstrap_servers"):
        raise pytest.UsageError(f"{what}, on which {', '.join(of_command)} would have no effect: remove one or the other")
    if of_command or in_file:
        problem = f"{what}, on which {', '.join([*of_command, *in_file])} has no effect"
        config.issue_config_time_warning(pytest.PytestConfigWarning(problem), stacklevel=2)


def _value(config: pytest.Config, key: str) -> Any:
    name = f"{PREFIX}_{key}"
    chosen = config.getoption(name)
    return (config.getini(name) or None) if chosen is None else chosen  # pytest before 8 returns an empty list for a key that is not set


def _lines(config: pytest.Config, key: str) -> list[str]:
    """Of the ini file, then those of the command line."""
    name = f"{PREFIX}_{key}"
    return [*(config.getini(name) or []), *(config.getoption(name) or [])]


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise pytest.UsageError(f"txbroker_settings has {text!r}; it must be KEY=VALUE, such as num.partitions=3 (--txbroker-setting)")
    return key.strip(), value.strip()


def _topic(text: str) -> tuple[str, int]:
    name, colon, partitions = text.partition(":")
    if not name or (colon and not (partitions.isascii() and partitions.isdecimal() and int(partitions))):
        raise pytest.UsageError(f"txbroker_topics has {text!r}; it must be NAME or NAME:PARTITIONS, such as orders:3 (--txbroker-topic)")
    return name, int(partitions or 1)


def _number(config: pytest.Config, key: str, default: int, least: int, most: int) -> int:
    text = _value(config, key)
    if text is None:
        return default
    if not (str(text).isascii() and str(text).isdecimal() and least <= int(text) <= most):
        flag = f"--{PREFIX}-{key.replace('_', '-')}"
        raise pytest.UsageError(f"txbroker_{key} is {text!r}; it must be a number from {least} to {most} ({flag})")
    return int(text)
