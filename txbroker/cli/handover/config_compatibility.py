"""Which of the configurations of a Kafka cluster this broker can use."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable, Mapping

from txbroker.cluster.zookeeper_migration.import_rules import Judges
from txbroker.config.alter import replace_broker_configs
from txbroker.config.resolve import BrokerConfig
from txbroker.config.topics import validate_topic_configs
from txbroker.errors import BrokerError
from txbroker.names import RESERVED_TOPIC_IDS, id_to_text

Configs = Mapping[str, str]


def judges(config: BrokerConfig) -> Judges:
    """Those of a broker with this configuration."""
    return Judges(
        topic=lambda configs: _problems(configs, lambda some: validate_topic_configs(config, some)),
        broker=lambda configs: _problems(configs, lambda some: replace_broker_configs(config, list(some.items()), per_broker=True)),
        all_brokers=lambda configs: _problems(configs, lambda some: replace_broker_configs(config, list(some.items()), per_broker=False)),
        new_topic_id=_new_topic_id,
    )


def _problems(configs: Configs, check: Callable[[Configs], object]) -> dict[str, str]:
    """Each key by itself, then all that are left together."""
    found: dict[str, str] = {}
    for key, value in configs.items():
        try:
            check({key: value})
        except BrokerError as error:
            found[key] = str(error)
    left = {key: value for key, value in configs.items() if key not in found}
    try:
        check(left)
    except BrokerError as error:
        found |= dict.fromkeys(left, str(error))
    return found


def _new_topic_id() -> bytes:
    while True:
        made = uuid.UUID(bytes=secrets.token_bytes(16), version=4).bytes
        # Kafka passes over ids whose text begins with a dash, which command lines take for an option.
        if made not in RESERVED_TOPIC_IDS and not id_to_text(made).startswith("-"):
            return made
