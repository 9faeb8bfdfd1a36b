"""What a broker is started with: property files, the environment and overrides, read in this order, of which the last one wins.

`txbroker run`, `twistd txbroker` and `txbroker config` read it here, so that they agree.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from txbroker.config.advice import advice
from txbroker.config.environment import NO_ENVIRONMENT, FirstTopic, derived_listeners, parse_environment
from txbroker.config.listeners import parse_listeners
from txbroker.config.load import load_broker_config
from txbroker.config.properties import Property, parse_overrides, parse_properties
from txbroker.config.resolve import BrokerConfig
from txbroker.errors import ConfigError

FILE_BYTES_MAX = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Startup:
    """The configuration, and what no key says: the id of a new cluster, topics to be made. `warnings` are for the log."""

    config: BrokerConfig
    cluster_id: str | None = None
    topics: tuple[FirstTopic, ...] = ()
    warnings: tuple[str, ...] = ()


def read_startup(files: Sequence[str], overrides: Sequence[str], *, environment: bool = False) -> Startup:
    """What these files, the `KAFKA_...` variables if `environment` says so, and these KEY=VALUE overrides say together.

    ConfigError, one sentence with the place, when it cannot be used. `${env:NAME}` in values is expanded in any case.
    """
    properties: dict[str, Property] = {}
    for path in files:
        properties |= parse_properties(_content(path), path, os.environ)
    variables = parse_environment(os.environ) if environment else NO_ENVIRONMENT
    properties |= variables.properties
    properties |= parse_overrides(overrides, os.environ)
    if environment:
        properties |= derived_listeners(properties)
    config = load_broker_config(properties)
    warnings = (*variables.warnings, *advice(config, parse_listeners(config)))
    return Startup(config, variables.cluster_id, variables.topics, warnings)


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}; correct --config") from error
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError(f"{path} has more than {FILE_BYTES_MAX} bytes and is no server.properties; correct --config")
    return data
