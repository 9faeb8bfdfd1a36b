"""The origin of each configuration value, for `txbroker config --print`; secrets are hidden."""

from __future__ import annotations

from typing import NamedTuple

from txbroker.config.broker_keys import BROKER_KEYS
from txbroker.config.keys import Key
from txbroker.config.listener_keys import known_key
from txbroker.config.resolve import BrokerConfig, Found, Source

HIDDEN = "[hidden]"  # as Kafka prints passwords

ORDER = """\
If a key is set in several places, the first of these is used: dynamic value of this broker, dynamic default of all brokers, --override,
KAFKA_... variables (with --env), files (the last one given first), default.
"""

_DYNAMIC = {
    Source.DYNAMIC_BROKER_CONFIG: "dynamic configuration of this broker",
    Source.DYNAMIC_DEFAULT_BROKER_CONFIG: "dynamic default of all brokers",
}


class Row(NamedTuple):
    """One key: its effective value as text (None: not set), its origin, and its source's name in DescribeConfigs."""

    name: str
    value: str | None
    origin: str
    source: str
    effective: bool


def rows(config: BrokerConfig, *, everything: bool = False) -> list[Row]:
    """Keys that have an effect or are set, by name; all known keys with `everything`. Values of unknown keys are hidden."""
    known = [_row(config, key) for key in (*BROKER_KEYS.values(), *config.of_listeners())]
    shown = [row for row in known if everything or row.effective or row.source != Source.DEFAULT_CONFIG.name]
    static = Source.STATIC_BROKER_CONFIG.name
    unknown = [Row(name, HIDDEN, str(config.static.origins[name]), static, False) for name in config.static.unknown]
    return sorted(shown + unknown)


def changed_settings(config: BrokerConfig) -> list[str]:
    """KEY=VALUE of each static value that is not the default, by key; secrets, and values of unknown keys, are hidden."""
    known = [
        f"{name}={HIDDEN if key.sensitive else key.format(value)}"
        for name, value in config.static.values.items()
        if (key := known_key(name)) is not None and value != key.default
    ]
    return sorted([*known, *(f"{name}={HIDDEN}" for name in config.static.unknown)])


def _row(config: BrokerConfig, key: Key) -> Row:
    found = next(config.found(key.name), None)
    value = config.value(key.name)
    shown = HIDDEN if key.sensitive and value is not None else key.format(value)
    source = Source.DEFAULT_CONFIG if found is None else found.source
    return Row(key.name, shown, _origin(config, key, found), source.name, key.effective)


def _origin(config: BrokerConfig, key: Key, found: Found | None) -> str:
    if found is None:
        return "default"
    if found.source is Source.STATIC_BROKER_CONFIG:
        place = str(config.static.origins[found.key.name])
    else:
        place = _DYNAMIC.get(found.source, "default")
    return place if found.key == key else f"{place} ({found.key.name})"
