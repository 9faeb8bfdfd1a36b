"""A broker for one client only, so that it can be restarted, and its log belongs to this client."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from compat.page import KAFKA, OURS
from compat.running import Restart
from tests.support.broker import BrokerProcess
from tests.support.kafka import KafkaOldProcess, KafkaProcess
from tests.support.server import Server, ServerFailed

BROKERS: dict[str, type[Server]] = {kind.kind: kind for kind in (BrokerProcess, KafkaProcess, KafkaOldProcess)}
HALVES = {BrokerProcess.kind: OURS, KafkaProcess.kind: KAFKA}  # the brokers in TABLE.md


@dataclass(frozen=True)
class Place:
    """The address of a broker, and how to restart it, if that is possible."""

    address: str
    restart: Restart | None = None


@contextmanager
def broker_for(client: str, kind: str) -> Iterator[Place]:
    """A broker process on a temporary directory, while a client uses it. ServerFailed if it did not start, ended or logged a traceback."""
    with tempfile.TemporaryDirectory(prefix=f"txbroker-compat-{client}-") as directory:
        server = BROKERS[kind](Path(directory))
        try:
            server.start()
            yield Place(server.address, server.restart)
            _check(server, client)
            server.stop()
        finally:
            server.close()


def _check(server: Server, client: str) -> None:
    if not server.running:
        raise ServerFailed(f"the broker ended while {client} used it:\n{server.log_tail()}")
    if server.kind == BrokerProcess.kind and "Traceback (most recent call last)" in server.log():
        raise ServerFailed(f"the broker logged a traceback while {client} used it:\n{server.log_tail()}")
