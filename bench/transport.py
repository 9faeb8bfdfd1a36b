"""The cost of the transport and of a connection's protocol alone: handlers that do nothing, under a raw pipelined load.

    python -m bench.transport [heartbeat|heartbeat-1|big-in|big-out|small-out|idle ...] [--seconds 5] [--buffers -1]

heartbeat, heartbeat-1: the smallest request and response; 16 connections with 8 requests and 1 request in flight. big-in: produces of
1 MB, whose records are not read. big-out, small-out: fetches of 1 MB, or of 100 bytes, from one file. idle: memory of 5,000 connections.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import socket
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

from bench.process_tree import rss_mb
from bench.rawload import Load, Result, run
from txbroker.api.request_context import RequestContext
from txbroker.log.region import Region
from txbroker.wire.codec import encode_bytes
from txbroker.wire.headers import request_prefix
from txbroker.wire.messages.fetch import FetchableTopicResponse, FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from txbroker.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from txbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from txbroker.wire.schema import Request

FILE_BYTES = 256 << 20
IDLE_CONNECTIONS = 5000


class _Heartbeat:
    request: type[Request] = HeartbeatRequest

    def __call__(self, request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
        return HeartbeatResponse(error_code=0)


class _Produce:
    request: type[Request] = ProduceRequest

    def __call__(self, request: ProduceRequest, context: RequestContext) -> ProduceResponse:
        return ProduceResponse(responses=[])


class _Source:
    path = ""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    def pread(self, position: int, length: int) -> bytes:
        return os.pread(self._fd, length, position)


class _Fetch:
    request: type[Request] = FetchRequest

    def __init__(self, fd: int) -> None:
        self._source = _Source(fd)
        self._next = 0

    def __call__(self, request: FetchRequest, context: RequestContext) -> FetchResponse:
        size = request.max_bytes
        self._next = (self._next + size) % (FILE_BYTES - size)
        records = Region(self._source, self._next, size)
        partition = PartitionData(partition_index=0, error_code=0, high_watermark=0, records=records)
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])


def _serve(ready: Any, buffers: int) -> None:
    from twisted.internet import reactor as real
    from twisted.internet.threads import deferToThread

    from txbroker.action_queue import ActionQueue
    from txbroker.api.registry import Registry
    from txbroker.connection.protocol import Connection
    from txbroker.transport.hub import Hub
    from txbroker.transport.limits import Limits
    from txbroker.transport.listener import Listener

    with tempfile.TemporaryFile() as file:
        for _ in range(FILE_BYTES >> 20):
            file.write(os.urandom(1 << 10) * 1024)
        file.flush()
        registry = Registry([_Heartbeat(), _Produce(), _Fetch(file.fileno())])
        reactor: Any = real
        limits = Limits(send_buffer_bytes=buffers, receive_buffer_bytes=buffers)
        hub = Hub(reactor, limits, deferToThread, ActionQueue(reactor.callLater))
        listener: Any = Listener(hub, "BENCH", "127.0.0.1", 0, lambda: Connection(registry), backlog=1000)
        hub.start()
        listener.startListening()
        ready.send(listener.getHost().port)
        reactor.run()


def _frame(request: Request, version: int) -> bytes:
    body = encode_bytes(request, version)
    return request_prefix(type(request), version, 1, "bench", len(body)) + body


def _fetch(size: int) -> bytes:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=size)
    topics = [FetchTopic(topic="t", partitions=[partition])]
    return _frame(FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=size, topics=topics), 11)


def _produce(size: int) -> bytes:
    partition = PartitionProduceData(index=0, records=bytes(size))
    return _frame(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=[partition])]), 7)


def _idle(load: Load, pid: int) -> str:
    before = rss_mb(pid)
    sockets = [socket.create_connection((load.host, load.port)) for _ in range(IDLE_CONNECTIONS)]
    frame = load.frames[0][0]
    for one in sockets:
        one.sendall(frame)
    for one in sockets:
        one.recv(100)
    after = rss_mb(pid)
    for one in sockets:
        one.close()
    return f"{(after - before) * 1e3 / IDLE_CONNECTIONS:.1f} KB for each of {IDLE_CONNECTIONS} connections"


def _line(name: str, result: Result) -> str:
    return f"{name:14} " + "  ".join(f"{key} {value:,}" for key, value in asdict(result).items() if value is not None)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    heartbeat = _frame(HeartbeatRequest(group_id="group", generation_id=1, member_id="member-1"), 3)
    loads: dict[str, Callable[[Load], list[Load]]] = {
        "heartbeat": lambda load: [load],
        "heartbeat-1": lambda load: [replace(load, depth=1)],
        "big-in": lambda load: [replace(load, frames=[[_produce(1 << 20)]], connections=4, depth=2)],
        "big-out": lambda load: [replace(load, frames=[[_fetch(1 << 20)]], connections=4)],
        "small-out": lambda load: [replace(load, frames=[[_fetch(100)]])],
    }
    parser = argparse.ArgumentParser(description="Measure the transport with handlers that do nothing.")
    parser.add_argument("modes", nargs="*", default=[*loads, "idle"])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--buffers", type=int, default=-1, help="socket.send.buffer.bytes and socket.receive.buffer.bytes")
    options = parser.parse_args(arguments)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    context = multiprocessing.get_context("spawn")
    ready, theirs = context.Pipe(duplex=False)
    server = context.Process(target=_serve, args=(theirs, options.buffers), daemon=True)
    server.start()
    pid = server.pid
    assert pid is not None
    try:
        base = Load("127.0.0.1", ready.recv(), [[heartbeat]], seconds=options.seconds)
        for mode in options.modes:
            if mode == "idle":
                print(f"{mode:14} {_idle(base, pid)}")
            else:
                for load in loads[mode](base):
                    print(_line(f"{mode} {load.connections}x{load.depth}", run(load, pid)), flush=True)
    finally:
        server.kill()


if __name__ == "__main__":
    main()
