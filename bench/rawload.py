"""A load of prepared requests over raw connections: measures the broker, not a client library.

    from bench.rawload import Load, run
    print(run(Load("127.0.0.1", 9092, [[frame]], connections=16, depth=8, seconds=5), broker_pid))

A frame is a whole request: size, header and body. Connection number i sends the frames in `frames[i % len(frames)]` in turn, with `depth`
requests in flight; responses are counted and discarded. With `ports`, it connects to `ports[i % len(ports)]`; with
`tls`, over TLS. Produce requests with acks=0
have no response and cannot be measured with this.
Nothing is encoded or decoded during the measurement, so one process handles several hundred thousand small responses per second;
`processes` divides the connections. It works with any broker that speaks Kafka's protocol.

From a shell, with frames in files:   rawload.py 127.0.0.1:9092 --connections 16 --depth 8 --seconds 5 FILE...
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import select
import socket
import ssl
import struct
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection as Pipe

from bench.process_tree import CpuMeter, rss_mb

_SIZE = struct.Struct(">i")
_BUFFER_BYTES = 1 << 20
_CONNECT_S = 10.0
_WOULD_BLOCK = BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError
_FIRST_ANSWER_S = 60.0  # a short measurement on a busy machine lasts until it has one answer, at most so much longer


@dataclass(frozen=True)
class Load:
    """What to send, and for how many seconds."""

    host: str
    port: int
    frames: Sequence[Sequence[bytes]]
    connections: int = 16
    depth: int = 8
    seconds: float = 5.0
    warmup_s: float = 1.0
    processes: int = 1
    ports: Sequence[int] = ()
    tls: ssl.SSLContext | None = None


@dataclass(frozen=True)
class Result:
    """Rates in the measured time, latencies of a sample of requests, and CPU and memory of `pids` together if they were given."""

    answers_per_s: float
    bytes_in_per_s: float
    bytes_out_per_s: float
    p50_ms: float
    p99_ms: float
    generator_share: float
    """Cores that this load generator used: close to `processes`, the generator was the bottleneck."""
    cpu_us_per_answer: float | None = None
    cpu_share: float | None = None
    rss_mb: float | None = None


class NoAnswers(Exception):
    """The broker has answered nothing."""


class _Client:
    """One connection: keeps `depth` requests in flight."""

    def __init__(self, load: Load, number: int) -> None:
        frames = load.frames[number % len(load.frames)]
        ports = load.ports or (load.port,)
        self.socket = socket.create_connection((load.host, ports[number % len(ports)]), _CONNECT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if load.tls is not None:
            self.socket = load.tls.wrap_socket(self.socket, server_hostname=load.host)
        self.socket.setblocking(False)
        self.answers = self.bytes_in = self.bytes_out = 0
        self.latencies: list[float] = []
        self.unsent: deque[memoryview] = deque()
        self._frames: Iterator[bytes] = itertools.cycle(frames)
        self._only = frames[0] if len(frames) == 1 else None
        self._sent_at: deque[tuple[float, int]] = deque()
        self._head = b""
        self._body_left = 0
        self.request(load.depth)

    def request(self, count: int) -> None:
        """Send `count` more requests."""
        joined = self._only * count if self._only else b"".join(itertools.islice(self._frames, count))
        self._sent_at.append((time.perf_counter(), count))
        self.unsent.append(memoryview(joined))
        self.write()

    def write(self) -> None:
        """Send as much as the socket accepts."""
        try:
            while self.unsent:
                count = self.socket.send(self.unsent[0])
                self.bytes_out += count
                if count < len(self.unsent[0]):
                    self.unsent[0] = self.unsent[0][count:]
                else:
                    self.unsent.popleft()
        except _WOULD_BLOCK:
            pass

    def read(self, view: memoryview) -> None:
        """Count the responses that have arrived, and send as many requests."""
        try:
            while True:
                end = self.socket.recv_into(view)
                if not end:
                    raise ConnectionError("the broker closed a connection")
                self._count(view, end)
                if not isinstance(self.socket, ssl.SSLSocket):  # OpenSSL gives one record of at most 16 KB, and keeps what came with it
                    return
        except _WOULD_BLOCK:
            return

    def _count(self, view: memoryview, end: int) -> None:
        self.bytes_in += end
        whole = self._whole_answers(view, end)
        if whole:
            self.answers += whole
            self._note_latency(whole)
            self.request(whole)

    def _whole_answers(self, view: memoryview, end: int) -> int:
        position = whole = 0
        while position < end:
            if not self._body_left:
                missing = _SIZE.size - len(self._head)
                head = self._head + bytes(view[position : position + missing])
                position = min(position + missing, end)
                if len(head) < _SIZE.size:
                    self._head = head
                    break
                self._head = b""
                self._body_left = _SIZE.unpack(head)[0]
            step = min(self._body_left, end - position)
            position += step
            self._body_left -= step
            whole += not self._body_left
        return whole

    def _note_latency(self, whole: int) -> None:
        now = time.perf_counter()
        while whole:
            at, count = self._sent_at[0]
            done = min(count, whole)
            whole -= done
            self.latencies.append(now - at)
            if done == count:
                self._sent_at.popleft()
            else:
                self._sent_at[0] = at, count - done


def _work(load: Load, numbers: Sequence[int], pipe: Pipe) -> None:
    clients = {c.socket.fileno(): c for c in (_Client(load, i) for i in numbers)}
    poll = select.epoll()
    for fd in clients:
        poll.register(fd, select.EPOLLIN)
    view = memoryview(bytearray(_BUFFER_BYTES))
    start = time.perf_counter() + load.warmup_s
    _serve(poll, clients, view, start)
    before, cpu = _sums(clients), time.process_time()
    for client in clients.values():
        client.latencies.clear()
    _serve(poll, clients, view, start + load.seconds)
    while _sums(clients)[0] == before[0] and time.perf_counter() < start + load.seconds + _FIRST_ANSWER_S:
        _serve(poll, clients, view, time.perf_counter() + 0.1)
    seconds = time.perf_counter() - start
    share = (time.process_time() - cpu) / seconds
    after = _sums(clients)
    latencies = [latency for client in clients.values() for latency in client.latencies]
    rates = [(b - a) / seconds for a, b in zip(before, after, strict=True)]
    pipe.send(([*rates, share], latencies[:: len(latencies) // 100_000 + 1]))


def _serve(poll: select.epoll, clients: dict[int, _Client], view: memoryview, until: float) -> None:
    writing: set[int] = set()
    while time.perf_counter() < until:
        for fd, event in poll.poll(0.1):
            client = clients[fd]
            if event & select.EPOLLOUT:
                client.write()
            if event & ~select.EPOLLOUT:
                client.read(view)
            if bool(client.unsent) != (fd in writing):
                writing ^= {fd}
                poll.modify(fd, select.EPOLLIN | (select.EPOLLOUT if client.unsent else 0))


def _sums(clients: dict[int, _Client]) -> tuple[int, int, int]:
    all_clients = clients.values()
    return sum(c.answers for c in all_clients), sum(c.bytes_in for c in all_clients), sum(c.bytes_out for c in all_clients)


def run(load: Load, *pids: int) -> Result:
    """Run the load and return its result. Blocks for the warm-up and the measured time. `pids`: the first process of each broker."""
    context = multiprocessing.get_context("fork")
    pipes, workers = [], []
    for first in range(min(load.processes, load.connections)):
        ours, theirs = context.Pipe(duplex=False)
        worker = context.Process(target=_work, args=(load, range(first, load.connections, load.processes), theirs))
        worker.start()
        theirs.close()
        pipes.append(ours)
        workers.append(worker)
    time.sleep(load.warmup_s)
    meters = [CpuMeter(pid) for pid in pids]
    time.sleep(load.seconds)
    share = sum(meter.share() for meter in meters) if meters else None
    outcomes = [pipe.recv() for pipe in pipes]
    for worker in workers:
        worker.join()
    answers, bytes_in, bytes_out, generator_share = (sum(rates) for rates in zip(*(outcome[0] for outcome in outcomes), strict=True))
    latencies = sorted(latency for outcome in outcomes for latency in outcome[1])
    if not latencies:
        raise NoAnswers(f"no request was answered in {load.seconds + _FIRST_ANSWER_S:.0f} s")
    return Result(
        answers_per_s=round(answers, 1),
        bytes_in_per_s=round(bytes_in),
        bytes_out_per_s=round(bytes_out),
        p50_ms=round(latencies[len(latencies) // 2] * 1e3, 3),
        p99_ms=round(latencies[len(latencies) * 99 // 100] * 1e3, 3),
        generator_share=round(generator_share, 2),
        cpu_us_per_answer=round(share / answers * 1e6, 2) if share is not None else None,
        cpu_share=round(share, 3) if share is not None else None,
        rss_mb=round(sum(map(rss_mb, pids)), 1) if pids else None,
    )


def main(arguments: Sequence[str]) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Send prepared requests to a broker, and count the responses.")
    parser.add_argument("address", help="host:port")
    parser.add_argument("files", nargs="+", help="one whole request frame each; every connection sends all of them in turn")
    for name, default in (("connections", 16), ("depth", 8), ("processes", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--warmup", type=float, default=1.0, dest="warmup_s")
    parser.add_argument("--pid", type=int, help="report CPU and memory of this process")
    options = vars(parser.parse_args(arguments))
    host, _, port = options.pop("address").rpartition(":")
    frames = []
    for name in options.pop("files"):
        with open(name, "rb") as file:
            frames.append(file.read())
    pid = options.pop("pid")
    print(asdict(run(Load(host, int(port), [frames], **options), *(() if pid is None else (pid,)))))


if __name__ == "__main__":
    main(sys.argv[1:])
