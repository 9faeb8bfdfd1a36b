"""Configurations for tests, from the text of a server.properties."""

from __future__ import annotations

from txbroker.config.load import load_broker_config
from txbroker.config.properties import parse_overrides, parse_properties
from txbroker.config.resolve import BrokerConfig


def broker_config(text: str = "", *overrides: str) -> BrokerConfig:
    """The configuration of a broker from a file server.properties and `--override` arguments."""
    return load_broker_config({**parse_properties(text.encode(), "server.properties", {}), **parse_overrides(overrides, {})})
