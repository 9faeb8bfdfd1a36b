"""The static configuration: the properties that a broker is started with, checked against the table of keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from txbroker.config.broker_keys import BROKER_KEYS
from txbroker.config.keys import InvalidValue, Value
from txbroker.config.listener_keys import LISTENER_PREFIX, is_ignored_jaas, known_key
from txbroker.config.properties import Origin, Properties, Property
from txbroker.config.topic_keys import SERVER_KEYS, TOPIC_KEYS
from txbroker.errors import ConfigError
from txbroker.lazy_dataclass import lazy_dataclass
from txbroker.names import similar_names


@lazy_dataclass(frozen=True, slots=True)
class StaticConfig:
    """The configured values. `values` has the known keys, also those of single listeners; `unknown` has the names of the others.

    `warnings` has one sentence for each unknown key, and one for all keys without effect.
    """

    values: Mapping[str, Value]
    origins: Mapping[str, Origin]
    unknown: tuple[str, ...]
    warnings: tuple[str, ...]

    def error(self, names: Sequence[str], problem: str) -> ConfigError:
        """An error about these keys together, with the place of the first one that is configured."""
        return ConfigError(self.place(names) + problem)

    def place(self, names: Sequence[str]) -> str:
        """The place of the first of these keys that is configured, as the start of a sentence; empty if there is none."""
        return next((f"{self.origins[name]}: " for name in names if name in self.origins), "")


def invalid_values(properties: Properties) -> dict[str, str]:
    """A sentence with file and line for each key whose value is invalid."""
    found: dict[str, str] = {}
    for name, written in properties.items():
        key = known_key(name)
        if key is not None:
            try:
                key.parse(written.text)
            except InvalidValue as error:
                found[name] = f"{written.origin}: {error}"
    broker, node = properties.get("broker.id"), properties.get("node.id")
    if broker is not None and node is not None and broker.text.strip() != node.text.strip():
        found.setdefault(
            "node.id",
            f"{node.origin}: node.id is '{node.text}', but broker.id is '{broker.text}' ({broker.origin}); they must be the same",
        )
    return found


def read_static(properties: Properties) -> StaticConfig:
    """Check properties; ConfigError with all invalid values."""
    invalid = invalid_values(properties)
    if invalid:
        raise ConfigError(*invalid.values())
    both = _with_node_id(properties)
    keys = {name: key for name in both if (key := known_key(name)) is not None}
    values = {name: key.parse(both[name].text) for name, key in keys.items()}
    origins = {name: written.origin for name, written in both.items()}
    unknown = tuple(name for name in properties if name not in keys)
    return StaticConfig(values, origins, unknown, tuple(_warnings(values, origins, unknown)))


# Declares the providers of ${env:...} and ${file:...} (config/providers.py).
_QUIET_PREFIX = "config.providers"
_KRAFT_PREFIXES = ("process.roles", "controller.quorum.", "metadata.", "broker.session.", "broker.heartbeat.", "initial.broker.",
                   "eligible.leader.")  # fmt: skip


def _warnings(values: Mapping[str, Value], origins: Mapping[str, Origin], unknown: Sequence[str]) -> Iterator[str]:
    """One sentence for each unknown name, and one for all keys without effect for the same reason.

    A key that is set to its default needs no warning.
    """
    of_listeners = [name for name in unknown if name.startswith(LISTENER_PREFIX)]
    for name in unknown:
        if name not in of_listeners and not name.startswith(_QUIET_PREFIX):
            yield f"{origins[name]}: {_unknown(name)}"
    if of_listeners:
        yield f"{_places(of_listeners, origins, 'is', 'are')} ignored: not a key that single listeners can have"
    for name in values:
        if is_ignored_jaas(name):
            yield (
                f"{origins[name]}: {name} is ignored: a broker reads listener.name.<listener>.<mechanism>.sasl.jaas.config, "
                "with names in lower case"
            )
    known = {name: key for name in values if (key := known_key(name)) is not None}
    idle = [name for name, key in known.items() if not key.effective and values[name] != key.default]
    kraft = [name for name in idle if name.startswith(_KRAFT_PREFIXES)]
    rest = [name for name in idle if name not in kraft]
    if rest:
        yield f"{_places(rest, origins, 'is accepted, but has', 'are accepted, but have')} no effect on this broker"
    if kraft:
        yield (
            f"{_places(kraft, origins, 'is accepted, but has', 'are accepted, but have')} no effect: "
            "this broker stores its metadata without KRaft"
        )


def _places(names: Sequence[str], origins: Mapping[str, Origin], one: str, several: str) -> str:
    if len(names) == 1:
        return f"{origins[names[0]]}: {names[0]} {one}"
    return f"{', '.join(f'{name} ({origins[name]})' for name in names)} {several}"


def similar_key(name: str) -> str | None:
    """The known key that an unknown name resembles, if any; for a topic's key the broker's default of it."""
    if name in SERVER_KEYS:
        return SERVER_KEYS[name]
    return next(iter(similar_names(name, BROKER_KEYS, cutoff=0.85)), None)


def topic_key(name: str) -> str | None:
    """That a key of brokers is a topic's key, and what to use instead; None if it is not."""
    if name in BROKER_KEYS or name not in TOPIC_KEYS:
        return None
    instead = f"use {SERVER_KEYS[name]}" if name in SERVER_KEYS else "set it with `txbroker configs`"
    return f"{name} is a key of topics and is ignored; {instead}"


def _unknown(name: str) -> str:
    of_topics = topic_key(name)
    if of_topics is not None:
        return of_topics
    similar = similar_key(name)
    return f"{name} is not a known key and is ignored" + (f" (did you mean {similar}?)" if similar else "")


def _with_node_id(properties: Properties) -> dict[str, Property]:
    """broker.id and node.id are synonyms (KafkaConfig.populateSynonyms)."""
    both = dict(properties)
    broker, node = properties.get("broker.id"), properties.get("node.id")
    one = node or broker
    if one is not None:
        both["broker.id"] = broker or one
        both["node.id"] = node or one
    return both
