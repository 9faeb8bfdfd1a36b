"""The metrics and the readiness of `load --every`, with the offsets of a real broker."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Callable, Iterator

import pytest

from tests.cli.commands import run
from tests.spark.producing import produce
from tests.support.raw_admin import create_topic
from tests.support.server import Server
from txbroker.console.failures import CommandFailed
from txbroker.spark.load import LoadReport
from txbroker.spark.load_metrics import LAG_S, LoadMetrics, serve
from txbroker.spark.offset_ranges import OffsetRange
from txbroker.spark.snapshot import Snapshot
from txbroker.spark.topic_source import TopicSource

pytestmark = pytest.mark.process

Get = Callable[[str], tuple[int, str]]


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def report(snapshot: Snapshot) -> LoadReport:
    """Of a round that has committed ten offsets of partition 0."""
    return LoadReport("id", "/table", "delta", snapshot, [OffsetRange("t", 0, 0, 10)], [], [], [], [], None)


@pytest.fixture
def source(broker: Server, name: str) -> TopicSource:
    create_topic(broker, name, 3)
    produce(broker, name, 30)
    return TopicSource(broker.address, [name])


@pytest.fixture
def metrics(source: TopicSource, clock: Clock) -> LoadMetrics:
    return LoadMetrics(source.snapshot, clock)


@pytest.fixture
def get(metrics: LoadMetrics) -> Iterator[Get]:
    """The status and the text of a path."""
    (server,) = serve(metrics, ("127.0.0.1", 0))

    def get(path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    yield get
    server.shutdown()
    server.server_close()


def lags(text: str) -> list[str]:
    return [line.rpartition(" ")[2] for line in text.splitlines() if line.startswith("txbroker_load_lag_records{")]


def test_the_lag_is_that_of_now(metrics: LoadMetrics, source: TopicSource, broker: Server, name: str, get: Get, clock: Clock) -> None:
    assert "txbroker_load_lag" not in get("/metrics")[1], "not known before the first round"
    metrics.began()
    clock.now_s += 7
    metrics.ended(report(source.snapshot()))
    status, text = get("/metrics")
    assert status == 200 and lags(text) == ["0.0", "0.0", "0.0"]
    assert "txbroker_load_lag_seconds 0.0" in text and "txbroker_load_complete_timestamp_seconds 1000.0" in text
    assert "txbroker_load_commits_total 1.0" in text and "txbroker_load_rounds_total 1.0" in text
    produce(broker, name, 30)
    assert lags(get("/metrics")[1]) == ["0.0", "0.0", "0.0"], "the brokers are not asked for each scrape"
    clock.now_s += LAG_S
    text = get("/metrics")[1]
    assert lags(text) == ["10.0", "10.0", "10.0"]
    assert f"txbroker_load_lag_seconds {7 + LAG_S}" in text


def test_it_is_ready_while_rounds_succeed(metrics: LoadMetrics, source: TopicSource, get: Get) -> None:
    assert get("/ready") == (503, "no round has ended yet\n")
    metrics.began()
    metrics.ended(report(source.snapshot()))
    assert get("/ready") == (200, "ready\n")
    metrics.unreachable("no connection to broker:9092")
    assert get("/ready") == (503, "no connection to broker:9092\n")
    assert "txbroker_load_retries_total 1.0" in get("/metrics")[1]
    metrics.ended(report(source.snapshot()))
    assert get("/ready?x=1") == (200, "ready\n")
    assert get("/")[0] == 404


def test_a_broker_that_is_away_hides_the_lag_only(source: TopicSource, clock: Clock) -> None:
    def away() -> Snapshot:
        raise CommandFailed("no broker")

    metrics = LoadMetrics(away, clock)
    metrics.began()
    metrics.ended(report(source.snapshot()))
    names = {found.name for found in metrics.registry.collect()}
    assert "txbroker_load_complete_timestamp_seconds" in names and "txbroker_load_lag_records" not in names


def test_an_address_in_use_is_an_error_before_spark_starts(broker: Server, name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    create_topic(broker, name, 1)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        table = tmp_path_factory.mktemp("tables") / "one"
        _, complaint = run("spark", "load", "--bootstrap-server", broker.address, "--topic", name, "--table", str(table), "--every", "1",
                           "--metrics", address, status=2)  # fmt: skip
    assert f"cannot listen on {address} (Address already in use); specify another --metrics" in complaint
