"""The connection of the perf tools, with a server that is no good broker at its other end."""

from __future__ import annotations

import socket
import struct
from typing import Any

import pytest

from txbroker.client.blocking import Closed, NotKafka
from txbroker.client.pipelined import Channel
from txbroker.wire.codec import decode, encode
from txbroker.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

REQUEST = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
VERSION = 4


def asked(answer: bytes) -> tuple[Channel, list[Any]]:
    """A channel whose one request gets this answer, and where that comes to."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        channel = Channel("127.0.0.1", server.getsockname()[1], "c")
        other, _ = server.accept()
    got: list[Any] = []
    parts = encode(REQUEST, VERSION)
    channel.send(HeartbeatRequest, VERSION, parts, 0.0, lambda body: got.append(decode(HeartbeatResponse, VERSION, body)))
    with other:
        other.sendall(answer)
    channel.socket.setblocking(True)
    return channel, got


def frame(body: bytes, correlation_id: int = 1) -> bytes:
    return struct.pack(">ii", len(body) + 4, correlation_id) + body


def test_an_answer() -> None:
    channel, got = asked(frame(b"\0" + b"\0\0\0\0\0\x1b\0"))
    channel.read()
    assert [answer.error_code for answer in got] == [27]
    with pytest.raises(Closed):
        channel.read()
    channel.close()


@pytest.mark.parametrize("answer", [
    pytest.param(b"HTTP/1.0 400 Bad Request", id="HTTP"),
    pytest.param(frame(b"\0" + bytes(7), correlation_id=2), id="another request's"),
    pytest.param(frame(b"\x05"), id="tags that are not there"),
    pytest.param(frame(b"\0\0\0"), id="a body that ends early"),
    pytest.param(frame(b"\0" + bytes(20)), id="a body that goes on"),
])
def test_what_is_no_answer(answer: bytes) -> None:
    channel, got = asked(answer)
    with pytest.raises(NotKafka):
        channel.read()
    assert got == []
    channel.close()
