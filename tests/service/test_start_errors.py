"""Why a broker cannot start, where the reason is met after its log directories and its metadata file are open."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail
from twisted.python.failure import Failure

from simulation.memory_disk import MemoryDisk
from tests.service.whole_broker import WholeBroker
from tests.support.fakes.environment import fake_environment
from tests.support.fakes.reactor import FakeReactor
from txbroker.action_queue import ActionQueue
from txbroker.broker.service import Broker
from txbroker.broker.settings import limits
from txbroker.cluster.tree.interface import NoSpaceInStore
from txbroker.config.load import load_broker_config
from txbroker.config.properties import parse_overrides
from txbroker.errors import StartError
from txbroker.transport.hub import Hub
from txbroker.transport.interfaces import FrameProtocol
from txbroker.transport.listener import Listener


class FullTree:
    """A tree that can be read, and whose disk is full."""

    def __init__(self, tree: Any) -> None:
        self._tree = tree

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tree, name)

    def _refuse(self, *_: object, **__: object) -> Deferred[Any]:
        return fail(NoSpaceInStore("/", "cannot write /data/metadata: No space left on device"))

    create = set = delete = multi = _refuse


def test_a_disk_that_becomes_full_during_the_start_is_named() -> None:
    reactor = FakeReactor()
    environment = fake_environment(reactor, MemoryDisk(), Random(1))
    full = replace(environment, open_tree=lambda path, on_full, create: FullTree(environment.open_tree(path, on_full, create)))
    config = load_broker_config(parse_overrides(["listeners=PLAINTEXT://127.0.0.1:0", "log.dirs=/data", "broker.id=1"], {}))
    outcome: list[object] = []
    Broker(config, full, ["/data"], outcome.append).start().addBoth(outcome.append)
    reactor.advance(10)
    (failure,) = outcome
    assert isinstance(failure, Failure) and failure.check(StartError)
    assert failure.getErrorMessage() == "the disk is full: cannot write /data/metadata: No space left on device; free space there"


def test_a_port_in_use_is_found_before_anything_is_written(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(StartError, match=rf"cannot listen on 127\.0\.0\.1:{port}: Address already in use; stop what uses the port"):
            WholeBroker([tmp_path / "data"], f"listeners=PLAINTEXT://127.0.0.1:{port}")
        assert not (tmp_path / "data").exists()


def test_the_check_of_a_port_lets_no_client_connect() -> None:
    """Brokers are suspected by their refused connections: during a start, connections must be refused."""
    reactor = FakeReactor()
    hub = Hub(reactor, limits(load_broker_config({})), lambda job: fail(RuntimeError()), ActionQueue(reactor.callLater))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for host in ("127.0.0.1", "localhost", ""):
        Listener(hub, "", host, port, FrameProtocol, backlog=1).check()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), 5)
