"""What the operator is told of a configuration that can be used: once at the start, and by `txbroker config`."""

from __future__ import annotations

from collections.abc import Iterator

from txbroker.config.listeners import Listeners
from txbroker.config.resolve import BrokerConfig


def advice(config: BrokerConfig, listeners: Listeners) -> Iterator[str]:
    """A sentence for each thing that is not as the configuration may suggest."""
    yield from config.static.warnings
    if listeners.unopened:
        names = ", ".join(str(listener) for listener in listeners.unopened)
        yield f"{_place(config, 'controller.listener.names')}{names} is not opened: this broker has no KRaft controller to listen there"
    voters = config.list("controller.quorum.voters")
    if len(voters) > 1:
        place = _place(config, "controller.quorum.voters")
        yield f"{place}controller.quorum.voters has {len(voters)} members, but this broker joins no quorum: it is a cluster of its own"


def _place(config: BrokerConfig, name: str) -> str:
    origin = config.static.origins.get(name)
    return "" if origin is None else f"{origin}: "
