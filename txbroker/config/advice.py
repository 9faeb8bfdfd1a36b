"""Warnings about a valid configuration, logged at the start and printed by `txbroker config`."""

from __future__ import annotations

from collections.abc import Iterator

from txbroker.config.listeners import Listeners
from txbroker.config.principals import mistake, split_principals
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
        named = f"{place}{' and '.join(everywhere)} {'is' if len(everywhere) == 1 else 'are'} on all addresses"
        what = "ACLs distinguish the clients only by their addresses" if config.text("authorizer.class.name") else (
            "every host that reaches the port can read and write")  # fmt: skip
        without = "TLS and SASL" if config.text("authorizer.class.name") else "TLS, SASL and ACLs"
        yield f"{named}, without {without}: {what}; name one address in listeners, or restrict the port by a firewall"
    yield from _security(config, listeners)
    voters = config.list("controller.quorum.voters")
    if len(voters) > 1:
        place = config.static.place(["controller.quorum.voters"])
        yield (
            f"{place}controller.quorum.voters has {amount(len(voters), 'member')}, but this broker does not join a KRaft quorum: "
            "it is a separate cluster"
        )


def _security(config: BrokerConfig, listeners: Listeners) -> Iterator[str]:
    """Settings that protect less than they seem to."""
    if config.optional_text("super.users") and not config.text("authorizer.class.name"):
        yield (
            f"{config.static.place(['super.users'])}super.users has no effect without authorizer.class.name: every client may do "
            "everything; set it to kafka.security.authorizer.AclAuthorizer"
        )
    for key in ("super.users", "txbroker.audit.excluded.principals"):
        for principal in split_principals(config.optional_text(key) or ""):
            wrong = mistake(principal)
            if wrong is not None:
                yield (
                    f"{config.static.place([key])}{key} has {principal!r}, which no client is: {wrong}; principals are separated by "
                    "semicolons"
                )
    for listener in listeners.bound:
        values = config.listener(listener.name)
        if listener.protocol == "SASL_PLAINTEXT" and "PLAIN" in values.list("sasl.enabled.mechanisms") and not listener.loopback:
            yield (
                f"{config.static.place(values.names('sasl.enabled.mechanisms'))}{listener} has logins by PLAIN without TLS: every host on "
                "the way can read the passwords; use SASL_SSL, or a SCRAM mechanism"
            )
        if (
            listener.protocol == "SASL_SSL"
            and config.text("ssl.client.auth") != "none"
            and config.prefixed(f"{values.prefix}ssl.client.auth") is None
        ):
            yield (
                f"{config.static.place(['ssl.client.auth'])}ssl.client.auth has no effect on {listener}, where clients log in: set "
                f"{values.prefix}ssl.client.auth to require certificates, too"
            )
