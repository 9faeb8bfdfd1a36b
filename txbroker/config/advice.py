"""Warnings about a valid configuration, logged at the start and printed by `txbroker config`."""

from __future__ import annotations

from collections.abc import Iterator

from txbroker.config.listeners import Listeners
from txbroker.config.resolve import BrokerConfig
from txbroker.names import amount


def advice(config: BrokerConfig, listeners: Listeners) -> Iterator[str]:
    """One sentence for each setting that has not the expected effect."""
    yield from config.static.warnings
    if listeners.unopened:
        names = ", ".join(str(listener) for listener in listeners.unopened)
        yield f"{config.static.place(['controller.listener.names'])}{names} is not opened: this broker has no KRaft controller"
    everywhere = [str(listener) for listener in listeners.bound if listener.wildcard and listener.protocol == "PLAINTEXT"]
    if everywhere:
        place = config.static.place(["listeners"])
        yield (
            f"{place}{' and '.join(everywhere)} {'is' if len(everywhere) == 1 else 'are'} on all addresses, without TLS, SASL and "
            "ACLs: every host that reaches the port can read and write; name one address in listeners, or restrict the port by a firewall"
        )
    voters = config.list("controller.quorum.voters")
    if len(voters) > 1:
        place = config.static.place(["controller.quorum.voters"])
        yield (
            f"{place}controller.quorum.voters has {amount(len(voters), 'member')}, but this broker does not join a KRaft quorum: "
            "it is a separate cluster"
        )
