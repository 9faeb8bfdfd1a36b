"""Old and new Java clients and Kafka's tools, with their drivers in compat/: features that only they use."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from compat.brokers import changes
from compat.clients import CLIENTS
from compat.matrix import YES
from compat.running import run_client
from tests.support.server import Server


@pytest.mark.parametrize("client", ["java_2_8_2", "java_4_3_1"])
def test_a_java_client(broker: Server, client: str) -> None:
    tried = ["topics", "lz4", "eager", "cooperative", "static", "configs", "groups", "reset", "topic_ids", "long_poll", "large"]
    row = run_client(CLIENTS[client], broker.address, tried, lambda feature: None)
    assert row.cells == dict.fromkeys(tried, YES), row.details


def test_a_java_client_survives_a_restart(start_broker: Callable[..., Server]) -> None:
    server = start_broker()
    row = run_client(CLIENTS["java_4_3_1"], server.address, ["reconnect"], lambda feature: None, changes(server))
    assert row.cells == {"reconnect": YES}, row.details


def test_kafkas_tools(broker: Server) -> None:
    tried = ["configs", "consumer-groups", "get-offsets", "delete-records", "log-dirs", "broker-api-versions"]
    row = run_client(CLIENTS["tools_4_3_1"], broker.address, tried, lambda feature: None)
    assert row.cells == dict.fromkeys(tried, YES), row.details
