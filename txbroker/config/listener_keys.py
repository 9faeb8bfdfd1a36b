"""Keys for single listeners: `listener.name.<listener>.<key>`, for SASL also `listener.name.<listener>.<mechanism>.<key>`.

The name of the listener is in lower case (Kafka's `ListenerName.configPrefix`).
"""

from __future__ import annotations

from dataclasses import replace

from txbroker.config.broker_keys import BROKER_KEYS
from txbroker.config.keys import Key

LISTENER_PREFIX = "listener.name."
CREATION_RATE = "max.connection.creation.rate"

# Keys that a listener can have for itself.
_FAMILIES = ("ssl.", "sasl.", "principal.builder.", "connections.max.reauth.ms", CREATION_RATE)


def listener_prefix(listener: str) -> str:
    """The prefix of the keys of a listener."""
    return f"{LISTENER_PREFIX}{listener.lower()}."


def known_key(name: str) -> Key | None:
    """The key of brokers, or of a single listener, with this name."""
    return BROKER_KEYS.get(name) or listener_key(name)


def listener_key(name: str) -> Key | None:
    """The key of a single listener, with its whole name; None if the name is not one of such a key."""
    base = listener_base(name)
    return replace(BROKER_KEYS[base], name=name) if base else None


def listener_base(name: str) -> str:
    """The key that a key of a single listener overrides; empty if the name is not one of such a key."""
    if not name.startswith(LISTENER_PREFIX):
        return ""
    _, dot, rest = name.removeprefix(LISTENER_PREFIX).partition(".")
    while dot:
        if rest in BROKER_KEYS and rest.startswith(_FAMILIES):
            return rest
        _, dot, rest = rest.partition(".")
    return ""


def is_ignored_jaas(name: str) -> bool:
    """Whether this is a login configuration without listener and mechanism, which brokers ignore."""
    if not name.endswith("sasl.jaas.config"):
        return False
    named = name.removeprefix(LISTENER_PREFIX).removesuffix("sasl.jaas.config")
    return not name.startswith(LISTENER_PREFIX) or named.count(".") != 2
