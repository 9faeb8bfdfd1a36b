"""The current value of a key, and its source.

The order of sources is Kafka's (KIP-226): dynamic topic, dynamic broker, dynamic default of all brokers, static (file, --override),
default. Within one source synonyms have an order: `log.retention.ms` before `.minutes` before `.hours`.
"""

from __future__ import annotations

import builtins
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

from txbroker.config.broker_keys import BROKER_KEYS, SynonymKey, synonyms
from txbroker.config.keys import InvalidValue, Key, Type, Update, Value, split_csv
from txbroker.config.properties import Properties
from txbroker.config.static import StaticConfig, read_static

logger = logging.getLogger("txbroker.config")


class Source(IntEnum):
    """The source of a value, with its number in DescribeConfigs."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


@dataclass(frozen=True, slots=True)
class Found:
    """A value of a key or of a synonym: `value` is in units of `key`, each of which is `unit` units of the requested key."""

    key: Key
    value: Value
    source: Source
    unit: int = 1


class BrokerConfig:
    """The configuration of this broker: static values from the start, and the current dynamic values.

    Only `broker/dynamic.py` calls `set_dynamic`, when the metadata tree changes. A component that supports dynamic changes of a key
    reads it at each use. Synonyms are followed: log.retention.hours sets `int("log.retention.ms")` too. An unknown name or a wrong
    type is an internal error: KeyError or TypeError.
    """

    def __init__(self, properties: Properties) -> None:
        """ConfigError (file, line, key, allowed values) for an invalid value; `static.warnings` has unknown keys."""
        self.static: StaticConfig = read_static(properties)
        self.set_dynamic({}, {})

    def set_dynamic(self, broker: Mapping[str, str], default: Mapping[str, str]) -> None:
        """Replace all dynamic values: those of this broker, and the default of all brokers.

        Invalid values, and values of read-only keys, are logged and ignored; they were checked when they were stored.
        """
        self._broker, self._default = dict(broker), dict(default)
        self._layers: tuple[tuple[Source, Mapping[str, Value]], ...] = (
            (Source.DYNAMIC_BROKER_CONFIG, _read_dynamic(broker)),
            (Source.DYNAMIC_DEFAULT_BROKER_CONFIG, _read_dynamic(default)),
            (Source.STATIC_BROKER_CONFIG, self.static.values),
            (Source.DEFAULT_CONFIG, _DEFAULTS),
        )
        self.unknown_dynamic = {
            name: source
            for source, names in ((Source.DYNAMIC_DEFAULT_BROKER_CONFIG, default), (Source.DYNAMIC_BROKER_CONFIG, broker))
            for name in names
            if name not in BROKER_KEYS
        }
        self._values: dict[str, Value] = {}

    def candidate(self, *, broker: Mapping[str, str] | None = None, default: Mapping[str, str] | None = None) -> BrokerConfig:
        """A copy with other dynamic values, to validate them before they are stored; None keeps the current ones."""
        other = BrokerConfig.__new__(BrokerConfig)
        other.static = self.static
        other.set_dynamic(self._broker if broker is None else broker, self._default if default is None else default)
        return other

    def found(self, name: str) -> Iterator[Found]:
        """All values of a key and its synonyms; the first one is the effective one. KeyError for an unknown key."""
        chain: tuple[SynonymKey, ...] = synonyms(BROKER_KEYS[name].name)
        for source, values in self._layers:
            for synonym in chain:
                value = values.get(synonym.name)
                if value is not None:
                    yield Found(BROKER_KEYS[synonym.name], value, source, synonym.unit)

    def value(self, name: str) -> Value:
        """The value of a key of any type; None if it is not set."""
        try:
            return self._values[name]
        except KeyError:
            value = self._values[name] = self._resolve(name)
            return value

    def _resolve(self, name: str) -> Value:
        first = next(self.found(name), None)
        if first is None:
            return None
        if first.unit != 1 and isinstance(first.value, int):
            return -1 if first.value < 0 else first.value * first.unit  # a negative number of hours is "no limit" in ms too
        return first.value

    def boolean(self, name: str) -> bool:
        """The value of a BOOLEAN key."""
        value = self.value(name)
        if isinstance(value, bool):
            return value
        raise _wrong_type(name, value, "a boolean")

    def int(self, name: str) -> builtins.int:
        """The value of an INT, SHORT or LONG key that is always set."""
        value = self.value(name)
        if isinstance(value, builtins.int) and not isinstance(value, bool):
            return value
        raise _wrong_type(name, value, "a whole number")

    def double(self, name: str) -> float:
        """The value of a DOUBLE key."""
        value = self.value(name)
        if isinstance(value, float):
            return value
        raise _wrong_type(name, value, "a double")

    def text(self, name: str) -> str:
        """The value of a STRING, CLASS or PASSWORD key that is always set."""
        value = self.value(name)
        if isinstance(value, str):
            return value
        raise _wrong_type(name, value, "a text")

    def optional_text(self, name: str) -> str | None:
        """The value of a STRING, CLASS or PASSWORD key; None if it is not set."""
        return None if self.value(name) is None else self.text(name)

    def list(self, name: str) -> tuple[str, ...]:
        """The value of a LIST key, or the comma-separated parts of a STRING key, without empty ones; empty if it is not set."""
        value = self.value(name)
        if value is None or isinstance(value, str):
            return split_csv(value or "")
        if isinstance(value, tuple):
            return value
        raise _wrong_type(name, value, "a list")


_DEFAULTS: Mapping[str, Value] = {name: key.default for name, key in BROKER_KEYS.items() if key.default is not None}


def _read_dynamic(texts: Mapping[str, str]) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for name, text in texts.items():
        key = BROKER_KEYS.get(name)
        if key is None:
            continue  # unknown keys can be stored, as in Kafka, where plugins have keys
        if key.update is Update.READ_ONLY:
            logger.warning("ignoring a dynamic value: %s cannot be changed while the broker runs", name)
            continue
        try:
            values[name] = key.parse(text)
        except InvalidValue as error:
            logger.warning("ignoring a dynamic value: %s", error)
    return values


def _wrong_type(name: str, value: Value, wanted: str) -> TypeError:
    return TypeError(f"{name} is {'not set' if value is None else Type(BROKER_KEYS[name].type).name}, not {wanted}")
