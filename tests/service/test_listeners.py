"""The addresses in metadata: several listeners, advertised addresses, wildcards."""

from __future__ import annotations

from collections.abc import Callable

from kafka import KafkaAdminClient

from tests.support.server import HOST, Server, free_port


def advertised(address: str) -> tuple[str, int]:
    """The broker's address in the metadata for a client that connected to `address`."""
    admin = KafkaAdminClient(bootstrap_servers=address)
    try:
        (broker,) = admin.describe_cluster()["brokers"]
        return broker["host"], broker["port"]
    finally:
        admin.close()


def test_each_listener_advertises_its_own_address(start_broker: Callable[..., Server]) -> None:
    inside, outside = free_port(), free_port()
    start_broker(
        {
            "listeners": f"INSIDE://{HOST}:{inside},OUTSIDE://{HOST}:{outside}",
            "advertised.listeners": f"INSIDE://{HOST}:{inside},OUTSIDE://localhost:{outside}",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
            "inter.broker.listener.name": "INSIDE",
        }
    )
    assert advertised(f"{HOST}:{inside}") == (HOST, inside)
    assert advertised(f"{HOST}:{outside}") == ("localhost", outside)


def test_a_wildcard_listener_advertises_the_address_that_was_reached(start_broker: Callable[..., Server]) -> None:
    port = free_port()
    start_broker({"listeners": f"PLAINTEXT://0.0.0.0:{port}"})
    assert advertised(f"127.0.0.1:{port}") == ("127.0.0.1", port)
    assert advertised(f"127.0.0.2:{port}") == ("127.0.0.2", port)


def test_a_wildcard_listener_with_an_advertised_address(start_broker: Callable[..., Server]) -> None:
    port = free_port()
    start_broker({"listeners": f"PLAINTEXT://:{port}", "advertised.listeners": f"PLAINTEXT://localhost:{port}"})
    assert advertised(f"127.0.0.1:{port}") == ("localhost", port)
