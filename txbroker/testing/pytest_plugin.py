"""The pytest plugin: fixtures of a broker, and the marker `txbroker`. It is loaded in every run of pytest, so it imports only pytest.

Nothing starts unless a test uses a fixture. With pytest-xdist all processes share one broker, which ends with the process that started
them, also when that is killed.
"""

from __future__ import annotations

import os
import sys
import tempfile
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from txbroker.testing.plugin_options import Options, add_options, read_options, warn_of_ignored

if TYPE_CHECKING:
    from txbroker.testing.broker_report import Reports
    from txbroker.testing.kafka import Kafka
    from txbroker.testing.namespaces import Namespace

MARKER = "txbroker"
_MARKED = ("settings", "as_version", "security")  # the arguments of the marker
_WORKER_INPUT = "txbroker"
_options = pytest.StashKey[Options]()
_brokers = pytest.StashKey[list["Kafka"]]()  # that the fixture `txbroker` has given to tests, and that have not ended yet
_reports = pytest.StashKey["Reports"]()
_prefix = pytest.StashKey[str]()  # of the names of a test
_LIVE, _MIXIN = "txbroker.testing.live_brokers", "txbroker.testing.unittest_mixin"  # loaded when a test uses them
_shared = pytest.StashKey[str]()  # the directory of the brokers that processes share, in the process that controls the others


def pytest_addoption(parser: pytest.Parser) -> None:
    """Called by pytest: declare the options."""
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Called by pytest: read the options."""
    about = "the broker of the fixture `txbroker` has these settings, release and security protocol in this test"
    config.addinivalue_line("markers", f"{MARKER}(settings={{...}}, as_version=..., security=...): {about}")
    config.stash[_options] = read_options(config)
    if config.stash[_options].bootstrap_servers is not None and not hasattr(config, "workerinput"):
        warn_of_ignored(config)
    config.stash[_brokers] = []


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """pytest-xdist starts a process: it gets the place where all of them find the shared broker."""
    stash = node.config.stash
    if _shared not in stash:
        stash[_shared] = str(Path(tempfile.gettempdir(), f"txbroker-{os.getpid()}-{uuid.uuid4().hex[:12]}"))
    node.workerinput[_WORKER_INPUT] = {"directory": stash[_shared], "owner": os.getpid()}


def pytest_unconfigure(config: pytest.Config) -> None:
    """Called by pytest at the end: stop the brokers that processes have shared."""
    directory = config.stash.get(_shared, None)
    if directory is not None and Path(directory).exists():
        from txbroker.testing.shared_brokers import stop_all

        stop_all(Path(directory))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Called by pytest before the fixtures of a test: from now on the journal is about this test."""
    if _LIVE in sys.modules:
        _reports_of(item.config).begin(_concerned(item))


@pytest.hookimpl(trylast=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Called by pytest when a test has passed: it fails if one of its rules has never acted, has failed, or cannot be removed."""
    problem = ""
    for kafka in item.config.stash[_brokers]:
        from txbroker.testing.errors import EditError, KitError, UnmatchedRule

        try:
            kafka.end_rules()
        except (KitError, EditError, UnmatchedRule) as error:
            problem = str(error)
    if problem:
        pytest.fail(problem, pytrace=False)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Called by pytest: rules end with their test, also with one that has failed."""
    for kafka in item.config.stash[_brokers]:
        from txbroker.testing.errors import KitError

        with suppress(KitError):  # the test has failed already, and its other fixtures have to end
            kafka.end_rules(check=False)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """Called by pytest: the report of a failed test has the requests of its clients."""
    outcome = yield
    report = outcome.get_result()
    if not report.failed or _LIVE not in sys.modules:
        return
    reports = _reports_of(item.config)
    for sections in reports.of_ended:
        report.sections += sections
    reports.of_ended.clear()
    for kafka in _concerned(item):
        report.sections += reports.of(kafka).sections(item.stash.get(_prefix, None))


def _reports_of(config: pytest.Config) -> Reports:
    """Those of this run, which begin with the first broker."""
    if _reports not in config.stash:
        from txbroker.testing.broker_report import Reports

        config.stash[_reports] = Reports()
    return config.stash[_reports]


def _concerned(item: pytest.Item) -> list[Kafka]:
    """The brokers that run and that the test may use. One that lasts for the session is left out unless the test has it."""
    from txbroker.testing import live_brokers

    of_fixture = item.config.stash[_brokers]
    found = [*of_fixture] if MARKER in getattr(item, "fixturenames", ()) else []
    lasting = [*of_fixture]
    if _MIXIN in sys.modules:
        from txbroker.testing import unittest_mixin

        of_classes = unittest_mixin.brokers()
        lasting += of_classes
        if issubclass(getattr(item, "cls", None) or object, unittest_mixin.KafkaMixin):
            found += of_classes
    return [*found, *(kafka for kafka in live_brokers.started if kafka not in lasting)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test with the marker gets a broker with the marker's settings: a parameter of the fixture, which has the scope of the session."""
    settings: dict[str, object] = {}
    form: dict[str, Any] = {}
    found = False
    for marker in metafunc.definition.iter_markers(MARKER):
        found = True
        unknown = [*map(repr, marker.args), *(f"{name}={value!r}" for name, value in marker.kwargs.items() if name not in _MARKED)]
        own = marker.kwargs.get("settings", {})
        if unknown or not isinstance(own, Mapping):
            problem = f"takes only settings={{key: value}}, as_version= and security=, not {', '.join(unknown) or repr(own)}"
            pytest.fail(f"{metafunc.definition.nodeid}: the marker {MARKER} {problem}", pytrace=False)
        settings = {**own, **settings}  # the nearest marker comes first
        form = {**{name: value for name, value in marker.kwargs.items() if name != "settings"}, **form}
    if not found:
        return
    if MARKER not in metafunc.fixturenames:
        problem = f"has the marker {MARKER}, but does not use the fixture {MARKER}: add it to the arguments, or remove the marker"
        pytest.fail(f"{metafunc.definition.nodeid} {problem}", pytrace=False)
    if not settings and not form:
        return  # the marker only says that the test needs txbroker
    shown = getattr(pytest, "HIDDEN_PARAM", "txbroker")  # since pytest 8.4
    metafunc.parametrize(MARKER, [{"settings": settings, **form}], indirect=True, ids=[shown], scope="session")


@pytest.fixture(scope="session")
def txbroker(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    """A broker for all tests: `txbroker.bootstrap_servers`, `txbroker.create_topic(...)`. See `txbroker.testing.Kafka`."""
    from txbroker.testing.errors import KitError

    problem = ""
    try:
        for kafka in _broker(request.config, **getattr(request, "param", {})):
            request.config.stash[_brokers].append(kafka)
            yield kafka
            request.config.stash[_brokers].remove(kafka)
    except KitError as error:
        problem = str(error)
    if problem:  # outside of the handler: the report then has this alone
        pytest.fail(problem, pytrace=False)


@pytest.fixture
def txbroker_topic(txbroker: Kafka, _txbroker_namespace: Namespace, request: pytest.FixtureRequest) -> str:
    """The name of a new topic of this test, which is deleted after it."""
    return _txbroker_namespace.topic("topic", request.config.stash[_options].partitions)


@pytest.fixture
def txbroker_group(_txbroker_namespace: Namespace) -> str:
    """The name of a group of this test, which is deleted after it unless it still has members."""
    return _txbroker_namespace.group("group")


@pytest.fixture
def _txbroker_namespace(txbroker: Kafka, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    namespace = txbroker.namespace(request.node.name.partition("[")[0])
    request.node.stash[_prefix] = namespace.prefix
    yield namespace
    namespace.close()


@pytest.fixture(scope="session")
def txbroker_factory(request: pytest.FixtureRequest) -> Iterator[Callable[..., Kafka]]:
    """More brokers: `with txbroker_factory(settings={...}) as kafka:`, with the arguments of `Kafka`. All have ended after the session."""
    from txbroker.testing.kafka import Kafka

    options = request.config.stash[_options]
    _reports_of(request.config)
    made: list[Kafka] = []

    def make(*brokers: int, settings: Mapping[str, object] | None = None, **arguments: Any) -> Kafka:
        __tracebackhide__ = True
        if settings is None or isinstance(settings, Mapping):
            settings = {**options.settings, **(settings or {})}
        own = {"start_timeout_s": options.start_timeout_s, "as_version": options.as_version, "security": options.security}
        made.append(Kafka(*brokers, settings=settings, **{**own, **arguments}))
        return made[-1]

    yield make
    for kafka in made:
        kafka.close()


def _broker(
    config: pytest.Config, settings: Mapping[str, object] | None = None, as_version: str | None = None, security: str | None = None
) -> Iterator[Kafka]:
    """The broker with these settings beside those of the options. `as_version` and `security` are in place of those of the options."""
    from txbroker.testing.errors import KitError
    from txbroker.testing.kafka import Kafka

    options = config.stash[_options]
    if options.bootstrap_servers is not None:
        if settings or as_version or security:
            problem = "the settings of a broker that runs already cannot be changed"
            raise KitError(f"{problem}: remove --txbroker-bootstrap-servers, or leave this test out with -m 'not {MARKER}'")
        kafka = Kafka.connect(options.bootstrap_servers)
        for name, partitions in options.topics.items():
            _created_once(kafka, name, partitions)
        yield kafka
        return
    all_settings = {**options.settings, **(settings or {})}
    port = 0 if settings or as_version or security else options.port  # the port is that of the first broker
    as_version, security = as_version or options.as_version, security or options.security
    place = getattr(config, "workerinput", {}).get(_WORKER_INPUT)
    if place is not None and not options.per_worker and Path(f"/proc/{place['owner']}").exists():
        from txbroker.testing.shared_brokers import SharedBroker

        shared = SharedBroker(Path(place["directory"]), place["owner"], all_settings, port, options.topics, as_version, security)
        yield shared.get(options.start_timeout_s)
        return
    if place is not None and port:
        raise KitError(f"each process of pytest-xdist would have a broker on port {port}: remove --txbroker-per-worker, or the port")
    given: dict[str, Any] = {"start_timeout_s": options.start_timeout_s, "as_version": as_version, "security": security}
    with Kafka(port=port, topics=options.topics, settings=all_settings, **given) as kafka:
        yield kafka


def _created_once(kafka: Kafka, name: str, partitions: int) -> None:
    """Create a topic, unless an earlier run, or another process of this one, has created it."""
    from txbroker.client.client_errors import RequestFailed
    from txbroker.errors import ErrorCode

    try:
        kafka.create_topic(name, partitions)
    except RequestFailed as error:
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
