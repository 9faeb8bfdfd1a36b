"""Checks which configurations of a Kafka cluster this broker supports."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from functools import partial

from txbroker.cluster.zookeeper_migration.import_rules import ConfigChecks
from txbroker.config.alter import replace_broker_configs
from txbroker.config.listener_keys import known_key
from txbroker.config.password_encoder import NotDecoded, Unavailable
from txbroker.config.resolve import BrokerConfig, decoded_password
from txbroker.config.topics import validate_topic_configs
from txbroker.errors import BrokerError, ErrorCode
from txbroker.names import id_to_text, new_topic_id

Configs = Mapping[str, str]


def config_checks(config: BrokerConfig) -> ConfigChecks:
    """The checks for a broker with this configuration."""
    return ConfigChecks(
        topic=lambda configs: _problems(configs, lambda some: validate_topic_configs(config, some)),
        broker=lambda configs: _problems(configs, partial(_check_broker, config, per_broker=True)),
        all_brokers=lambda configs: _problems(configs, partial(_check_broker, config, per_broker=False)),
        new_topic_id=partial(new_topic_id, secrets.token_bytes),
        new_cluster_id=lambda: id_to_text(secrets.token_bytes(16)),
    )


def _check_broker(config: BrokerConfig, configs: Configs, *, per_broker: bool) -> None:
    """BrokerError. Passwords are encrypted, by password.encoder.secret of the brokers that have stored them."""
    replace_broker_configs(config, list(configs.items()), per_broker=per_broker)
    for name, text in configs.items():
        key = known_key(name)
        if key is not None and key.sensitive:
            try:
                decoded_password(text, config.passwords)
            except (NotDecoded, Unavailable) as error:
                raise BrokerError(ErrorCode.INVALID_CONFIG, f"{error}; use the password.encoder keys of Kafka's broker") from None


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
