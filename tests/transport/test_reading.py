"""Receiving frames on real sockets: in any pieces, of any size, without memory for bytes that are only announced."""

from __future__ import annotations

import gc
import hashlib
import os
import socket
import struct
from collections.abc import Callable

import pytest

from tests.transport.harness import Answering, ListenerHarness, frame
from txbroker.transport.hub import SWEEPS_PER_IDLE_TIME
from txbroker.transport.receive import SHARED_BYTES

Make = Callable[..., ListenerHarness]


def digest(received: memoryview) -> list[bytes]:
    return [frame(hashlib.sha1(received).digest())]


def pattern(size: int, seed: int) -> bytes:
    return (hashlib.sha1(b"%d" % seed).digest() * (size // 20 + 1))[:size]


def test_a_frame_that_arrives_byte_by_byte(start: Make) -> None:
    client = start().connect()
    for byte in frame(b"first frame") + frame(b"second frame"):
        client.send(bytes([byte]))
        client.harness.turns(3)
    assert client.answer() == b"first frame"
    assert client.answer() == b"second frame"


def test_many_frames_in_one_read_are_answered_in_order(start: Make) -> None:
    client = start().connect()
    bodies = [b"frame number %08d" % n for n in range(20_000)]
    client.send(b"".join(map(frame, bodies)))
    assert [client.answer() for _ in bodies] == bodies


@pytest.mark.parametrize("size", [9, SHARED_BYTES - 4, SHARED_BYTES - 3, SHARED_BYTES, 1_000_003, 5_000_000])
def test_frames_of_any_size_are_received_unchanged(start: Make, size: int) -> None:
    client = start(digest).connect()
    for turn in range(3):
        body = pattern(size, turn)
        client.send(frame(body) + frame(b"a small one") + frame(body[:-1]))
        for sent in (body, b"a small one", body[:-1]):
            assert client.answer() == hashlib.sha1(sent).digest()


def test_large_frames_of_several_connections_do_not_mix(start: Make) -> None:
    harness = start(digest)
    clients = [harness.connect() for _ in range(5)]
    bodies = [pattern(700_000 + 100_000 * n, n) for n in range(5)]
    rests = [memoryview(frame(body) * 3) for body in bodies]
    while any(rests):
        for n, client in enumerate(clients):
            rests[n] = rests[n][client.send_some(rests[n][: 30_000 + 7_001 * n]) if rests[n] else 0 :]
        harness.turn()
    for client, body in zip(clients, bodies, strict=True):
        assert [client.answer() for _ in range(3)] == [hashlib.sha1(body).digest()] * 3


def test_a_buffer_is_reused_while_busy_and_released_when_idle(start: Make) -> None:
    harness = start(digest, idle_ms_max=200)
    client = harness.connect()
    for seed in range(4):
        client.send(frame(pattern(1 << 20, seed)))
        client.answer()
    pooled = harness.hub.buffers._free_bytes
    assert 1 << 20 <= pooled <= 3 << 20
    tick = harness.hub.tick
    harness.until(lambda: harness.hub.tick >= tick + 2)
    assert harness.hub.buffers._free_bytes == 0


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_announced_bytes_take_no_memory(start: Make) -> None:
    harness = start()
    clients = [harness.connect() for _ in range(40)]
    harness.until(lambda: harness.hub.connections == 40)
    before = resident_bytes()
    for client in clients:
        client.send(struct.pack(">i", 100 << 20) + b"and no more than this")
    harness.until(lambda: harness.hub.buffers.reserved >= 40 * 64 * 1024)
    assert resident_bytes() - before < 4 << 20


def test_beyond_the_budget_connections_wait_for_each_other(start: Make) -> None:
    harness = start(digest, queued_request_bytes_max=1_000_000)
    first, second, third = (harness.connect() for _ in range(3))
    body = frame(pattern(9_000_000, 1))
    first.send(body[:3_000_000])
    harness.until(lambda: harness.hub.buffers.reserved > 3_000_000)
    second_rest, third_rest = memoryview(body), memoryview(body)
    for _ in range(100):
        second_rest = second_rest[second.send_some(second_rest) :]
        third_rest = third_rest[third.send_some(third_rest) :]
        harness.turn()
    assert len(second_rest), "a connection beyond the budget is still read"
    assert len(third_rest), "a connection beyond the budget is still read"
    assert harness.hub.buffers.contended
    assert harness.hub.buffers.reserved <= len(body)
    first.send(body[3_000_000:])
    expected = hashlib.sha1(body[4:]).digest()
    assert first.answer() == expected
    second.send(bytes(second_rest))
    assert second.answer() == expected
    third.send(bytes(third_rest))
    assert third.answer() == expected


def test_a_closed_connection_releases_the_memory_of_its_frame(start: Make) -> None:
    """At once, without a run of the garbage collector."""
    harness = start(digest)
    before = resident_bytes()
    gc.disable()
    try:
        for _ in range(4):
            client = harness.connect()
            client.send(frame(bytes(40 << 20))[: 30 << 20])
            harness.until(lambda: harness.hub.buffers.reserved > 30 << 20)
            client.socket.close()
            harness.until(lambda: not harness.hub.connections)
        assert resident_bytes() - before < 20 << 20
    finally:
        gc.enable()


def test_announced_frames_do_not_block_others(start: Make) -> None:
    harness = start(digest, queued_request_bytes_max=1_000_000)
    for _ in range(10):
        harness.connect().send(struct.pack(">i", 100 << 20) + b"and no more than this")
    harness.turns()
    client = harness.connect()
    client.send(frame(bytes(3_000_000)))
    assert client.answer() == hashlib.sha1(bytes(3_000_000)).digest()


def test_a_connection_that_waits_for_memory_is_not_idle(start: Make) -> None:
    """It is not read meanwhile, whatever its client sends."""
    harness = start(digest, queued_request_bytes_max=1_000_000, idle_ms_max=200)
    first, second = harness.connect(), harness.connect()
    large, rest = frame(pattern(9_000_000, 1)), memoryview(frame(bytes(1_500_000)))
    first.send(large[:3_000_000])
    harness.until(lambda: harness.hub.buffers.reserved > 3_000_000)
    sent, begin, tick = 3_000_000, harness.hub.tick, -1

    def swept() -> bool:
        """For twice the idle time the first connection makes progress, and the second has to wait."""
        nonlocal rest, sent, tick
        rest = rest[second.send_some(rest) :]
        if harness.hub.tick != tick:
            tick = harness.hub.tick
            first.send(large[sent : sent + 100_000])
            sent += 100_000
        return tick >= begin + 2 * SWEEPS_PER_IDLE_TIME

    harness.until(swept)
    assert harness.hub.buffers.contended
    first.send(large[sent:])
    assert first.answer() == hashlib.sha1(large[4:]).digest()
    second.send(bytes(rest))
    assert second.answer() == hashlib.sha1(bytes(1_500_000)).digest()


@pytest.mark.parametrize("dribbling", [False, True], ids=["stops", "dribbles"])
def test_a_connection_that_stalls_in_a_large_frame_while_others_wait_is_closed(
    start: Make, caplog: pytest.LogCaptureFixture, dribbling: bool
) -> None:
    harness = start(digest, queued_request_bytes_max=1_000_000, idle_ms_max=200)
    stalling, waiting = harness.connect(), harness.connect()
    stalling.send(frame(bytes(9_000_000))[:3_000_000])
    harness.until(lambda: harness.hub.buffers.reserved > 3_000_000)
    rest = memoryview(frame(bytes(1_500_000)))

    def sent() -> bool:
        nonlocal rest
        if dribbling:
            stalling.send_some(memoryview(b"x"))
        rest = rest[waiting.send_some(rest) :]
        return not rest

    harness.until(sent)
    assert waiting.answer() == hashlib.sha1(bytes(1_500_000)).digest()
    assert stalling.at_end()
    assert [record.message for record in caplog.records if "no more data for a partial request" in record.message]


def test_a_connection_that_stalls_in_a_large_frame_gets_the_response_in_flight(start: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txbroker.transport.hub.SWEEP_S_MAX", 0.05)
    harness = start(lambda received: None if len(received) < 100 else digest(received), queued_request_bytes_max=1_000_000, idle_ms_max=-1)
    stalling = harness.connect()
    stalling.send(frame(bytes(50)))
    harness.until(lambda: harness.protocols and harness.protocols[0].frames)
    (protocol,) = harness.protocols
    protocol.in_flight = 1
    stalling.send(frame(bytes(9_000_000))[:3_000_000])
    harness.until(lambda: harness.hub.buffers.reserved > 3_000_000)
    waiting = harness.connect()
    rest = memoryview(frame(bytes(1_500_000)))

    def sent() -> bool:
        nonlocal rest
        rest = rest[waiting.send_some(rest) :]
        return not rest

    harness.until(sent)
    assert waiting.answer() == hashlib.sha1(bytes(1_500_000)).digest(), "the memory of the partial frame is free"
    assert harness.hub.closed_for["stalled_request"] == 1
    assert protocol.ended and not protocol.lost
    protocol.finish([frame(b"appended")])
    assert stalling.answer() == b"appended"
    harness.until(stalling.at_end)


def test_a_client_that_sends_no_more_gets_the_response_in_flight(start: Make) -> None:
    """Kafka reads a connection only when the request before is answered, and so does not see its end earlier."""
    harness = start(lambda received: None)
    client = harness.connect()
    client.send(frame(b"a request"))
    harness.until(lambda: harness.protocols and harness.protocols[0].frames)
    (protocol,) = harness.protocols
    protocol.in_flight = 1
    client.socket.shutdown(socket.SHUT_WR)
    harness.until(lambda: protocol.ended)
    protocol.finish([frame(b"appended")])
    assert client.answer() == b"appended"
    harness.until(client.at_end)


def test_a_client_that_sends_no_more_does_not_wait_longer_than_the_idle_time(start: Make) -> None:
    """It may be gone: nothing is sent to it that could fail."""
    harness = start(lambda received: None, idle_ms_max=150)
    client = harness.connect()
    client.send(frame(b"a request"))
    harness.until(lambda: harness.protocols and harness.protocols[0].frames)
    harness.protocols[0].in_flight = 1
    client.socket.shutdown(socket.SHUT_WR)
    harness.until(client.at_end)
    assert harness.hub.closed_for["idle"] == 1


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 7, 1001, 2**31 - 1])
def test_an_invalid_size_closes_the_connection_after_pending_responses(start: Make, size: int) -> None:
    harness = start(request_bytes_max=1000)
    client = harness.connect()
    client.send(frame(b"good frame") + struct.pack(">i", size) + b"whatever" + frame(b"never seen"))
    assert client.answer() == b"good frame"
    harness.until(client.at_end)
    assert harness.protocols[0].sizes == [size]
    assert harness.protocols[0].frames == 1


def test_a_frame_of_the_maximum_size_is_accepted(start: Make) -> None:
    client = start(request_bytes_max=1000).connect()
    client.send(frame(b"x" * 1000))
    assert client.answer() == b"x" * 1000


class Reluctant(Answering):
    """Accepts each frame when it is offered the second time."""

    offered = 0

    def frame_received(self, frame: memoryview) -> bool:
        self.offered += 1
        if self.offered % 2 == 0:
            return super().frame_received(frame)
        self.stop = True
        self.transport._hub.reactor.callLater(0, self.resume)
        return False

    def resume(self) -> None:
        self.stop = False
        self.transport.flush()


@pytest.mark.parametrize("size", [8, 3000, SHARED_BYTES, 3_000_000])
def test_a_frame_that_is_not_accepted_is_offered_again(start: Make, size: int) -> None:
    harness = start()
    harness.build = lambda: Reluctant(digest)
    client = harness.connect()
    bodies = [pattern(size, seed) for seed in range(7)]
    client.send(b"".join(map(frame, bodies)))
    assert [client.answer() for _ in bodies] == [hashlib.sha1(body).digest() for body in bodies]
    assert harness.protocols[0].offered == 14
