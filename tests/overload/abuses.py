"""The abuses. Each runs in its own process against a broker: it sets `started`, and runs until `stop` is set.

They use little CPU time, so that delays of other clients come from the broker.
"""

from __future__ import annotations

import selectors
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from kafka.protocol.metadata import ApiVersionsRequest

from tests.support.raw import RawConnection
from tests.support.raw_log import batch, fetch_request, produce_request
from tests.support.records import numbered
from tests.support.server import HOST

# Topics that `others.prepare` creates; SYNCED syncs every append, FULL holds large batches.
SYNCED, FULL, VICTIM = "synced", "full", "victim"
FULL_PARTITIONS = 4
MIB = 1 << 20
KIB = 1 << 10
# The flood comes from its own address, which may have this many connections.
FLOOD_HOST = "127.0.0.2"
FLOOD_ALLOWED = 100
REQUEST_MAX = 104_857_600  # socket.request.max.bytes
REQUEST_MEMORY = REQUEST_MAX  # queued.max.request.bytes, its smallest allowed value
POOL = 64 * MIB  # large buffers that the broker keeps

OVERRIDES = {
    "queued.max.request.bytes": str(REQUEST_MEMORY),
    "max.connections.per.ip.overrides": f"{FLOOD_HOST}:{FLOOD_ALLOWED}",
}


class Event(Protocol):
    """An event of `threading` or `multiprocessing`."""

    def set(self) -> None: ...
    def is_set(self) -> bool: ...
    def wait(self, timeout: float | None = None) -> bool: ...


@dataclass(frozen=True)
class Abuse:
    """One abuse. `memory_mib`: how much the broker may grow; `why`: the sum of limits that gives this number."""

    name: str
    what: str
    run: Callable[[str, Event, Event], None]
    memory_mib: int
    why: str
    refusals: tuple[str, ...] = ()
    """The reasons of `txbroker_refusals` that must be counted."""
    paused: bool = False
    """Whether `txbroker_reading_paused` must rise."""
    idle_ms: int = 600_000
    """connections.max.idle.ms. Short where the broker must close connections soon. Not for slow consumers: while one empties the kernel's
    buffers, its connection looks idle to the broker."""

    @property
    def overrides(self) -> dict[str, str]:
        """The broker's configuration."""
        return {**OVERRIDES, "connections.max.idle.ms": str(self.idle_ms)}


def _encoded(request: object, version: int) -> bytes:
    message: object = request
    message.API_VERSION = version  # type: ignore[attr-defined]
    message.with_header(correlation_id=1, client_id="abuse")  # type: ignore[attr-defined]
    data: bytes = message.encode(version=version, header=True, framed=True)  # type: ignore[attr-defined]
    return data


def _connect(address: str, *, receive_buffer: int = 0, source: str = "") -> socket.socket:
    made = socket.socket()
    if receive_buffer:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    if source:
        made.bind((source, 0))
    made.settimeout(30)
    made.connect((HOST, int(address.rpartition(":")[2])))
    return made


def _fetch(number: int) -> bytes:
    request = fetch_request(FULL, 0, bytes_max=MIB, bytes_min=1)
    request.topics[0].partitions[0].partition = number % FULL_PARTITIONS
    return _encoded(request, 11)


# --- producers at twice the rate of the disk ---

PRODUCERS = 8
RATE_S = 1.0


def too_much_for_the_disk(address: str, started: Event, stop: Event) -> None:
    """Measures the rate of synced appends, then offers twice that rate."""
    frame = _encoded(produce_request(SYNCED, batch(numbered(900, size=1000))), 8)
    with RawConnection(address) as connection:
        begin, count = time.monotonic(), 0
        while time.monotonic() < begin + RATE_S:
            connection.send_bytes(frame)
            connection.receive_frame()
            count += 1
        rate = count * len(frame) / (time.monotonic() - begin)
    sockets = [_connect(address) for _ in range(PRODUCERS)]
    selector = selectors.DefaultSelector()
    unsent: dict[socket.socket, memoryview] = {}
    for one in sockets:
        one.setblocking(False)
        selector.register(one, selectors.EVENT_READ, one)
    started.set()
    begin, offered, turn = time.monotonic(), 0.0, 0
    while not stop.is_set():
        # Each socket has one request in flight. A request that is due and finds no free socket waits for one.
        due = 2 * rate * (time.monotonic() - begin)
        while offered < due and len(unsent) < len(sockets):
            turn += 1
            one = sockets[turn % len(sockets)]
            if one not in unsent:
                unsent[one] = memoryview(frame)
                offered += len(frame)
        for waiting in list(unsent):
            try:
                sent = waiting.send(unsent[waiting])
            except BlockingIOError:
                continue
            unsent[waiting] = unsent[waiting][sent:]
            if not unsent[waiting]:
                del unsent[waiting]
        for key, _ in selector.select(0.005):
            if not key.data.recv(65536):
                raise ConnectionError("the broker closed a producer's connection")


# --- slow consumers ---

SLOW = 500


def slow_consumers(address: str, started: Event, stop: Event) -> None:
    """Each requests a megabyte and reads four kilobytes of it now and then, with small buffers."""
    sockets = [_connect(address, receive_buffer=4 * KIB) for _ in range(SLOW)]
    for number, one in enumerate(sockets):
        one.sendall(_fetch(number) * 2)
        one.setblocking(False)
    started.set()
    while not stop.wait(0.5):
        for one in sockets:
            try:
                if not one.recv(4 * KIB):
                    raise ConnectionError("the broker closed a slow consumer's connection")
            except BlockingIOError:
                continue


# --- one byte a second ---

DRIPPING = 100
DRIPPED_AFTER = 4 * MIB


def one_byte_at_a_time(address: str, started: Event, stop: Event) -> None:
    """Half of the clients send a small request. The others send a request of 50 MB, whose first 4 MB arrive soon: together they hold all
    memory for requests, so the broker must close the connections that stall."""
    small = _encoded(ApiVersionsRequest(client_software_name="x" * 1000, client_software_version="1"), 3)
    large = struct.pack(">ihhi", 50 * MIB, 0, 8, 1) + bytes(DRIPPED_AFTER)
    sockets = [_connect(address) for _ in range(DRIPPING)]
    left = {one: memoryview(large if number % 2 else small) for number, one in enumerate(sockets)}
    soon = set(sockets[1::2])
    for one in sockets:
        one.setblocking(False)
    started.set()
    while not stop.wait(1.0):
        for one, rest in list(left.items()):
            try:
                sent = one.send((rest if one in soon else rest[:1]) or b"\0")
            except BlockingIOError:
                continue  # no memory for it yet
            except OSError:
                del left[one]
                continue
            left[one] = rest[sent:]
            if not left[one]:
                soon.discard(one)


# --- clients that never read ---

DEAF = 30
ASKED = 200


def never_read(address: str, started: Event, stop: Event) -> None:
    """Many requests for a megabyte each, without reading a byte of the responses. Connects again when the broker closes a connection."""
    request = b"".join(_fetch(number) for number in range(ASKED))
    sockets: list[socket.socket] = []
    while not stop.is_set():
        while len(sockets) < DEAF:
            one = _connect(address, receive_buffer=4 * KIB)
            one.sendall(request)
            sockets.append(one)
        started.set()
        stop.wait(0.5)
        sockets = [one for one in sockets if not _is_closed(one)]


def _is_closed(one: socket.socket) -> bool:
    """Whether the broker reset the connection; does not read from it."""
    return one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0


# --- requests of a hundred megabytes ---

HUGE = 6


def huge_requests(address: str, started: Event, stop: Event) -> None:
    """Six connections that send requests of the maximum size, and one that sends larger ones."""
    size = REQUEST_MAX - 200
    head = struct.pack(">qiib", 0, size - 12, 0, 2)  # base offset, length, leader epoch, magic
    frame = _encoded(produce_request(VICTIM, head + bytes(size - len(head))), 8)
    assert len(frame) - 4 <= REQUEST_MAX
    sockets = [_connect(address) for _ in range(HUGE)]
    selector = selectors.DefaultSelector()
    left = {one: memoryview(frame) for one in sockets}
    for one in sockets:
        one.setblocking(False)
        selector.register(one, selectors.EVENT_READ | selectors.EVENT_WRITE, one)
    started.set()
    refused_s = 0.0
    while not stop.is_set():
        for key, events in selector.select(0.1):
            one = key.data
            if events & selectors.EVENT_READ and not one.recv(65536):
                raise ConnectionError("the broker closed the connection of a request that was not too large")
            if events & selectors.EVENT_WRITE:
                left[one] = left[one][one.send(left[one][:MIB]) :] or memoryview(frame)
        if time.monotonic() > refused_s + 1:
            refused_s = time.monotonic()
            with _connect(address) as more:
                more.sendall(struct.pack(">ihhi", 2 * REQUEST_MAX, 0, 8, 1))
                assert more.recv(1) == b"", "a request above socket.request.max.bytes was not refused"


# --- floods of connections ---

FLOODING = 400


def flood(address: str, started: Event, stop: Event) -> None:
    """Connections from one address, far more than it may have, closed and opened again."""
    held: list[socket.socket] = []
    while not stop.is_set():
        for _ in range(50):
            one = socket.socket()
            one.bind((FLOOD_HOST, 0))
            one.setblocking(False)
            one.connect_ex((HOST, int(address.rpartition(":")[2])))
            held.append(one)
        while len(held) > FLOODING:
            held.pop(0).close()
        if len(held) > FLOOD_ALLOWED:
            started.set()
        stop.wait(0.02)


ABUSES = (
    Abuse(
        "disk", f"{PRODUCERS} producers that send twice as much as the disk can sync, 1 MB per request", too_much_for_the_disk,
        (REQUEST_MEMORY + REQUEST_MAX + POOL) // MIB + 32, "queued.max.request.bytes, one frame, the pool, and 32 MiB for everything else",
    ),
    Abuse(
        "slow-consumers", f"{SLOW} consumers that read 8 KB per second of megabytes that they requested", slow_consumers,
        SLOW * 64 * KIB // MIB + 32, "64 KiB per connection, as the data is in files, and 32 MiB for everything else",
    ),
    Abuse(
        "one-byte", f"{DRIPPING} clients that send one byte per second, half of them of requests of 50 MB", one_byte_at_a_time,
        (REQUEST_MEMORY + 50 * MIB + POOL) // MIB + 32,
        "queued.max.request.bytes, one frame, the pool, and 32 MiB for everything else",
        refusals=("stalled_request", "request_memory"), idle_ms=6000,
    ),
    Abuse(
        "never-reads", f"{DEAF} clients that request {ASKED} MB each and read nothing", never_read,
        DEAF * 2 + 32, "2 MiB per connection for queued responses and requests, and 32 MiB for everything else",
        refusals=("replies_not_taken",), paused=True, idle_ms=6000,
    ),
    Abuse(
        "huge-requests", f"{HUGE} clients that send requests of 100 MB, and one that sends larger ones", huge_requests,
        (REQUEST_MEMORY + REQUEST_MAX + POOL) // MIB + 32 + 16 * 4,
        "queued.max.request.bytes, one frame, the pool, growing buffers, and 32 MiB for everything else",
        refusals=("request_memory", "record_too_large", "request_too_large"),
    ),
    Abuse(
        "flood", f"{FLOODING} connections from one address that may have {FLOOD_ALLOWED}, opened again and again", flood,
        32, "32 MiB for everything, with FLOOD_ALLOWED connections",
        refusals=("max_connections_per_ip",),
    ),
)
