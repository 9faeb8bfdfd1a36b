"""The configuration of each process of `txbroker run --processes N`."""

from __future__ import annotations

import pytest

from tests.config.configs import broker_config
from txbroker.config.process_layout import process_overrides
from txbroker.errors import ConfigError

TWO = "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT\ninter.broker.listener.name=A\nlisteners="


def layout(text: str, processes: int) -> list[dict[str, str]]:
    return process_overrides(broker_config(text), processes, "/socket", 0)


@pytest.mark.parametrize(("text", "processes", "said"), [
    (f"{TWO}A://:19092,B://:19093", 2, "listeners: A://:19092 and B://:19093 need the same port with 2 processes: choose ports that"),
    (f"{TWO}A://127.0.0.1:19094,B://127.0.0.1:19092", 3, "need the same port with 3 processes"),
    (f"{TWO}A://127.0.0.1:19094,B://:19092", 3, "need the same port with 3 processes"),
    ("listeners=PLAINTEXT://:19092\ntxbroker.metrics.port=19094", 3, "txbroker.metrics.port: 19094 is also a port of PLAINTEXT://:19092"),
    ("listeners=PLAINTEXT://127.0.0.1:19092\ntxbroker.metrics.port=19092", 1, "txbroker.metrics.port: 19092 is also a port of"),
])  # fmt: skip
def test_processes_with_the_same_port_are_refused(text: str, processes: int, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        layout(text, processes)


@pytest.mark.parametrize(("text", "processes"), [
    (f"{TWO}A://:19092,B://:19094", 2),
    (f"{TWO}A://:0,B://:0", 2),
    (f"{TWO}A://:0,B://:1", 2),
    (f"{TWO}A://127.0.0.1:19092,B://127.0.0.2:19093", 2),
    ("listeners=PLAINTEXT://:19092\ntxbroker.metrics.port=19094", 2),
    ("listeners=PLAINTEXT://:19092\ntxbroker.metrics.port=19091", 2),
    ("listeners=PLAINTEXT://10.0.0.1:19092\ntxbroker.metrics.port=19093", 2),
    ("listeners=PLAINTEXT://:0\ntxbroker.metrics.port=0", 2),
])  # fmt: skip
def test_other_ports_are_accepted(text: str, processes: int) -> None:
    made = layout(text, processes)
    assert len(made) == processes
