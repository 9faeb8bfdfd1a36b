"""The listeners with SASL of one broker."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock

from tests.config.configs import broker_config
from txbroker.broker.sasl_listeners import SaslListeners
from txbroker.config.listeners import parse_listeners


class Environment:
    def __init__(self) -> None:
        self.reactor = Clock()
        self.random_bytes = bytes


def test_listeners_keep_the_order_of_the_configuration() -> None:
    """In it they are checked, so that each start names the same mistake, and shown by metrics."""
    names = [*"FEDCBA"]
    config = broker_config(
        f"listeners={','.join(f'{name}://127.0.0.1:{9000 + number}' for number, name in enumerate([*names, 'P']))}\n"
        f"listener.security.protocol.map=P:PLAINTEXT,{','.join(f'{name}:SASL_PLAINTEXT' for name in names)}\n"
        "sasl.enabled.mechanisms=SCRAM-SHA-256\ninter.broker.listener.name=P"
    )
    environment: Any = Environment()
    found = SaslListeners(config, environment, parse_listeners(config).bound).counts()
    assert list(dict.fromkeys(name for name, _, _ in found)) == names
