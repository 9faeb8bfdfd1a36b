"""What a broker is started with: server.properties and `--override`, read against the table of keys."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from txbroker.config.broker_keys import BROKER_KEYS
from txbroker.config.keys import InvalidValue, Value
from txbroker.config.properties import Origin, Properties, Property
from txbroker.errors import ConfigError


@dataclass(frozen=True, slots=True)
class StaticConfig:
    """The values that were written down. `values` has the known keys only; `unknown` names the others.

    `warnings` has one sentence for each unknown key and for each key that changes nothing here.
    """

    values: Mapping[str, Value]
    origins: Mapping[str, Origin]
    unknown: tuple[str, ...]
    warnings: tuple[str, ...]

    def error(self, names: Sequence[str], problem: str) -> ConfigError:
        """The error about what these keys say together, with the place of the first of them that was written down."""
        place = next((f"{self.origins[name]}: " for name in names if name in self.origins), "")
        return ConfigError(place + problem)


def read_static(properties: Properties) -> StaticConfig:
    """The static configuration; ConfigError, with file, line and key, on the first known key whose value is not allowed."""
    values: dict[str, Value] = {}
    unknown: list[str] = []
    warnings: list[str] = []
    for name, written in _with_node_id(properties).items():
        key = BROKER_KEYS.get(name)
        if key is None:
            unknown.append(name)
            if not name.startswith(_QUIET_PREFIX):
                warnings.append(f"{written.origin}: {_unknown(name)}")
            continue
        try:
            values[name] = key.parse(written.text)
        except InvalidValue as error:
            raise ConfigError(f"{written.origin}: {error}") from None
        if not key.effective:
            warnings.append(f"{written.origin}: {name} is accepted, but has no effect on this broker")
    origins = {name: written.origin for name, written in properties.items()}
    return StaticConfig(values, origins, tuple(unknown), tuple(warnings))


# Declares the provider of ${env:...}, which needs no declaration here.
_QUIET_PREFIX = "config.providers"
_LISTENER_PREFIX = "listener.name."


def _unknown(name: str) -> str:
    if name.startswith(_LISTENER_PREFIX):
        return f"{name} is ignored: settings of a single listener are not supported yet"
    similar = difflib.get_close_matches(name, BROKER_KEYS, n=1, cutoff=0.85)
    return f"{name} is not a known key and is ignored" + (f" (did you mean {similar[0]}?)" if similar else "")


def _with_node_id(properties: Properties) -> dict[str, Property]:
    """broker.id and node.id are two names of one value (KafkaConfig.populateSynonyms); ConfigError when they differ."""
    both = dict(properties)
    broker, node = properties.get("broker.id"), properties.get("node.id")
    if broker is not None and node is not None and broker.text.strip() != node.text.strip():
        raise ConfigError(
            f"{node.origin}: node.id is '{node.text}', but broker.id is '{broker.text}' ({broker.origin}); they must be the same"
        )
    one = node or broker
    if one is not None:
        both["broker.id"] = broker or one
        both["node.id"] = node or one
    return both
