"""The entries of DescribeConfigs: keys with values, sources and synonyms (KIP-226, KIP-569)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from txbroker.config.broker_keys import BROKER_KEYS
from txbroker.config.keys import InvalidValue, Key, Type, Update
from txbroker.config.resolve import BrokerConfig, Found, Source
from txbroker.config.topic_keys import SERVER_KEYS, TOPIC_KEYS
from txbroker.lazy_dataclass import lazy_dataclass


@lazy_dataclass(frozen=True, slots=True)
class Synonym:
    """A value of a key or its synonym in one source; `value` is None for secrets."""

    name: str
    value: str | None
    source: Source


@lazy_dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One entry of DescribeConfigs; `value` is None if unset or secret; the first synonym is the effective one."""

    name: str
    value: str | None
    source: Source
    read_only: bool
    sensitive: bool
    type: Type
    synonyms: tuple[Synonym, ...]
    documentation: str


def describe_broker(config: BrokerConfig) -> list[ConfigEntry]:
    """All broker keys, each with its own value, not with that of a synonym. Unknown keys are described as secrets."""
    known = [_broker_entry(key, config.found(key.name)) for key in BROKER_KEYS.values()]
    known += [_broker_entry(key, config.found(key.name)) for key in config.of_listeners()]
    unknown = {**dict.fromkeys(config.static.unknown, Source.STATIC_BROKER_CONFIG), **config.unknown_dynamic}
    return known + [_unknown_entry(name, source) for name, source in unknown.items()]


def describe_default(config: BrokerConfig) -> list[ConfigEntry]:
    """The dynamic default of all brokers, which is what Kafka describes for the broker named ""."""
    entries = []
    for key in BROKER_KEYS.values():
        dynamic = [found for found in config.found(key.name) if found.source is Source.DYNAMIC_DEFAULT_BROKER_CONFIG]
        if any(found.key is key for found in dynamic):
            entries.append(_broker_entry(key, dynamic))
    source = Source.DYNAMIC_DEFAULT_BROKER_CONFIG
    return entries + [_unknown_entry(name, source) for name, found in config.unknown_dynamic.items() if found is source]


def describe_topic(config: BrokerConfig, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """All topic keys, for a topic with these overrides on this broker."""
    return [_topic_entry(config, key, overrides.get(key.name)) for key in TOPIC_KEYS.values()]


def _broker_entry(key: Key, found: Iterable[Found]) -> ConfigEntry:
    chain = list(found)
    while chain and chain[0].key != key:
        del chain[0]
    value = chain[0].value if chain else None
    source = chain[0].source if chain else Source.DEFAULT_CONFIG
    shown = None if key.sensitive else key.format(value)
    synonyms = tuple(map(_synonym, chain))
    return ConfigEntry(
        key.name, shown, source, key.update is Update.READ_ONLY, key.sensitive, key.type, synonyms, _documentation(key)
    )


def _topic_entry(config: BrokerConfig, key: Key, override: str | None) -> ConfigEntry:
    server = SERVER_KEYS.get(key.name)
    synonyms = [_synonym(found) for found in config.found(server)] if server is not None else []
    value = config.value(server) if server is not None else None
    shown = key.format(key.default if value is None else value)
    source = synonyms[0].source if synonyms else Source.DEFAULT_CONFIG
    if override is not None:
        try:
            shown = key.format(key.parse(override))
        except InvalidValue:
            pass  # it is not effective either
        else:
            source = Source.DYNAMIC_TOPIC_CONFIG
            synonyms.insert(0, Synonym(key.name, shown, source))
    return ConfigEntry(key.name, shown, source, False, key.sensitive, key.type, tuple(synonyms), _documentation(key))


def _unknown_entry(name: str, source: Source) -> ConfigEntry:
    return ConfigEntry(name, None, source, True, True, Type.UNKNOWN, (Synonym(name, None, source),), "")


def _synonym(found: Found) -> Synonym:
    key = found.key
    return Synonym(key.name, None if key.sensitive else key.format(found.value), found.source)


def _documentation(key: Key) -> str:
    return key.documentation if key.effective else f"{key.documentation} Accepted, but without effect on this broker."
