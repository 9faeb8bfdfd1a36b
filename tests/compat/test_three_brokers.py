"""Clients on three brokers whose leaders move in the middle; `make compat-cluster` tries all clients and features."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from compat.brokers import CLUSTER_OVERRIDES, cluster_changes
from compat.clients import CLIENTS
from compat.matrix import YES
from compat.running import run_client
from tests.support.cluster import Cluster


@pytest.mark.parametrize(("client", "features"), [
    ("confluent_kafka", ["idempotence", "group", "cooperative", "static", "delete_records", "topic_ids", "long_poll", "reconnect"]),
    ("franz_go", ["eager", "reset", "long_poll", "reconnect"]),
])
def test_a_client_follows_its_leaders_and_coordinators(start_cluster: Callable[..., Cluster], client: str, features: list[str]) -> None:
    cluster = start_cluster(CLUSTER_OVERRIDES)
    row = run_client(CLIENTS[client], cluster.bootstrap, features, lambda feature: None, cluster_changes(cluster))
    assert row.cells == dict.fromkeys(features, YES), row.details
    cluster.until_in_sync()
