"""Checks of values beyond their types: ranges, choices and formats.

A check takes a value of the right type. It returns None if the value is valid, or else the allowed values, to follow "it must be".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from txbroker.config.principals import split_principals
from txbroker.config.zookeeper_address import FORM, parse_zookeeper_address
from txbroker.errors import BrokerError
from txbroker.names import INTERNAL_TOPICS, check_topic_name

Check = Callable[[Any], str | None]


def at_least(low: int) -> Check:
    """A number of at least `low`."""

    def check(value: float) -> str | None:
        return None if value >= low else f"at least {low}"

    return check


def between(low: float, high: float) -> Check:
    """A number from `low` to `high`, inclusive."""

    def check(value: float) -> str | None:
        return None if low <= value <= high else f"from {low} to {high}"

    return check


def one_of(*choices: str) -> Check:
    """One of these texts, case-sensitive."""

    def check(value: str) -> str | None:
        return None if value in choices else f"one of {', '.join(choices)}"

    return check


def each_of(*choices: str) -> Check:
    """A list of these texts."""

    def check(value: tuple[str, ...]) -> str | None:
        return None if all(part in choices for part in value) else f"a list of {', '.join(choices)}"

    return check


def at_least_or_minus_one(low: int) -> Check:
    """A number of at least `low`, or -1."""

    def check(value: int) -> str | None:
        return None if value == -1 or value >= low else f"at least {low}, or -1"

    return check


def not_zero(value: int) -> str | None:
    """A time, or any negative number for no limit (KafkaConfig.logRetentionTimeMillis)."""
    return None if value != 0 else "at least 1, or -1"


def zookeeper_servers(value: str) -> str | None:
    """Servers of ZooKeeper and a path, as its clients read them; empty is none."""
    try:
        if value:
            parse_zookeeper_address(value)
    except ValueError:
        return FORM
    return None


def gzip_level(value: int) -> str | None:
    """1 to 9, or -1 for zlib's default."""
    return None if value == -1 or 1 <= value <= 9 else "from 1 to 9, or -1"


_KAFKA_VERSION = re.compile(r"(0\.(8|9|10|11)|[1-4])\.[0-9]{1,2}(\.[0-9]{1,2})?(-IV[0-9]{1,2})?", re.ASCII)


def kafka_version(value: str) -> str | None:
    """A version of Kafka, such as 3.0 or 3.0-IV1."""
    return None if _KAFKA_VERSION.fullmatch(value) else "a version of Kafka such as 3.0 or 3.0-IV1"


_REPLICA = re.compile(r"([0-9]{1,10}:[0-9]{1,10})?", re.ASCII)


def throttled_replicas(value: tuple[str, ...]) -> str | None:
    """`*` for all replicas, or a list of partition:broker."""
    if value in ((), ("*",)) or all(_REPLICA.fullmatch(part) for part in value):
        return None
    return "* or a list of partition:broker"


_HOST = re.compile(r"[^,\s]+")
_COUNT = re.compile(r"[+-]?[0-9]{1,9}", re.ASCII)


def host_limits(value: str) -> str | None:
    """A comma-separated list of host:count."""
    for host, colon, count in csv_pairs(value):
        if not colon or not _HOST.fullmatch(host) or not _COUNT.fullmatch(count):
            return "a list of host:count"
    return None


def csv_pairs(text: str) -> list[tuple[str, str, str]]:
    """The (key, colon, value) of each part of a comma-separated text of key:value, as Kafka reads it (Csv.parseCsvMap).

    The colon is the last one, and empty if there is none. Empty parts at the end are dropped; others have an empty colon.
    """
    parts = [part.strip() for part in text.split(",")]
    while parts and not parts[-1]:
        parts.pop()
    return [(key.strip(), colon, value.strip()) for key, colon, value in (part.rpartition(":") for part in parts)]


COMPACTION_STRATEGIES = ("offset", "timestamp", "header")


def compaction_strategy(value: str) -> str | None:
    """One of KIP-280's strategies; empty is offset."""
    return None if value in ("", *COMPACTION_STRATEGIES) else f"one of {', '.join(COMPACTION_STRATEGIES)}"


def only(allowed: str, what: str) -> Check:
    """Empty, or one value. `what`: it, for the message."""

    def check(value: object) -> str | None:
        return None if value in ("", allowed) else f"empty or {what}"

    return check


def principals(value: str) -> str | None:
    """Principals of the form Type:name, separated by semicolons."""
    valid = all(":" in user for user in split_principals(value))
    return None if valid else "a list of Type:name, separated by semicolons, such as User:admin;User:CN=broker,O=example"


def topic_name(value: str) -> str | None:
    """A topic that is not an internal one."""
    try:
        check_topic_name(value)
    except BrokerError as error:
        return f"a topic: {error}"
    return f"another topic than the internal one {value}" if value in INTERNAL_TOPICS else None


def unsupported(allowed: str) -> Check:
    """False or empty, for features that this broker does not have. `allowed` says what to write instead."""

    def check(value: object) -> str | None:
        return allowed if value else None

    return check
