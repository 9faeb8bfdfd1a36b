"""The current value of a key, and its source.

The order of sources is Kafka's (KIP-226): dynamic topic, dynamic broker, dynamic default of all brokers, static (file, --override),
default. Within one source synonyms have an order: `log.retention.ms` before `.minutes` before `.hours`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from enum import IntEnum
from typing import Any, TypeAlias

from txbroker.config.broker_keys import BROKER_KEYS, SynonymKey, synonyms
from txbroker.config.keys import InvalidValue, Key, Update, Value
from txbroker.config.listener_keys import LISTENER_PREFIX, known_key, listener_base, listener_key, listener_prefix
from txbroker.config.password_encoder import KEY_BITS, NotDecoded, PasswordEncoder, Unavailable, encoder_settings
from txbroker.config.properties import Properties
from txbroker.config.static import StaticConfig, read_static
from txbroker.config.values import Values
from txbroker.lazy_dataclass import lazy_dataclass

logger = logging.getLogger("txbroker.config")


class Source(IntEnum):
    """The source of a value, with its number in DescribeConfigs."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


@lazy_dataclass(frozen=True, slots=True)
class Found:
    """A value of a key or of a synonym: `value` is in units of `key`, each of which is `unit` units of the requested key."""

    key: Key
    value: Value
    source: Source
    unit: int = 1


Refuses: TypeAlias = "Callable[[BrokerConfig, Collection[str]], str | None]"


class BrokerConfig(Values):
    """The configuration of this broker: static values from the start, and the current dynamic values.

    Only `broker/dynamic.py` calls `set_dynamic`, when the metadata tree changes. A component that supports dynamic changes of a key
    reads it at each use. Synonyms are followed: log.retention.hours sets `int("log.retention.ms")` too. An unknown name or a wrong
    type is an internal error: KeyError or TypeError.
    """

    def __init__(self, properties: Properties) -> None:
        """ConfigError (file, line, key, allowed values) for an invalid value; `static.warnings` has unknown keys."""
        self.static: StaticConfig = read_static(properties)
        self.passwords: PasswordEncoder | None = _encoder(self.static)
        self.refuses: Refuses = lambda candidate, changed: None
        self.set_dynamic({}, {})

    passwords: PasswordEncoder | None
    """Of passwords in dynamic values; None without password.encoder.secret."""

    unreadable: dict[str, str]
    """By name the dynamic values that cannot be read, and why. What protects a listener must not use another value instead."""

    refuses: Refuses
    """Why the running broker cannot use another configuration, of which the named keys change; None if it can."""

    def set_dynamic(self, broker: Mapping[str, str], default: Mapping[str, str]) -> None:
        """Replace all dynamic values: those of this broker, and the default of all brokers.

        Invalid values, and values of read-only keys, are logged and ignored; they were checked when they were stored.
        """
        self._broker, self._default = dict(broker), dict(default)
        self.unreadable: dict[str, str] = {}
        self._layers: tuple[tuple[Source, Mapping[str, Value]], ...] = (
            (Source.DYNAMIC_BROKER_CONFIG, _read_dynamic(broker, self.passwords, self.unreadable, per_broker=True)),
            (Source.DYNAMIC_DEFAULT_BROKER_CONFIG, _read_dynamic(default, self.passwords, self.unreadable, per_broker=False)),
            (Source.STATIC_BROKER_CONFIG, self.static.values),
            (Source.DEFAULT_CONFIG, _DEFAULTS),
        )
        self.unknown_dynamic = {
            name: source
            for source, names in ((Source.DYNAMIC_DEFAULT_BROKER_CONFIG, default), (Source.DYNAMIC_BROKER_CONFIG, broker))
            for name in names
            if known_key(name) is None
        }
        self._values: dict[str, Value] = {}

    def candidate(self, *, broker: Mapping[str, str] | None = None, default: Mapping[str, str] | None = None) -> BrokerConfig:
        """A copy with other dynamic values, to validate them before they are stored; None keeps the current ones."""
        other = BrokerConfig.__new__(BrokerConfig)
        other.static = self.static
        other.passwords = self.passwords
        other.set_dynamic(self._broker if broker is None else broker, self._default if default is None else default)
        return other

    def found(self, name: str) -> Iterator[Found]:
        """All values of a key and its synonyms; the first one is the effective one. KeyError for an unknown key.

        For a key of a single listener also those of the key that it overrides.
        """
        key = listener_key(name)
        if key is not None:
            yield from (Found(key, values[name], source) for source, values in self._layers if values.get(name) is not None)
            name = listener_base(name)
        chain: tuple[SynonymKey, ...] = synonyms(BROKER_KEYS[name].name)
        for source, values in self._layers:
            for synonym in chain:
                value = values.get(synonym.name)
                if value is not None:
                    yield Found(BROKER_KEYS[synonym.name], value, source, synonym.unit)

    def of_listeners(self) -> Iterator[Key]:
        """The keys of single listeners that are set."""
        names = {name: None for _, values in self._layers for name in values if name.startswith(LISTENER_PREFIX)}
        return (key for name in names if (key := listener_key(name)) is not None)

    def listener(self, name: str) -> ListenerConfig:
        """The values for one listener."""
        return ListenerConfig(self, self, listener_prefix(name))

    def prefixed(self, name: str) -> Value:
        """The value of a key of one listener, such as `listener.name.internal.ssl.client.auth`; None if it is not set."""
        return next((values[name] for _, values in self._layers if values.get(name) is not None), None)

    @property
    def stored(self) -> Collection[str]:
        """The names of this broker's dynamic values, also of those that cannot be read."""
        return self._broker.keys()

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


class ListenerConfig(Values):
    """The values for one listener: that of the key with the listener's prefix, else that of the key (`valuesWithPrefixOverride`)."""

    def __init__(self, config: BrokerConfig, inherited: Values, prefix: str) -> None:
        """`inherited` has the values of keys that are not set with this prefix."""
        self.prefix = prefix
        self._config = config
        self._inherited = inherited

    def value(self, name: str) -> Value:
        """The value of a key of any type; None if it is not set."""
        own = self._config.prefixed(self.prefix + name)
        return self._inherited.value(name) if own is None else own

    def mechanism(self, name: str) -> ListenerConfig:
        """The values for a SASL mechanism on this listener."""
        return ListenerConfig(self._config, self, f"{self.prefix}{name.lower()}.")

    def names(self, key: str) -> tuple[str, ...]:
        """The names under which a key can be set for this listener, for an error about it."""
        return self.prefix + key, key


# Stores that only single listeners can have (SslConfigs.RECONFIGURABLE_CONFIGS).
_STORES = ("ssl.keystore.", "ssl.truststore.", "ssl.key.password")
_DEFAULTS: Mapping[str, Value] = {name: key.default for name, key in BROKER_KEYS.items() if key.default is not None}


def _encoder(static: StaticConfig) -> PasswordEncoder | None:
    """ConfigError if the keys password.encoder.* do not fit each other."""

    def value(name: str) -> Any:
        return static.values.get(name, BROKER_KEYS[name].default)

    settings = encoder_settings(value)
    if settings is None:
        return None
    if settings.key_bits not in KEY_BITS:
        raise static.error(
            ["password.encoder.key.length"],
            f"password.encoder.key.length is {settings.key_bits}; AES has keys of 128, 192 or 256 bits",
        )
    return PasswordEncoder(settings)


def _read_dynamic(
    texts: Mapping[str, str], passwords: PasswordEncoder | None, unreadable: dict[str, str], *, per_broker: bool
) -> dict[str, Value]:
    """Adds to `unreadable` what cannot be read. What has no place there is ignored, as by Kafka's DynamicBrokerConfig."""
    values: dict[str, Value] = {}
    for name, text in texts.items():
        key = known_key(name)
        if key is None:
            continue  # unknown keys can be stored, as in Kafka, where plugins have keys
        if key.update is Update.READ_ONLY:
            logger.warning("ignoring a dynamic value: %s cannot be changed while the broker runs", name)
            continue
        if key.update is Update.PER_BROKER and not per_broker:
            logger.warning("ignoring a dynamic value: %s can be set only for a single broker, not as the default of all brokers", name)
            continue
        if name.startswith(_STORES):
            logger.warning("ignoring a dynamic value: %s can be set only with the prefix listener.name.<listener>.", name)
            continue
        try:
            values[name] = key.parse(decoded_password(text, passwords) if key.sensitive else text)
        except NotDecoded as error:
            unreadable[name] = f"{error}; set it again"
            logger.error("ignoring the dynamic value of %s: %s", name, unreadable[name])
        except Unavailable as error:
            unreadable[name] = str(error)
            logger.error("ignoring the dynamic value of %s: %s", name, error)
        except InvalidValue as error:
            unreadable[name] = str(error)
            logger.warning("ignoring a dynamic value: %s", error)
    return values


def decoded_password(text: str, passwords: PasswordEncoder | None) -> str:
    """A password of a dynamic configuration, as it is stored; NotDecoded, Unavailable."""
    if passwords is None:
        raise NotDecoded("it is encrypted, and password.encoder.secret is not set")
    return passwords.decode(text)
