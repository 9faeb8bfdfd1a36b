"""The tables of keys compared with Kafka's: kafka_3_9_1_keys.tsv was printed by the ConfigDefs of Apache Kafka 3.9.1."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from txbroker.config.broker_keys import BROKER_KEYS, synonyms
from txbroker.config.keys import InvalidValue, Key, Type
from txbroker.config.topic_keys import SERVER_KEYS, TOPIC_KEYS


class Fact(NamedTuple):
    kind: str
    name: str
    type: str
    default: str
    importance: str
    validator: str
    update: str


FACTS = [
    Fact(*line.split("\t"))
    for line in (Path(__file__).parent / "kafka_3_9_1_keys.tsv").read_text().splitlines()
    if not line.startswith("#")
]

# The authorizer's keys are not broker keys in Kafka: its authorizer class reads them. The rates are, but they can only be set dynamically.
ADDED = {"super.users", "allow.everyone.if.no.acl.found", "leader.replication.throttled.rate", "follower.replication.throttled.rate"}
# Keys of this broker, and those of KIP-280, which was accepted but not released.
OWN = ("txbroker.", "log.cleaner.compaction.strategy", "log.cleaner.schedule", "log.retention.precise")
OWN_OF_TOPICS = ("compaction.strategy", "retention.precise", "txbroker.")
# Listeners are dynamic in Kafka, and fixed at the start here.
FIXED = {"listeners", "advertised.listeners", "listener.security.protocol.map"}
# Refused, because their features are not implemented.
REFUSED = {"authorizer.class.name", "remote.log.storage.system.enable", "remote.storage.enable"}


def ours(fact: Fact) -> Key:
    return (BROKER_KEYS if fact.kind == "broker" else TOPIC_KEYS)[fact.name]


def test_the_keys_are_those_of_kafka() -> None:
    assert {fact.name for fact in FACTS if fact.kind == "broker"} | ADDED == {name for name in BROKER_KEYS if not name.startswith(OWN)}
    assert {fact.name for fact in FACTS if fact.kind == "topic"} == {name for name in TOPIC_KEYS if not name.startswith(OWN_OF_TOPICS)}


def test_types_defaults_and_importance() -> None:
    reported = {(fact.kind, fact.name): (fact.type, fact.default, fact.importance) for fact in FACTS}
    kept = {
        (fact.kind, fact.name): (key.type.name, "null" if key.default is None else key.format(key.default), key.importance.name)
        for fact in FACTS
        for key in [ours(fact)]
    }
    assert kept == reported


def test_which_keys_are_dynamic() -> None:
    reported = {fact.name: "read-only" if fact.name in FIXED else fact.update for fact in FACTS if fact.kind == "broker"}
    assert {name: BROKER_KEYS[name].update.value for name in reported} == reported


def probes(fact: Fact) -> tuple[list[str], list[str]]:
    """Values that Kafka's validator accepts, and values that it refuses."""
    bounds = re.fullmatch(r"\[(-?\d+),\.\.\.(?:,(-?[\d.]+))?\](?: or (-1))?", fact.validator)
    if bounds is not None:
        low, high, other = bounds.groups()
        good, bad = [low] + [text for text in (high, other) if text], [str(int(low) - 1 - (other is not None))]
        if high is not None:
            bad.append(str(int(float(high)) + 1))
        good = [text for text in good if "." not in text or fact.type == "DOUBLE"]
        return good, [text for text in bad if text != "-1" or other is None]
    choices = re.fullmatch(r"\[(\w+(?:, \w+)*)\]", fact.validator)
    if choices is not None:
        names = choices.group(1).split(", ")
        return names, ["nonsense", names[0].swapcase()]
    if fact.validator == "versions":
        return ["0.8.0", "3.0-IV1", "3.9-IV0"], ["nonsense", "5"]
    return [], []


def test_bounds() -> None:
    for fact in FACTS:
        good, bad = probes(fact)
        for text in good if fact.name not in REFUSED else []:
            ours(fact).parse(text)
        for text in bad:
            with pytest.raises(InvalidValue):
                ours(fact).parse(text)


def test_the_probe_values_are_accepted_and_refused_by_kafka() -> None:
    probed = [fact for fact in FACTS if any(probes(fact))]
    assert len(probed) > 150


def test_defaults_are_valid_values() -> None:
    for key in (*BROKER_KEYS.values(), *TOPIC_KEYS.values()):
        text = key.format(key.default)
        if text is not None:
            assert key.parse(text) == key.default, key.name


def test_descriptions_have_one_or_two_sentences() -> None:
    for key in (*BROKER_KEYS.values(), *TOPIC_KEYS.values()):
        assert key.documentation.endswith("."), key.name
        assert 15 <= len(key.documentation) <= 200, key.name


def test_topic_keys_follow_broker_keys_of_the_same_type() -> None:
    assert set(TOPIC_KEYS) - set(SERVER_KEYS) == {
        "follower.replication.throttled.replicas", "leader.replication.throttled.replicas", "remote.log.copy.disable",
        "remote.log.delete.on.disable", "remote.storage.enable", "txbroker.mirror.source",
    }
    numbers = {Type.INT, Type.LONG}
    for topic, server in SERVER_KEYS.items():
        types = {TOPIC_KEYS[topic].type, *(BROKER_KEYS[synonym.name].type for synonym in synonyms(server))}
        assert len(types) == 1 or types <= numbers, topic
