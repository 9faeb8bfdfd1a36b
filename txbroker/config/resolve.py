"""Which value a key has now, and where it comes from.

The order is Kafka's (KIP-226): dynamic topic, dynamic broker, dynamic default for all brokers, static (file and --override),
default. Within one source a key's synonyms are asked in their order: `log.retention.ms` before `.minutes` before `.hours`.
"""

from __future__ import annotations

import builtins
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

from txbroker.config.broker_keys import BROKER_KEYS, SynonymKey, synonyms
from txbroker.config.keys import InvalidValue, Key, Type, Update, Value, split_list
from txbroker.config.properties import Properties
from txbroker.config.static import StaticConfig, read_static

logger = logging.getLogger("txbroker.config")


class Source(IntEnum):
    """Where a value comes from, by the numbers of DescribeConfigs."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


@dataclass(frozen=True, slots=True)
class Found:
    """One place that has a value for a key: `value` is in the units of `key`, `unit` of which make one of the key asked for."""

    key: Key
    value: Value
    source: Source
    unit: int = 1


class BrokerConfig:
    """The configuration of this broker: what it was started with, and the dynamic values of now.

    The static part never changes. The dynamic part has one owner, which calls `set_dynamic` when the metadata tree says so;
    everybody else reads, at the moment of use where a key may change. Asking for a name that no key has, or by the wrong type, is
    a bug: KeyError or TypeError. A key's synonyms are followed: `int("log.retention.ms")` is set by log.retention.hours too.
    """

    def __init__(self, properties: Properties) -> None:
        """ConfigError (file, line, key, what is allowed) when a known key has a bad value; `static.warnings` has the rest."""
        self.static: StaticConfig = read_static(properties)
        self.set_dynamic({}, {})

    def set_dynamic(self, broker: Mapping[str, str], default: Mapping[str, str]) -> None:
        """Replace all dynamic values: those of this broker, and those of the default for all brokers.

        What is not a valid value of a key that may change is logged and left out; it was checked when it was stored.
        """
        self._broker, self._default = dict(broker), dict(default)
        self._layers: tuple[tuple[Source, Mapping[str, Value]], ...] = (
            (Source.DYNAMIC_BROKER_CONFIG, _read_dynamic(broker)),
            (Source.DYNAMIC_DEFAULT_BROKER_CONFIG, _read_dynamic(default)),
            (Source.STATIC_BROKER_CONFIG, self.static.values),
            (Source.DEFAULT_CONFIG, _DEFAULTS),
        )
        self.unknown_dynamic = tuple(name for name in {**default, **broker} if name not in BROKER_KEYS)
        self._values: dict[str, Value] = {}

    def candidate(self, *, broker: Mapping[str, str] | None = None, default: Mapping[str, str] | None = None) -> BrokerConfig:
        """What this configuration would be with other dynamic values, to be judged before they are stored; None keeps those of now."""
        other = BrokerConfig.__new__(BrokerConfig)
        other.static = self.static
        other.set_dynamic(self._broker if broker is None else broker, self._default if default is None else default)
        return other

    def found(self, name: str) -> Iterator[Found]:
        """Every place that has a value for a key or for one of its synonyms; the first is in force. KeyError for no key's name."""
        chain: tuple[SynonymKey, ...] = synonyms(BROKER_KEYS[name].name)
        for source, values in self._layers:
            for synonym in chain:
                value = values.get(synonym.name)
                if value is not None:
                    yield Found(BROKER_KEYS[synonym.name], value, source, synonym.unit)

    def value(self, name: str) -> Value:
        """The value of a key of any type, None when it is not set."""
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
        """The value of a STRING, CLASS or PASSWORD key, None when it is not set."""
        return None if self.value(name) is None else self.text(name)

    def list(self, name: str) -> tuple[str, ...]:
        """The value of a LIST key; of a STRING key, its parts between commas. Empty when not set."""
        value = self.value(name)
        if value is None or isinstance(value, str):
            return split_list(value or "")
        if isinstance(value, tuple):
            return value
        raise _wrong_type(name, value, "a list")


_DEFAULTS: Mapping[str, Value] = {name: key.default for name, key in BROKER_KEYS.items() if key.default is not None}


def _read_dynamic(texts: Mapping[str, str]) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for name, text in texts.items():
        key = BROKER_KEYS.get(name)
        if key is None:
            continue  # may be stored, as in Kafka, where plugins have keys of their own
        if key.update is Update.READ_ONLY:
            logger.warning("A dynamic value is ignored: %s cannot change at run time", name)
            continue
        try:
            values[name] = key.parse(text)
        except InvalidValue as error:
            logger.warning("A dynamic value is ignored: %s", error)
    return values


def _wrong_type(name: str, value: Value, wanted: str) -> TypeError:
    return TypeError(f"{name} is {'not set' if value is None else Type(BROKER_KEYS[name].type).name}, not {wanted}")
