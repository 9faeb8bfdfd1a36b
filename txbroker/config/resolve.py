"""Which value a key has now, and where it comes from.

The order is Kafka's (KIP-226): dynamic topic, dynamic broker, dynamic default for all brokers, static (file and --override),
default. Within one source a key's synonyms are asked in their order: `log.retention.ms` before `.minutes` before `.hours`.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from txbroker.config.keys import Type
from txbroker.config.properties import Properties


class Source(IntEnum):
    """Where a value comes from, by the numbers of DescribeConfigs."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


@dataclass(frozen=True, slots=True)
class Synonym:
    """One of the places that a value could come from; `value` is None for secrets."""

    name: str
    value: str | None
    source: Source


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One row of DescribeConfigs; `value` is None when unset or secret; synonyms begin with the one in force."""

    name: str
    value: str | None
    source: Source
    read_only: bool
    sensitive: bool
    type: Type
    synonyms: tuple[Synonym, ...]
    documentation: str


class BrokerConfig:
    """The configuration of this broker: what it was started with, and the dynamic values of now.

    The static part never changes. The dynamic part has one owner, which calls `set_dynamic` when the metadata tree says so;
    everybody else reads. Asking for a name that no key has, or by the wrong type, is a bug: KeyError or TypeError.
    """

    def __init__(self, properties: Properties) -> None:
        """ConfigError (file, line, key, what is allowed) when a known key has a bad value. `warnings` has the rest."""
        raise NotImplementedError

    warnings: tuple[str, ...]  # one sentence for each unknown key and each key that has no effect

    def boolean(self, name: str) -> bool:
        """The value of a BOOLEAN key."""
        raise NotImplementedError

    def int(self, name: str) -> builtins.int:
        """The value of an INT, SHORT or LONG key that is always set (synonyms are followed)."""
        raise NotImplementedError

    def optional_int(self, name: str) -> builtins.int | None:
        """The value of an INT, SHORT or LONG key, None when it is not set."""
        raise NotImplementedError

    def double(self, name: str) -> float:
        """The value of a DOUBLE key."""
        raise NotImplementedError

    def text(self, name: str) -> str:
        """The value of a STRING, CLASS or PASSWORD key that is always set."""
        raise NotImplementedError

    def optional_text(self, name: str) -> str | None:
        """The value of a STRING, CLASS or PASSWORD key, None when it is not set."""
        raise NotImplementedError

    def list(self, name: str) -> tuple[str, ...]:
        """The value of a LIST key; empty when not set."""
        raise NotImplementedError

    def set_dynamic(self, broker: Mapping[str, str], default: Mapping[str, str]) -> None:
        """Replace all dynamic values: those of this broker, and those of the cluster-wide default. Bad values are left out."""
        raise NotImplementedError

    def describe_broker(self) -> builtins.list[ConfigEntry]:
        """Every broker key, for DescribeConfigs of this broker."""
        raise NotImplementedError

    def describe_default(self) -> builtins.list[ConfigEntry]:
        """The dynamic cluster-wide values, for DescribeConfigs of the broker named ""."""
        raise NotImplementedError

    def describe_topic(self, overrides: Mapping[str, str]) -> builtins.list[ConfigEntry]:
        """Every topic key, for DescribeConfigs of a topic with these overrides."""
        raise NotImplementedError
