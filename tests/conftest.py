"""Fixtures of all tests: brokers as processes, shared by many tests or of one test alone, fresh names, a directory in memory."""

from __future__ import annotations

import gc
import itertools
import re
import shutil
import signal
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from simulation.memory_disk import MemoryDisk
from tests import tiers
from tests.support.broker import BrokerProcess
from tests.support.cache import Missing
from tests.support.cluster import Cluster
from tests.support.examples import register_profiles
from tests.support.fakes.disk_path import DiskPath
from tests.support.kafka import KafkaOldProcess, KafkaProcess
from tests.support.server import Server, ServerFailed
from txbroker.platform import AUTO, LINUX, PORTABLE, system, use

KINDS: dict[str, type[Server]] = {kind.kind: kind for kind in (BrokerProcess, KafkaProcess, KafkaOldProcess)}
_names = itertools.count(1)
_servers = pytest.StashKey[list[tuple[Server, int]]]()  # the brokers of a test, and the size of each one's log when it began

register_profiles()

# A shell makes programs in the background ignore Ctrl-C, and every process that they start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup makes brokers ignore it

YOUNG_MAX = 10_000  # objects between passes of the garbage collector, as in a broker


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--broker", choices=sorted(KINDS), default=BrokerProcess.kind,
                     help="the broker that the tests with a real process run against; the others are Apache Kafka, to check the tests")
    parser.addoption("--platform", choices=(AUTO, LINUX, PORTABLE), default=AUTO,
                     help="the functions of the operating system that the tests and their brokers use (txbroker.platform)")


def pytest_configure(config: pytest.Config) -> None:
    use(config.getoption("--platform"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    positions: dict[Path, int] = {}
    for item in items:
        fixtures = frozenset(getattr(item, "fixturenames", ()))
        path, _, name = item.nodeid.removeprefix("tests/").partition("::")
        process = item.get_closest_marker("process") is not None
        if tiers.is_extended(path, name, fixtures, process=process):
            item.add_marker("extended")
        if tiers.DIRECTORY in fixtures:
            item.add_marker("process")
        positions[item.path] = min(positions.get(item.path, 100), tiers.position(fixtures, process=process))
    if hasattr(config, "workerinput"):  # one of several processes (pytest-xdist)
        items.sort(key=lambda item: positions[item.path])


def pytest_collectstart() -> None:
    """What is made until all tests are collected lives to the end: garbage collections would take half of the time, and free nothing."""
    gc.disable()


def pytest_collection_finish() -> None:
    """The tests themselves live to the end: garbage collections leave them out."""
    gc.freeze()
    gc.set_threshold(YOUNG_MAX, *gc.get_threshold()[1:])
    gc.enable()


@pytest.fixture(scope="module", autouse=True)
def _no_remains() -> Iterator[None]:
    """Collect what the tests of a file have left, so that its warnings belong to that file.

    Elsewhere they can do harm: a warning contains a traceback, which CPython 3.11 formats with `ast.parse`. If the garbage collector has
    started inside another `ast.parse`, of a test or of pytest, that one raises SystemError.
    """
    yield
    gc.collect()
    gc.freeze()  # also what pytest has kept since the last time: with each file a pass would take longer


@pytest.fixture(scope="session")
def all_server_directories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory for all `server_directory`, which can be large: it is removed at the end."""
    directory = tmp_path_factory.mktemp("brokers")
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="module")
def server_directory(all_server_directories: Path) -> Path:
    """An empty directory for brokers' directories.

    A process of pytest-xdist can take tests of one file, of others, and of the first one again: then fixtures of the file start once more.
    """
    return Path(tempfile.mkdtemp(dir=all_server_directories))


@pytest.fixture(scope="session")
def shared_broker(request: pytest.FixtureRequest, all_server_directories: Path) -> Iterator[Server]:
    """The broker that most tests share. Tests use the fixture `broker`, which also checks its log."""
    server = _start(request, all_server_directories / "shared", {})
    yield server
    status = server.stop() if server.running else None
    server.close()
    assert status == server.stopped_status, f"the broker ended with {status}"


@pytest.fixture
def broker(shared_broker: Server, request: pytest.FixtureRequest) -> Iterator[Server]:
    """The shared broker, running. A test fails if the broker ends or logs a traceback during it, whatever the client received."""
    if not shared_broker.running:
        shared_broker.start()
    yield from _watched(shared_broker, request)
    assert shared_broker.running, f"the broker ended:\n{shared_broker.log_tail()}"


@pytest.fixture
def start_broker(request: pytest.FixtureRequest, server_directory: Path) -> Iterator[Callable[..., Server]]:
    """Starts brokers for this test alone, `start_broker({"key": "value"})`, and ends them after it."""
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
def start_cluster(request: pytest.FixtureRequest, server_directory: Path) -> Iterator[Callable[..., Cluster]]:
    """Starts clusters for this test alone, `start_cluster(overrides)` or `start_cluster(kinds=("txbroker", "kafka-3.9"))`.

    Without `kinds` they have three brokers; with `--broker=kafka-3.9` these are Apache Kafka's.
    """
    clusters: list[Cluster] = []
    watches: list[Iterator[Server]] = []

    def start(overrides: dict[str, str] | None = None, *, kinds: Sequence[str] | None = None, racks: Sequence[str] = ()) -> Cluster:
        ours = request.config.getoption("--broker") == BrokerProcess.kind
        kinds = kinds or (BrokerProcess.kind if ours else KafkaOldProcess.kind,) * 3
        cluster = Cluster(server_directory / f"cluster-{next(_names)}", kinds, overrides, racks)
        clusters.append(cluster)
        for server in cluster.brokers.values():
            watches.append(_watched(server, request))
            next(watches[-1])
        try:
            cluster.start()
        except ServerFailed as problem:
            pytest.fail(str(problem), pytrace=False)
        return cluster

    yield start
    for cluster in clusters:
        cluster.close()
    for watch in watches:
        next(watch, None)
    for cluster in clusters:
        shutil.rmtree(cluster.directory, ignore_errors=True)


@pytest.fixture
def linux() -> None:
    """For a test of what only Linux has: it is skipped with `--platform portable`."""
    if system.name != LINUX:
        pytest.skip("a test of the functions of Linux")


@pytest.fixture
def directory() -> DiskPath:
    """An empty directory on a disk in memory, which is `directory.disk`. Tests that need real files take `tmp_path`."""
    return DiskPath(MemoryDisk(), "/data").made()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for a topic or a group that no other test uses."""
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
    """A failed test shows what its brokers logged. Missing programs and files are reported in one sentence, without a traceback."""
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
