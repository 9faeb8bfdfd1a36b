"""The tool that counts the calls of a request."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench import walk
from bench.__main__ import main
from bench.walk import Walk


@pytest.fixture(scope="module")
def walks() -> Iterator[dict[str, Walk]]:
    with walk.in_process() as broker:
        yield {name: walk.measure(broker, name) for name in walk.WALKS}


def modules(counted: Walk) -> set[str]:
    return {call.module for call in counted.calls}


def test_a_walk_begins_with_the_read_of_its_socket(walks: dict[str, Walk]) -> None:
    for name, counted in walks.items():
        first = counted.calls[0]
        assert (first.module, first.function, first.depth) == ("transport/server", "ServerTransport.doRead", 0), name
        assert 0 < counted.modules <= len(counted.calls), name
        assert 0 < counted.changes < len(counted.calls), name


def test_a_walk_has_the_modules_that_serve_the_request(walks: dict[str, Walk]) -> None:
    for name, counted in walks.items():
        assert "log/segment" in modules(counted), name
        assert ("api/produce" in modules(counted)) is (name.startswith("produce") or name == "fetch-woken"), name
        assert ("api/fetch_reading" in modules(counted)) is name.startswith("fetch"), name


def test_more_partitions_and_clients_have_longer_walks(walks: dict[str, Walk]) -> None:
    calls = {name: len(counted.calls) for name, counted in walks.items()}
    assert calls["produce"] < min(calls["produce-together"], calls["produce-12"])
    assert calls["fetch"] < min(calls["fetch-12"], calls["fetch-woken"])


def test_calls_are_the_same_in_each_run(walks: dict[str, Walk]) -> None:
    with walk.in_process() as broker:
        for name, counted in walks.items():
            assert walk.listing(walk.measure(broker, name)) == walk.listing(counted), name


def test_an_error_of_the_broker_ends_the_count() -> None:
    with walk.in_process() as broker, broker.connect() as client:
        producer = broker.producer(bytes(16))  # the id of no topic
        with pytest.raises(walk.Refused, match="a produce was answered with error 100"):
            producer.check(broker.call(client, producer.request(1)))


def test_the_command(capsys: pytest.CaptureFixture[str], walks: dict[str, Walk]) -> None:
    assert main(["walk", "--list", "produce"]) == 0
    listed, table = capsys.readouterr().out.split("\n\n")
    assert listed.splitlines()[1] == "transport/server                 ServerTransport.doRead"
    assert len(listed.splitlines()) == 1 + len(walks["produce"].calls)
    numbers = (len(walks["produce"].calls), walks["produce"].modules, walks["produce"].changes)
    assert table.splitlines()[1].split() == ["produce", *map(str, numbers)]
    with pytest.raises(SystemExit) as ended:
        main(["walk", "no-such"])
    assert ended.value.code == 2
