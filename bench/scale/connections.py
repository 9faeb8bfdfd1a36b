"""Idle connections: the memory of each, and their effect on sixteen busy connections."""

from __future__ import annotations

import multiprocessing
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection as Pipe

from bench import requests
from bench.measures import Sample, Settings
from bench.process_tree import CpuMeter, rss_mb
from bench.rawload import Load, run
from bench.requests import BrokerClient, frame
from bench.scale.sweep import Curve, ServerSweep
from tests.support.server import HOST, Server
from txbroker.wire.messages.api_versions import ApiVersionsRequest

BUSY = 16
PARTITIONS = 4
IDLE_S = 3.0


def _hold(port: int, pipe: Pipe) -> None:
    """A process that holds idle connections, each of which has sent one request; the pipe sets their number."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    hello = frame(ApiVersionsRequest(client_software_name="bench", client_software_version="1"))
    held: list[socket.socket] = []
    while True:
        wanted = pipe.recv()
        while len(held) < wanted:
            some = [socket.create_connection((HOST, port), 30) for _ in range(min(100, wanted - len(held)))]
            for one in some:
                one.sendall(hello)
            for one in some:
                (size,) = (int.from_bytes(one.recv(4, socket.MSG_WAITALL)),)
                if not size or len(one.recv(size, socket.MSG_WAITALL)) < size:
                    raise ConnectionError("the broker closed an idle connection")
            held += some
        pipe.send(len(held))


class _Connections:
    def __init__(self, server: Server, settings: Settings, pipe: Pipe, load: Load) -> None:
        self._server = server
        self._settings = settings
        self._pipe = pipe
        self._load = load
        self._size = 0
        self._warm = False
        self._memory_mb = 0.0
        self._grown_mb = 0.0

    def grow(self, size: int) -> None:
        if not self._warm:
            run(Load(**{**vars(self._load), "seconds": self._settings.first_warmup_s}))
            self._warm = True
            time.sleep(1)
            self._memory_mb = rss_mb(self._server.pid)
        self._size = size
        self._pipe.send(size)
        if not self._pipe.poll(300):
            raise TimeoutError(f"{size} connections were not open within 300 s")
        self._pipe.recv()
        self._grown_mb = rss_mb(self._server.pid) - self._memory_mb

    def measure(self) -> Sample:
        cpu = CpuMeter(self._server.pid)
        time.sleep(IDLE_S * self._settings.scale)
        idle = cpu.share() * 1e3
        result = run(self._load, self._server.pid)
        assert result.cpu_us_per_answer is not None
        return {
            "memory per connection": max(0.0, self._grown_mb) * 1e3 / self._size,
            "idle CPU": idle,
            "requests/s": result.answers_per_s,
            "CPU per request": result.cpu_us_per_answer,
            "p50": result.p50_ms,
            "p99": result.p99_ms,
        }

    def afterwards(self) -> Sample:
        return {}


@contextmanager
def _subject(server: Server, settings: Settings) -> Iterator[_Connections]:
    with BrokerClient(server.address) as client:
        topic_id = client.create_topic("busy", PARTITIONS)
    records = requests.batch(1, 100)
    frames = [[frame(requests.produce(topic_id, partition, records))] for partition in range(PARTITIONS)]
    load = Load(HOST, server.port, frames, BUSY, 1, settings.seconds, settings.warmup_s)
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_hold, args=(server.port, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        yield _Connections(server, settings, ours, load)
    finally:
        process.kill()
        process.join()


SWEEP = ServerSweep(
    "connections",
    f"Idle connections, and {BUSY} others that produce one 100-byte record at a time (acks=1)",
    "idle connections",
    (10, 100, 1000, 5000, 10_000),
    (
        Curve("memory per connection", "KB"),
        Curve("idle CPU", "ms/s"),
        Curve("requests/s", "requests/s", 0),
        Curve("CPU per request", "µs", growth_max=1.3),
        Curve("p50", "ms", 2),
        Curve("p99", "ms", 2),
    ),
    _subject,
)
