"""Clients that are slow, silent, greedy or many: the broker's memory stays bounded, and other clients are served.

The bounds apply to resident memory. Nothing is measured in time.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from kafka.protocol.admin import DescribeConfigsRequest

from tests.fuzz.memory import peak, reset_peak, resident
from tests.fuzz.sockets import connect
from tests.support.broker import BrokerProcess
from tests.support.raw import RawConnection
from tests.support.raw_admin import create_topic
from tests.support.raw_log import batch, fetch, fetch_request, produce, produce_request
from tests.support.records import Sample, numbered
from tests.support.server import Server
from tests.support.waiting import until

pytestmark = pytest.mark.process

MIB = 1 << 20
KIB = 1 << 10
TOPIC = "behaved"
FRAME_MAX = 24 * MIB  # socket.request.max.bytes of this broker
QUEUED_MAX = 48 * MIB  # queued.max.request.bytes
POOL_MAX = 64 * MIB  # large buffers that the broker keeps
LARGE = 3 * MIB
# Python returns memory to the system late.
SLACK = 24 * MIB


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = BrokerProcess(Path(tmp_path_factory.mktemp("hostile")), {
        "socket.request.max.bytes": str(FRAME_MAX), "queued.max.request.bytes": str(QUEUED_MAX), "message.max.bytes": str(20 * MIB)})
    made.start()
    create_topic(made, TOPIC)
    create_topic(made, "large")
    with RawConnection(made.address) as connection:
        for _ in range(4):
            assert produce(connection, "large", batch([Sample(b"k", bytes(LARGE), (), 1_700_000_000_000)])).error_code == 0
            assert produce(connection, TOPIC, batch(numbered(1))).error_code == 0
    yield made
    log = made.log()
    assert "Traceback (most recent call last)" not in log, log[-8000:]
    assert " ERROR " not in log, log[-8000:]
    assert made.stop() == 0
    made.close()


@contextmanager
def bounded(server: Server, growth_max: int) -> Iterator[None]:
    """The broker may grow by `growth_max` bytes during the block. At the end others are served, and the connections are closed."""
    open_before = open_files(server)
    reset_peak(server.pid)
    before = resident(server.pid)
    yield
    others_are_served(server)
    growth = peak(server.pid) - before
    assert growth < growth_max, f"the broker grew by {growth >> 10} KiB"
    until(lambda: open_files(server) <= open_before + 2, "the broker has closed its ends")


def others_are_served(server: Server) -> None:
    """Send small requests, and one that is too large for the shared buffer."""
    with RawConnection(server.address) as connection:
        for _ in range(3):
            answer = produce(connection, TOPIC, batch(numbered(1)))
            assert answer.error_code == 0
            assert len(fetch(connection, TOPIC, answer.base_offset).records) == 1
        assert produce(connection, "large", batch([Sample(b"k", bytes(MIB), (), 1_700_000_000_000)])).error_code == 0


def open_files(server: Server) -> int:
    return len(list(Path(f"/proc/{server.pid}/fd").iterdir()))


def announcement(size: int) -> bytes:
    """The beginning of a Produce request of `size` bytes."""
    return struct.pack(">ihhih", size, 0, 9, 1, 4) + b"bomb\0"


@contextmanager
def connections(server: Server, count: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        yield [stack.enter_context(connect(server)) for _ in range(count)]


def test_announced_frames_that_never_arrive(server: Server) -> None:
    with bounded(server, 16 * MIB + SLACK), connections(server, 200) as each:
        for one in each:
            one.sendall(announcement(FRAME_MAX))
        others_are_served(server)


def test_incomplete_frames(server: Server) -> None:
    """More bytes than queued.max.request.bytes, on connections that then stall."""
    with bounded(server, QUEUED_MAX + 2 * FRAME_MAX + POOL_MAX + SLACK), connections(server, 40) as each:
        left = dict.fromkeys(each, FRAME_MAX - MIB)
        for one in each:
            one.setblocking(False)
            one.send(announcement(FRAME_MAX))

        def send_more() -> int:
            """Send as much as the sockets accept; the number of bytes so far."""
            for one in each:
                with suppress(BlockingIOError):
                    left[one] -= one.send(bytes(min(256 * KIB, left[one])))
            return len(each) * (FRAME_MAX - MIB) - sum(left.values())

        until(lambda: send_more() > QUEUED_MAX, "the broker has received queued.max.request.bytes")
        send_more()


def test_one_byte_at_a_time(server: Server) -> None:
    """One byte every few milliseconds, because only the number of pieces matters."""
    request = announcement(400 * KIB) + bytes(60)
    with bounded(server, 8 * MIB + SLACK), connections(server, 100) as each:
        for at in range(len(request)):
            for one in each:
                one.send(request[at : at + 1])
        others_are_served(server)


def test_fetch_responses_that_are_not_read(server: Server) -> None:
    """A gigabyte is requested on each connection; the data stays in files."""
    with bounded(server, 16 * MIB + SLACK), ExitStack() as stack:
        for _ in range(30):
            connection = stack.enter_context(RawConnection(server.address))
            connection._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            for _ in range(100):
                connection.send(fetch_request("large", 0, bytes_max=10 * MIB), 11)
        others_are_served(server)


def test_large_responses_that_are_not_read(server: Server) -> None:
    """Each response has every configuration of the broker with its description."""
    resources = [DescribeConfigsRequest.DescribeConfigsResource(resource_type=2, resource_name=TOPIC, configuration_keys=None)]
    with bounded(server, 30 * (2 * MIB) + SLACK), ExitStack() as stack:
        for _ in range(30):
            connection = stack.enter_context(RawConnection(server.address))
            for _ in range(400):
                connection.send(DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True), 4)
        others_are_served(server)


def test_many_waiting_requests(server: Server) -> None:
    """As many waiting fetches on each connection as it accepts."""
    with bounded(server, 32 * MIB + SLACK), ExitStack() as stack:
        for _ in range(40):
            connection = stack.enter_context(RawConnection(server.address))
            for _ in range(150):
                connection.send(fetch_request("large", 4, bytes_min=1 << 30, wait_ms=60_000), 11)
        others_are_served(server)


def test_many_silent_connections(server: Server) -> None:
    count = 400
    with bounded(server, count * 40 * KIB + SLACK), connections(server, count):
        others_are_served(server)


def test_many_short_connections(server: Server) -> None:
    """Some send nothing, some send an incomplete frame, some send a request and do not wait."""
    ask = produce_request(TOPIC, batch(numbered(1)))
    ask.API_VERSION = 7
    ask.with_header(correlation_id=1, client_id="hasty")
    says = [b"", b"\0", announcement(FRAME_MAX), announcement(MIB) + bytes(100_000), ask.encode(version=7, header=True, framed=True)]
    with bounded(server, 8 * MIB + SLACK):
        for number in range(500):
            with connect(server) as one:
                one.sendall(says[number % len(says)])
