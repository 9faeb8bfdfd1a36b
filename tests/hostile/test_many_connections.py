"""More connections than the process may have descriptors: the broker and its earlier connections keep working."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka.protocol.admin import CreateTopicsRequest

from tests.support.broker import BrokerProcess
from tests.support.raw import RawConnection
from tests.support.raw_admin import create_topic
from tests.support.raw_log import batch, produce
from tests.support.records import numbered
from tests.support.server import HOST
from tests.support.waiting import until

FILES_MAX = 200
FLOOD = 300


class FewFiles(BrokerProcess):
    """A broker with a low limit of descriptors."""

    def _command(self) -> list[str]:
        return ["sh", "-c", f'ulimit -n {FILES_MAX}; exec "$@"', "sh", *super()._command()]


@pytest.fixture
def few_files(request: pytest.FixtureRequest, server_directory: Path) -> Iterator[FewFiles]:
    if request.config.getoption("--broker") != BrokerProcess.kind:
        pytest.skip("how many files Apache Kafka may have is not for this test to say")
    # The whole flood fits into the backlog, so that all of it arrives at once.
    overrides = {"connections.max.idle.ms": "8000", "socket.listen.backlog.size": str(2 * FLOOD)}
    server = FewFiles(server_directory / "few-files", overrides)
    server.start()
    yield server
    server.close()


def test_a_flood_of_connections_leaves_files_for_the_logs(few_files: FewFiles) -> None:
    create_topic(few_files, "before", 3)
    flood = [socket.socket() for _ in range(FLOOD)]
    with RawConnection(few_files.address) as connection:
        for one in flood:
            one.setblocking(False)
            one.connect_ex((HOST, few_files.port))
        until(lambda: "no more connections are accepted" in few_files.log(), "the broker accepts no more")
        assert produce(connection, "before", batch(numbered(1))).error_code == 0
        creatable = CreateTopicsRequest.CreatableTopic(name="after", num_partitions=10, replication_factor=1, assignments=[], configs=[])
        (created,) = connection.call(CreateTopicsRequest(topics=[creatable], timeout_ms=10_000, validate_only=False), 5).topics
        assert created.error_code == 0
        for partition in range(10):
            until(lambda p=partition: produce(connection, "after", batch(numbered(1)), partition=p).error_code == 0, "a leader")
    for one in flood:
        one.close()
    with RawConnection(few_files.address) as connection:
        assert produce(connection, "before", batch(numbered(1))).error_code == 0
    assert "offline" not in few_files.log()
    assert "Traceback" not in few_files.log()
    assert few_files.stop() == few_files.stopped_status
