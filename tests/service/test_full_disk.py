"""A broker whose only disk is full: responses, commands and /readyz name the reason, and writes work again when there is space."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest
from kafka.protocol.producer import InitProducerIdRequest

from tests.cli.commands import run
from tests.metrics.scraping import ON, get
from tests.support.raw import RawConnection
from tests.support.raw_admin import create_topic, until_leaders
from tests.support.raw_log import batch, fetch, produce, produce_request
from tests.support.records import numbered, numbers
from tests.support.server import Server, ServerFailed
from tests.support.small_disk import ballast, small_disk
from tests.support.waiting import until
from txbroker.client import topic_metadata

COORDINATOR_NOT_AVAILABLE, STORAGE_ERROR = 15, 56
FULL = "No space left on device"
PERF_PRODUCE = ("perf-produce", "--topic", "t", "--num-records", "1000", "--record-size", "1000", "--command-property")
SMALL_OFFSETS_TOPIC = {"offsets.topic.num.partitions": "1"}


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "small") as mounted:
        yield mounted


@pytest.fixture
def server(start_broker: Callable[..., Server], directory: Path) -> Server:
    server = start_broker(ON | SMALL_OFFSETS_TOPIC | {"log.dirs": str(directory / "data")})
    create_topic(server, "t")
    return server


def test_error_messages_name_a_full_disk(server: Server, directory: Path) -> None:
    heavy = ballast(directory)
    with RawConnection(server.address) as connection:
        # The last page of the log file has space for some small records.
        answer = produce(connection, "t", batch(numbered(1, size=100_000)))
        assert answer.error_code == STORAGE_ERROR
        assert FULL in answer.error_message
        producer = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        assert connection.call(producer, 4).error_code == STORAGE_ERROR
        coordinator = connection.call(FindCoordinatorRequest(key="g", key_type=CoordinatorType.GROUP), 2)
        assert coordinator.error_code == COORDINATOR_NOT_AVAILABLE, "as in Kafka: clients retry"
        assert FULL in coordinator.error_message
        ready = get(server, "/readyz")
        assert (ready.status, ready.body.decode()) == (503, f"log directory {directory / 'data'} is full: free space there\n")
        assert get(server, "/healthz").status == 200
        heavy.unlink()
        until(lambda: get(server, "/readyz").status == 200, "it is ready")
        assert produce(connection, "t", batch(numbered(1, size=100_000))).error_code == 0
        assert connection.call(producer, 4).error_code == 0
        until(lambda: connection.call(FindCoordinatorRequest(key="g", key_type=CoordinatorType.GROUP), 2).error_code == 0, "a coordinator")


def test_readyz_names_a_second_directory_that_is_full_before_a_write_to_it_is_refused(
    start_broker: Callable[..., Server], directory: Path, tmp_path: Path
) -> None:
    server = start_broker(ON | {"log.dirs": f"{tmp_path / 'data'},{directory / 'data'}"})
    assert get(server, "/readyz").status == 200
    heavy = ballast(directory)
    ready = get(server, "/readyz")
    assert (ready.status, ready.body.decode()) == (503, f"log directory {directory / 'data'} is full: free space there\n")
    heavy.unlink()
    assert get(server, "/readyz").status == 200


def test_the_log_names_a_full_disk_that_no_response_can_name(server: Server, directory: Path) -> None:
    heavy = ballast(directory)
    refused = batch(numbered(1, size=100_000))
    for _ in range(20):
        with RawConnection(server.address) as connection:
            connection.send(produce_request("t", refused, acks=0), 8)
            assert connection.is_ended()
    about = [line for line in server.log().splitlines() if "acks=0" in line or "closing the connection" in line]
    assert len(about) == 1 and f"log directory {directory / 'data'}" in about[0] and FULL in about[0]
    heavy.unlink()


def test_offsets_are_not_reset_on_a_full_disk(server: Server, directory: Path) -> None:
    """The coordinator may be loaded before the disk is full or not: the error names the disk, or is Kafka's error of a coordinator."""
    ballast(directory)
    flags = ["--reset-offsets", "--group", "g", "--topic", "t", "--to-latest", "--execute", "--timeout", "0"]
    _, complaint = run("groups", "--bootstrap-server", server.address, *flags, status=1)
    assert any(each in complaint for each in ("the broker's disk is full", "NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS")), complaint


@pytest.mark.parametrize(
    "command",
    [
        ["topics", "--create", "--topic", "new"],
        ["topics", "--delete", "--topic", "t"],
        ["topics", "--alter", "--topic", "t", "--partitions", "3"],
        ["topics", "--alter", "--topic", "t", "--config", "retention.ms=5"],
        ["configs", "--alter", "--topic", "t", "--add-config", "retention.ms=5"],
        ["configs", "--alter", "--broker-defaults", "--add-config", "log.retention.ms=5"],
        ["produce", "--topic", "t", "--producer-property", "delivery.timeout.ms=1000", "--producer-property", "request.timeout.ms=900"],
        ["produce", "--topic", "new", "--producer-property", "max.block.ms=1000"],
        [*PERF_PRODUCE, "acks=1", "delivery.timeout.ms=1000"],
    ],
    ids=" ".join,
)
def test_the_commands_name_a_full_disk(server: Server, directory: Path, command: list[str]) -> None:
    heavy = ballast(directory)
    name, *flags = command
    _, complaint = run(name, "--bootstrap-server", server.address, *flags, stdin="x" * 100_000 + "\n", status=1)
    assert f"txbroker {name}: " in complaint and "the broker's disk is full" in complaint, complaint
    assert str(directory / "data") in complaint
    assert "internal error" not in complaint
    assert name != "perf-produce" or "sending the records again" in complaint, "the reason is printed before the time is over"
    heavy.unlink()

    def works() -> bool:
        """The controller is elected again, and the free space is known."""
        output, _ = run("topics", "--bootstrap-server", server.address, "--create", "--topic", "again", "--if-not-exists", "--json")
        return output == "" or json.loads(output)["action"] == "created"

    assert works()
    run(name, "--bootstrap-server", server.address, *flags, stdin="x" * 100_000 + "\n")


def test_perf_produce_names_a_full_disk_when_it_gets_no_producer_id(
    server: Server, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_metadata, "RETRY_TIMEOUT_S", 1.0)
    ballast(directory)
    name, *flags = PERF_PRODUCE
    _, complaint = run(name, "--bootstrap-server", server.address, *flags, "acks=all", status=1)
    assert complaint.startswith("txbroker perf-produce: the broker did not assign a producer id: ")
    assert f"the broker's disk is full: free space in {directory / 'data'}" in complaint


def test_a_stop_and_a_start_on_a_full_disk(server: Server, directory: Path) -> None:
    with RawConnection(server.address) as connection:
        for start in range(0, 50, 10):
            assert produce(connection, "t", batch(numbered(10, start=start, size=1000))).error_code == 0
    heavy = ballast(directory)
    server.stop()
    assert "Traceback" not in server.log()
    heavy.write_bytes(b"")
    heavy = ballast(directory)  # what the stop freed
    with pytest.raises(ServerFailed, match=f"txbroker: The disk is full: cannot write {directory}.*{FULL}; free space there"):
        server.start()
    heavy.unlink()
    server.start()
    until_leaders(server, "t", 1)
    with RawConnection(server.address) as connection:
        assert numbers(fetch(connection, "t", 0, bytes_max=1 << 20).records) == list(range(50))


def test_a_directory_that_is_offline_is_named(start_broker: Callable[..., Server], tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    server = start_broker(ON | {"log.dirs": f"{tmp_path / 'data'},{blocked}"})
    server.stop()
    shutil.rmtree(blocked)
    blocked.write_text("a file")
    server.start()
    ready = get(server, "/readyz")
    assert ready.status == 503
    assert ready.body.decode().startswith(f"log directory {blocked} is offline (")
    assert ready.body.decode().endswith("): repair it and restart the broker\n")
    assert get(server, "/healthz").status == 200
