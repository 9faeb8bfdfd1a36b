"""The code reads every key that is marked as having an effect, and no other key."""

from __future__ import annotations

import re
from pathlib import Path

from txbroker.config.broker_keys import BROKER_KEYS, synonyms
from txbroker.config.topic_keys import SERVER_KEYS, TOPIC_KEYS

# It names the keys that Apache Kafka does not know.
NAMES_FOR_OTHERS = {"export_rules.py"}
OTHERS = ("cli", "client", "testing")
SOURCE = Path(__file__).parents[2] / "txbroker"
# node.id is broker.id; the others, or all of their values but one, are refused at the start.
OTHERWISE = {"node.id", "authorizer.class.name", "remote.log.storage.system.enable"}


# Modules of the configuration that use values.
ALSO = ("listeners.py", "oauthbearer.py", "password_encoder.py", "sasl.py", "zookeeper_login.py")


def asked_for() -> set[str]:
    """The broker keys whose names are written outside the tables, those whose topic keys have an effect, and their synonyms.

    Commands, clients and the plugin of pytest are excluded: they use keys of clients and of other brokers.
    """
    modules = [path for path in SOURCE.rglob("*.py") if path.parent.name != "config" or path.name in ALSO]
    modules = [path for path in modules if path.relative_to(SOURCE).parts[0] not in OTHERS and path.name not in NAMES_FOR_OTHERS]
    named = {name for path in modules for name in re.findall(r'"([a-zA-Z.]+)"', path.read_text("utf-8")) if name in BROKER_KEYS}
    named |= {server for topic, server in SERVER_KEYS.items() if TOPIC_KEYS[topic].effective}
    return {synonym.name for name in named for synonym in synonyms(name)}


def test_broker_keys() -> None:
    effective = {name for name, key in BROKER_KEYS.items() if key.effective}
    assert effective - OTHERWISE - asked_for() == set(), "mark these with effective=False, or use them"
    assert asked_for() - effective == set(), "these have an effect now: remove effective=False"


def test_topic_keys_have_an_effect_where_their_broker_keys_have() -> None:
    for topic, server in SERVER_KEYS.items():
        assert TOPIC_KEYS[topic].effective == BROKER_KEYS[server].effective, topic
