"""Fixtures for tests against a broker process: which broker, one shared by all, brokers of one's own, fresh topic names."""

from __future__ import annotations

import itertools
import re
import shutil
import signal
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.support.broker import BrokerProcess
from tests.support.cache import Missing
from tests.support.fakes.disk_path import DiskPath
from tests.support.fakes.memory_disk import MemoryDisk
from tests.support.kafka import KafkaOldProcess, KafkaProcess
from tests.support.server import Server, ServerFailed

KINDS: dict[str, type[Server]] = {kind.kind: kind for kind in (BrokerProcess, KafkaProcess, KafkaOldProcess)}
# Whoever uses one of these starts a process.
PROCESS_FIXTURES = frozenset({"broker", "start_broker", "server_directory", "spark"})

_names = itertools.count(1)
_servers = pytest.StashKey[list[tuple[Server, int]]]()  # the brokers of a test, and how much each had logged when it began

# A machine that does other things too is no fault of what is tested.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

# A run in the background may have been told to ignore Ctrl-C, and so would every process that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # as nohup leaves it, brokers would rightly ignore it


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--broker", choices=sorted(KINDS), default=BrokerProcess.kind,
                     help="the broker that the tests with a real process run against; the others are Apache Kafka, to check the tests")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if PROCESS_FIXTURES.intersection(getattr(item, "fixturenames", ())):
            item.add_marker("process")


@pytest.fixture(scope="session")
def server_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A place for brokers' directories, removed at the end: they can be large."""
    directory = tmp_path_factory.mktemp("brokers")
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def shared_broker(request: pytest.FixtureRequest, server_directory: Path) -> Iterator[Server]:
    """The one broker that most tests share; tests take `broker`, which also looks after its log."""
    server = _start(request, server_directory / "shared", {})
    yield server
    status = server.stop() if server.running else None
    server.close()
    assert status == server.stopped_status, f"the broker ended with {status}"


@pytest.fixture
def broker(shared_broker: Server, request: pytest.FixtureRequest) -> Iterator[Server]:
    """The shared broker, running. Fails the test during which it ended, or logged a traceback: a bug, however the client took it."""
    if not shared_broker.running:
        shared_broker.start()
    yield from _watched(shared_broker, request)
    assert shared_broker.running, f"the broker ended:\n{shared_broker.log_tail()}"


@pytest.fixture
def start_broker(request: pytest.FixtureRequest, server_directory: Path) -> Iterator[Callable[..., Server]]:
    """Start brokers of one's own: `start_broker({"key": "value"})`; they are ended after the test."""
    with_watch: list[tuple[Server, Iterator[Server]]] = []

    def start(overrides: dict[str, str] | None = None) -> Server:
        server = _start(request, server_directory / f"own-{next(_names)}", overrides or {})
        watch = _watched(server, request)
        next(watch)
        with_watch.append((server, watch))
        return server

    yield start
    for server, _ in with_watch:
        server.close()
    for server, watch in with_watch:
        next(watch, None)
        shutil.rmtree(server.directory, ignore_errors=True)


@pytest.fixture
def directory() -> DiskPath:
    """An empty directory on a disk in memory, which is `directory.disk`. Tests that need real files take `tmp_path`."""
    return DiskPath(MemoryDisk(), "/data").made()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name that no other test has, for a topic or a group."""
    plain = re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name.removeprefix("test_"))[:80].strip("-")
    return f"{plain}-{next(_names)}"


def _start(request: pytest.FixtureRequest, directory: Path, overrides: dict[str, str]) -> Server:
    server = KINDS[request.config.getoption("--broker")](directory, overrides)
    try:
        server.start()
    except ServerFailed as problem:
        server.close()
        pytest.fail(str(problem), pytrace=False)
    return server


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails shows what its brokers logged meanwhile; what is not installed is said in one sentence, without a trace."""
    report = yield
    if call.excinfo is not None and isinstance(call.excinfo.value, Missing):
        report.longrepr = str(call.excinfo.value)
    elif report.failed:
        for server, start in item.stash.get(_servers, []):
            report.sections.append((f"log of {server.kind}", server.log(start)[-20_000:]))
    return report


def _watched(server: Server, request: pytest.FixtureRequest) -> Iterator[Server]:
    start = server.log_size()
    request.node.stash.setdefault(_servers, []).append((server, start))
    yield server
    if server.kind == BrokerProcess.kind and "Traceback (most recent call last)" in server.log(start):
        pytest.fail(f"the broker logged a traceback:\n{server.log(start)[-20_000:]}", pytrace=False)
