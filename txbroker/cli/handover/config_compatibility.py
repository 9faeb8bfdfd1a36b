"""Checks which configurations of a Kafka cluster this broker supports."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable, Mapping

from txbroker.cluster.zookeeper_migration.import_rules import ConfigChecks
from txbroker.config.alter import replace_broker_configs
from txbroker.config.resolve import BrokerConfig
from txbroker.config.topics import validate_topic_configs
from txbroker.errors import BrokerError
from txbroker.names import RESERVED_TOPIC_IDS, id_to_text

Configs = Mapping[str, str]


def config_checks(config: BrokerConfig) -> ConfigChecks:
    """The checks for a broker with this configuration."""
    return ConfigChecks(
        topic=lambda configs: _problems(configs, lambda some: validate_topic_configs(config, some)),
        broker=lambda configs: _problems(configs, lambda some: replace_broker_configs(config, list(some.items()), per_broker=True)),
        all_brokers=lambda configs: _problems(configs, lambda some: replace_broker_configs(config, list(some.items()), per_broker=False)),
        new_topic_id=_new_topic_id,
    )


def _problems(configs: Configs, check: Callable[[Configs], object]) -> dict[str, str]:
    """Unusable keys with reasons: each key is checked alone, then the usable ones together."""
    found: dict[str, str] = {}
    for key, value in configs.items():
        try:
            check({key: value})
        except BrokerError as error:
            found[key] = str(error)
    usable = {key: value for key, value in configs.items() if key not in found}
    try:
        check(usable)
    except BrokerError as error:
        found |= dict.fromkeys(usable, str(error))
    return found


def _new_topic_id() -> bytes:
    while True:
        topic_id = uuid.UUID(bytes=secrets.token_bytes(16), version=4).bytes
        # As Kafka's Uuid.randomUuid: a command line would parse an id with a leading dash as an option.
        if topic_id not in RESERVED_TOPIC_IDS and not id_to_text(topic_id).startswith("-"):
            return topic_id
