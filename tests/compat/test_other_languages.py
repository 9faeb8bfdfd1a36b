"""Clients in other languages, with their drivers in compat/: a few features each, and unusual behaviour that brokers must support."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from compat.clients import CLIENTS
from compat.matrix import YES
from compat.running import run_client
from tests.compat.recording import Asked, RecordingProxy
from tests.support.raw_admin import advertised
from tests.support.server import Server, free_port

FETCH, API_VERSIONS = 1, 18
FEATURES = ["gzip", "zstd", "idempotence", "group", "eager", "delete_records", "txn_offsets", "fencing"]


@pytest.fixture
def proxy() -> Iterator[RecordingProxy]:
    made = RecordingProxy()
    yield made
    made.close()


@pytest.fixture
def seen_broker(start_broker: Callable[..., Server], proxy: RecordingProxy) -> Server:
    """A broker that clients can only reach through the proxy."""
    port = free_port()
    server = start_broker({"listeners": f"PLAINTEXT://127.0.0.1:{port}", "advertised.listeners": f"PLAINTEXT://{proxy.address}"})
    proxy.target = ("127.0.0.1", server.port or port)
    return server


def run(client: str, address: str) -> None:
    """Every feature must work; a failure shows the details of the client."""
    row = run_client(CLIENTS[client], address, FEATURES, lambda feature: None)
    assert row.cells == dict.fromkeys(FEATURES, YES), row.details


def test_kafkajs_fetches_without_a_handshake(seen_broker: Server, proxy: RecordingProxy) -> None:
    """kafkajs sends Fetch first on the connection for fetching: it got the versions on another connection."""
    run("kafkajs", proxy.address)
    assert any(asked[0].api_key == FETCH for asked in proxy.connections if asked), proxy.connections


def test_franz_go_retries_an_unsupported_version_of_api_versions(seen_broker: Server, proxy: RecordingProxy) -> None:
    """Its first request is an unsupported version of ApiVersions; it retries on the same connection with the version in the response."""
    _, newest = advertised(seen_broker)[API_VERSIONS]
    run("franz_go", proxy.address)
    first = proxy.connections[0]
    assert first[0].api_key == API_VERSIONS
    assert first[0].version > newest
    assert first[1] == Asked(API_VERSIONS, newest)
