"""Reads the configuration for a start: property files, environment and overrides, in this order; the last value of a key wins.

`txbroker run`, `twistd txbroker` and `txbroker config` all use it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from txbroker.config.advice import advice
from txbroker.config.environment import NO_ENVIRONMENT, FirstTopic, derived_listeners, parse_environment
from txbroker.config.listeners import parse_listeners
from txbroker.config.load import InvalidConfig, load_broker_config
from txbroker.config.properties import MalformedProperties, Property, parse_overrides, parse_properties
from txbroker.config.providers import expand
from txbroker.config.resolve import BrokerConfig
from txbroker.errors import ConfigError, StartError
from txbroker.lazy_dataclass import lazy_dataclass
from txbroker.platform import Unavailable, use
from txbroker.regular_files import read_regular

FILE_BYTES_MAX = 4 * 1024 * 1024


@lazy_dataclass(frozen=True, slots=True)
class Startup:
    """The configuration; the id for a new cluster; topics to create; and `warnings` for the log."""

    config: BrokerConfig
    cluster_id: str | None = None
    topics: tuple[FirstTopic, ...] = ()
    warnings: tuple[str, ...] = ()


def read_startup(files: Sequence[str], overrides: Sequence[str], *, environment: bool = False) -> Startup:
    """Read files, `KAFKA_...` variables (if `environment`) and KEY=VALUE overrides. `${env:NAME}` in values is always expanded, and the
    variables of Kafka's providers of files if `config.providers` names them.

    InvalidConfig with all problems, a sentence each that names the place; ConfigError for a file that cannot be read.
    """
    properties: dict[str, Property] = {}
    problems: list[str] = []

    def take(parse: Callable[[], Mapping[str, Property]]) -> None:
        try:
            properties.update(parse())
        except MalformedProperties as error:
            problems.extend(error.problems)
            properties.update(error.others)

    for path in files:
        content = _content(path)
        take(partial(parse_properties, content, path, os.environ))
    variables = parse_environment(os.environ) if environment else NO_ENVIRONMENT
    properties |= variables.properties
    take(partial(parse_overrides, overrides, os.environ))
    take(partial(expand, dict(properties), partial(read_regular, bytes_max=FILE_BYTES_MAX)))
    if environment:
        properties |= derived_listeners(properties)
    try:
        config = load_broker_config(properties)
    except InvalidConfig as error:
        raise InvalidConfig([*problems, *error.problems], error.valid) from None
    if problems:
        raise InvalidConfig(problems, config)
    warnings = (*variables.warnings, *advice(config, parse_listeners(config)))
    return Startup(config, variables.cluster_id, variables.topics, warnings)


def _content(path: str) -> bytes:
    """The content of a file of --config, which may also be a pipe; ConfigError."""
    try:
        with open(path, "rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}; correct --config") from error
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError(f"{path} has more than {FILE_BYTES_MAX} bytes, too many for a server.properties file; correct --config")
    return data


def choose_platform(config: BrokerConfig) -> None:
    """Use the functions of the operating system that txbroker.platform names; ConfigError if they are not available here."""
    try:
        use(config.text("txbroker.platform"))
    except Unavailable as error:
        raise ConfigError(f"txbroker.platform is {config.text('txbroker.platform')}, but {error}; set it to auto or portable") from error


def log_directories(config: BrokerConfig) -> list[str]:
    """The absolute paths of log.dirs; StartError if one is relative and the process has no current directory."""
    paths = config.list("log.dirs")
    try:
        return [os.path.abspath(path) for path in paths]
    except OSError as error:
        problem = f"log.dirs has a relative path, and the current directory cannot be read ({error.strerror})"
        raise StartError(f"{problem}: change to another directory, or name absolute paths") from error
