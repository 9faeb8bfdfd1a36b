"""Quotas of users, client ids and addresses, as `txbroker configs` describes and alters them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from txbroker.cli import clients
from txbroker.cli.results import Results
from txbroker.console.failures import BadUsage, broker_error
from txbroker.errors import ErrorCode

# The types of entities in flags, in requests, and in Kafka's sentences.
TYPES = {"users": ("user", "user-principal"), "clients": ("client-id", "client-id"), "ips": ("ip", "ip")}
EXACT, DEFAULT, ANY = 0, 1, 2


class Part(NamedTuple):
    """A user, a client id or an address: its type as in flags, and its name; None for the default, "" for each of them."""

    kind: str
    name: str | None

    @property
    def match(self) -> int:
        """How a filter selects it."""
        return DEFAULT if self.name is None else EXACT if self.name else ANY


def parts(arguments: argparse.Namespace) -> list[Part]:
    """What the flags name, if they name users, client ids or addresses; BadUsage."""
    short = [("users", arguments.user), ("clients", arguments.client), ("ips", arguments.ip)]
    found = [Part(kind, name) for kind, name in short if name is not None]
    found += [Part(kind, None) for kind in TYPES if getattr(arguments, f"{kind[:-1]}_defaults")]
    types, names = arguments.entity_type or [], arguments.entity_names or []
    if not found and not set(types) & TYPES.keys():
        return []
    if not set(types) <= TYPES.keys() or arguments.topic or arguments.broker or arguments.broker_defaults:
        raise BadUsage("users, clients and ips cannot be combined with topics, brokers or other entities")
    if len(names) > len(types):
        raise BadUsage("each --entity-name and --entity-default needs an --entity-type")
    if "" in names or "" in (arguments.user, arguments.client, arguments.ip):
        raise BadUsage("--entity-name must not be empty; use --entity-default for the default")
    named: list[str | None] = [*names, *[""] * (len(types) - len(names))]
    found += [Part(kind, name) for kind, name in zip(types, named, strict=True)]
    if len({part.kind for part in found}) < len(found):
        raise BadUsage("name at most one user and one client id, or one address")
    if len(found) > 1 and any(part.kind == "ips" for part in found):
        raise BadUsage("--entity-type ips cannot be combined with users and clients")
    if arguments.all:
        raise BadUsage("--all is not valid for users, clients and ips: their quotas are all shown")
    if arguments.action == "alter" and any(part.match == ANY for part in found):
        raise BadUsage("--alter needs --entity-name or --entity-default for each --entity-type")
    return sorted(found, key=lambda part: list(TYPES).index(part.kind))


def describe(admin: Any, wanted: Sequence[Part], shown: Results) -> None:
    """Show the quotas of the entities that consist of these parts; CommandFailed."""
    from kafka.protocol.admin import DescribeClientQuotasRequest

    components = [(TYPES[part.kind][0], part.match, part.name or None) for part in wanted]
    answer = clients.send(admin, DescribeClientQuotasRequest(components=components, strict=True))
    if answer.error_code != ErrorCode.NONE:
        raise broker_error("the quotas cannot be described", answer.error_code, answer.error_message)
    for entry in answer.entries or ():
        names = {part.entity_type: part.entity_name for part in entry.entity}
        values = {each.key: each.value for each in sorted(entry.values, key=lambda each: str(each.key))}
        entity = ", ".join(_shown(word, names[kind]) for kind, word in TYPES.values() if kind in names)
        listed = ", ".join(f"{key}={value}" for key, value in values.items())
        fields = {kind.replace("-", "_"): name for kind, name in names.items()}
        shown.done(f"Quota configs for {entity} are {listed}", **fields, quotas=values)


def numbers(changes: Mapping[str, str | None]) -> dict[str, float | None]:
    """The values of quotas; BadUsage."""
    return {key: None if value is None else _number(key, value) for key, value in changes.items()}


def alter(admin: Any, changed: Sequence[Part], changes: Mapping[str, float | None], shown: Results) -> None:
    """Set quotas, and remove those that are None; CommandFailed."""
    from kafka.protocol.admin import AlterClientQuotasRequest

    entity = [(TYPES[part.kind][0], part.name) for part in changed]
    ops = [(key, value or 0.0, value is None) for key, value in changes.items()]
    (answer,) = clients.send(admin, AlterClientQuotasRequest(entries=[(entity, ops)], validate_only=False)).entries
    if answer.error_code != ErrorCode.NONE:
        raise broker_error("the quotas were not altered", answer.error_code, answer.error_message)
    first = changed[0]
    of_all = f"Completed updating default config for {first.kind} in the cluster."
    sentence = of_all if first.name is None else f"Completed updating config for {first.kind[:-1]} {first.name}."
    fields = {kind.replace("-", "_"): name for kind, name in entity}
    shown.done(sentence, **fields, quotas=dict(changes))


def _number(key: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise BadUsage(f"the quota {key} must be a number, not {value!r}") from None


def _shown(word: str, name: str | None) -> str:
    return f"the default {word}" if name is None else f"{word} '{name}'"
