"""The configuration reference, from the tables of keys in `txbroker.config`."""

from __future__ import annotations

from collections.abc import Iterable

from docs.reference_pages.markdown import code, escape, table
from txbroker.config.broker_keys import BROKER_KEYS
from txbroker.config.keys import DOUBLE_MAX, INT_MAX, LONG_MAX, Importance, Key, Type, Update
from txbroker.config.topic_keys import SERVER_KEYS, TOPIC_KEYS

_HEAD = """\
# {title}

This page is generated from the code. {about}

"""
_BROKER = """\
These keys are read from the files of `--config`, with `--env` from `KAFKA_...` environment variables, and from `--override`. They have the
names, types, defaults and bounds of Apache Kafka 3.9; those that begin with `txbroker.` and a few that say so exist here only.
*Update* says whether the key can be altered while the broker runs: `read-only` (no), `per-broker`, or `cluster-wide` (for one broker or
for all).

`txbroker config --print` shows the value of each key, and which file, line, variable or default it comes from.
"""
_TOPIC = """\
These keys are set when a topic is created and can be altered at any time. A topic that does not set a key takes the value of the
*broker key*.
"""
_WITHOUT_EFFECT = """\
## Keys without effect

These keys of Apache Kafka are accepted, checked and reported, so that existing files and tools work, but change nothing in this broker.

"""
_IMPORTANCES = (Importance.HIGH, Importance.MEDIUM, Importance.LOW)
# A value that no check allows, for each type: the check answers with what it allows.
_BAD: dict[Type, tuple[object, ...]] = {
    Type.BOOLEAN: (True, False),
    Type.STRING: ("\0", "x"),
    Type.INT: (-(INT_MAX + 1), INT_MAX, 0),
    Type.SHORT: (-(2**15), 2**15 - 1),
    Type.LONG: (-(LONG_MAX + 1), LONG_MAX, 0),
    Type.DOUBLE: (-DOUBLE_MAX, DOUBLE_MAX),
    Type.LIST: (("\0",),),
}


def valid_values(key: Key) -> str:
    """What a key allows beyond its type, as its error message says it; empty for no bounds."""
    if key.check is None:
        return "true, false" if key.type is Type.BOOLEAN else ""
    for bad in _BAD.get(key.type, ()):
        allowed = key.check(bad)
        if allowed is not None:
            return allowed
    return ""


def shown_default(key: Key) -> str:
    """The default as Kafka prints it, or words for an unset key and for an empty text."""
    text = key.format(key.default)
    return "not set" if text is None else "empty" if text == "" else code(text)


def broker_page() -> str:
    """Every broker key."""
    page = _HEAD.format(title="Broker configuration", about=f"It lists {len(BROKER_KEYS)} keys.") + _BROKER
    effective = [key for key in BROKER_KEYS.values() if key.effective]
    for importance in _IMPORTANCES:
        page += f"\n## {importance.value.capitalize()} importance\n\n"
        page += _definitions((key for key in effective if key.importance is importance), broker=True)
    return page + "\n" + _without_effect(key for key in BROKER_KEYS.values() if not key.effective)


def topic_page() -> str:
    """Every topic key."""
    page = _HEAD.format(title="Topic configuration", about=f"It lists {len(TOPIC_KEYS)} keys.") + _TOPIC
    page += "\n## Keys\n\n" + _definitions((key for key in TOPIC_KEYS.values() if key.effective), broker=False)
    return page + "\n" + _without_effect(key for key in TOPIC_KEYS.values() if not key.effective)


def _definitions(keys: Iterable[Key], *, broker: bool) -> str:
    return "\n".join(_definition(key, broker=broker) for key in keys)


def _definition(key: Key, *, broker: bool) -> str:
    facts = [("Type", key.type.name.lower()), ("Default", shown_default(key))]
    if allowed := valid_values(key):
        facts.append(("Valid values", escape(allowed)))
    if broker:
        facts.append(("Update", _update(key)))
    elif key.name in SERVER_KEYS:
        facts.append(("Broker key", code(SERVER_KEYS[key.name])))
    rows = "".join(f"- {name}: {text}\n" for name, text in facts)
    return f"### {key.name}\n\n{escape(key.documentation)}\n\n{rows}"


def _update(key: Key) -> str:
    return "read-only" if key.update is Update.READ_ONLY else key.update.value


def _without_effect(keys: Iterable[Key]) -> str:
    rows = ([code(key.name), key.type.name.lower(), shown_default(key), escape(valid_values(key))] for key in keys)
    return _WITHOUT_EFFECT + table(("key", "type", "default", "valid values"), rows)
