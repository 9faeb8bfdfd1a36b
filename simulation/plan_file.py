"""Plans as texts that people can read and change: JSON with one fault, client or setting a line.

A seed is another plan when the code that draws plans has changed. A file is not: what it contains is replayed as it is. `seed` decides the
rest: latencies, what clients send, how much of a disk a loss of power takes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields
from typing import Any

from simulation.bugs import BUGS
from simulation.clients.access_plan import AccessPlan
from simulation.clients.administrator import REQUESTS
from simulation.hosts import OWN_SETTINGS, configuration
from simulation.plan import KINDS, Plan
from simulation.plan_values import BadPlan, from_plain, to_plain
from txbroker.config.topics import validate_topic_configs
from txbroker.errors import BrokerError, ConfigError
from txbroker.names import INTERNAL_TOPICS, TopicPartition, check_topic_name

BROKERS_MAX, PARTITIONS_MAX = 9, 100
DURATION_MAX_S = 3600.0
COUNT_MAX = 1000
RANGES: dict[str, tuple[float, float]] = {  # of the fields of clients
    **dict.fromkeys(("tombstones", "restarts", "again", "aborted", "abandoned", "leaves", "silent"), (0, 1)),
    **dict.fromkeys(("records_max", "batches_max", "members", "replicas", "brokers"), (1, COUNT_MAX)),
    **dict.fromkeys(("timeout_ms", "session_timeout_ms", "rebalance_timeout_ms"), (1, DURATION_MAX_S * 1000)),
    "acks": (-1, 1), "in_flight": (1, 5), "keys": (0, COUNT_MAX), "bytes_max": (1, 2**31 - 1),
    "wait_ms": (0, DURATION_MAX_S * 1000), "versions": (1, 2), "rivals": (1, 2),
}  # fmt: skip
INVARIANTS = tuple(f"I{number}" for number in range(1, 15))


@dataclass(frozen=True, slots=True)
class StoredPlan:
    """A plan in a file. `about`: what it shows. `violates`: the invariant that it violates with its bug; empty if it violates none."""

    plan: Plan
    about: str = ""
    violates: str = ""


def to_text(stored: StoredPlan) -> str:
    """The content of a file."""
    plain = {"about": stored.about, "violates": stored.violates, **to_plain(stored.plan)}
    lines = [f"  {json.dumps(key)}: {_lines(value)}" for key, value in plain.items() if value != ""]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _lines(value: Any) -> str:
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(f"    {json.dumps(one)}" for one in value) + "\n  ]"
    if isinstance(value, dict) and value:
        return "{\n" + ",\n".join(f"    {json.dumps(name)}: {json.dumps(one)}" for name, one in value.items()) + "\n  }"
    return json.dumps(value)


def from_text(text: str) -> StoredPlan:
    """The plan in a file; BadPlan, which names the key."""
    try:
        content = json.loads(text, object_pairs_hook=_object)
    except BadPlan:
        raise
    except (ValueError, RecursionError) as error:  # a number of more than 4,300 digits is a ValueError
        raise BadPlan("", f"it is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise BadPlan("", "it must be an object")
    own = {name: from_plain(str, content.pop(name, ""), name) for name in ("about", "violates")}
    plan: Plan = from_plain(Plan, content, "")
    if own["violates"]:
        _one_of("violates", own["violates"], INVARIANTS)
    _check(plan)
    return StoredPlan(plan, **own)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise BadPlan(name, "is there twice; remove one of them")
        found[name] = value
    return found


def _check(plan: Plan) -> None:
    """What the types of the fields do not say."""
    _in_range("brokers", plan.brokers, 1, BROKERS_MAX)
    _in_range("duration_s", plan.duration_s, 0.001, DURATION_MAX_S)
    _in_range("latency_s", plan.latency_s, 0, DURATION_MAX_S)
    _in_range("session_timeout_s", plan.session_timeout_s, 0.001, DURATION_MAX_S)
    if plan.bug:
        _one_of("bug", plan.bug, BUGS)
    _check_settings(plan)
    if not plan.topics:
        raise BadPlan("topics", "must not be empty")
    names: set[str] = set()
    for at, topic in enumerate(plan.topics):
        try:
            check_topic_name(topic.name)
        except BrokerError as error:
            raise BadPlan(f"topics[{at}].name", str(error)) from None
        if topic.name in names or topic.name in INTERNAL_TOPICS:
            raise BadPlan(f"topics[{at}].name", f"{topic.name} is there twice, or is a topic of the brokers; use another name")
        names.add(topic.name)
        numbers = (topic.partitions, PARTITIONS_MAX), (topic.replicas, plan.brokers), (topic.min_in_sync, topic.replicas)
        if not all(1 <= number <= most for number, most in numbers):
            needed = f"1 to {PARTITIONS_MAX} partitions, as many brokers as replicas, and min_in_sync from 1 to replicas"
            raise BadPlan(f"topics[{at}]", f"needs {needed}")
    for at, fault in enumerate(plan.faults):
        _one_of(f"faults[{at}].kind", fault.kind, KINDS)
        if fault.target >= plan.brokers:
            raise BadPlan(f"faults[{at}].target", f"must be one of the {plan.brokers} brokers")
        _in_range(f"faults[{at}].at_s", fault.at_s, 0, DURATION_MAX_S)
        _in_range(f"faults[{at}].length_s", fault.length_s, 0, DURATION_MAX_S)
        _in_range(f"faults[{at}].detail", fault.detail, 0, 1)
    if plan.left_out is not None and plan.left_out >= plan.brokers:
        raise BadPlan("left_out", f"must be one of the {plan.brokers} brokers")
    _check_clients(plan)


def _check_clients(plan: Plan) -> None:
    known = {TopicPartition(topic.name, index) for topic in plan.topics for index in range(topic.partitions)}
    for key, value in _work(plan):
        if isinstance(value, TopicPartition) and value not in known:
            raise BadPlan(key, f"the plan has no partition {value}; add its topic to topics")
        if key.endswith("_s"):
            _in_range(key, value, 0.001, DURATION_MAX_S)
        if (known_range := RANGES.get(key.rpartition(".")[2])) and isinstance(value, int | float):
            _in_range(key, value, *known_range)
        if value == ():
            raise BadPlan(key, "must not be empty")
    for at, administrator in enumerate(plan.administrators):
        for kind in administrator.work:
            _one_of(f"administrators[{at}].work", kind, REQUESTS)
    if plan.access is not None:
        _check_access(plan, plan.access)


def _check_access(plan: Plan, access: AccessPlan) -> None:
    names = [topic.name for topic in plan.topics]
    if not access.principals or not access.topics:
        raise BadPlan("access", "needs principals and topics")
    for topic in access.topics:
        _one_of("access.topics", topic, names)
    for principal in access.principals:
        if not re.fullmatch("[a-z]{2,20}", principal):  # names of hosts, too: neither those of brokers nor of other clients
            raise BadPlan("access.principals", f"needs names of 2 to 20 small letters, not {principal[:60]!r}")
    _in_range("access.pause_s", access.pause_s, 0.001, DURATION_MAX_S)
    _in_range("access.changing_s", access.changing_s, 0, DURATION_MAX_S)
    _in_range("access.lost", access.lost, 0, 1)


def _check_settings(plan: Plan) -> None:
    for key in plan.settings:
        if key in OWN_SETTINGS:
            raise BadPlan(f"settings.{key}", "is set by the simulation; remove it")
    try:
        config = configuration(1, "zk1:2181", plan.settings)
    except ConfigError as error:
        raise BadPlan("settings", error.problems[0]) from None
    if config.static.unknown:
        raise BadPlan(f"settings.{config.static.unknown[0]}", "is not a key of server.properties; correct or remove it")
    for at, topic in enumerate(plan.topics):
        try:
            validate_topic_configs(config, topic.configs)
        except BrokerError as error:
            raise BadPlan(f"topics[{at}].configs", str(error)) from None


def _work(plan: Plan) -> Iterator[tuple[str, Any]]:
    """All values in the work of clients, with their keys; of a list its elements, too."""
    for part in ("producers", "consumers", "committers", "transactional", "groups", "administrators"):
        for at, client in enumerate(getattr(plan, part)):
            for field in fields(client):
                key, value = f"{part}[{at}].{field.name}", getattr(client, field.name)
                yield key, value
                if isinstance(value, tuple) and not isinstance(value, TopicPartition):
                    yield from ((key, one) for one in value)


def _in_range(key: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:  # false for NaN, too
        raise BadPlan(key, f"must be from {least} to {most}, not {value}")


def _one_of(key: str, value: str, known: Collection[str]) -> None:
    if value not in known:
        raise BadPlan(key, f"{value[:60]!r} is not known; use one of {', '.join(known)}")
