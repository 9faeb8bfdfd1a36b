"""Sending responses on real sockets: file regions, slow readers, cold files, files that end early, lost connections."""

from __future__ import annotations

import gc
import hashlib
import os
import struct
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.transport.harness import ListenerHarness, frame
from txbroker.log.region import Region
from txbroker.platform import system
from txbroker.transport.hub import SENT_TOGETHER
from txbroker.transport.server import TOGETHER_BYTES_MAX

Make = Callable[..., ListenerHarness]


DATA = b"".join(hashlib.sha1(b"%d" % n).digest() for n in range(250_000))


class File:
    """A file of `size` known bytes."""

    def __init__(self, path: Path, size: int) -> None:
        self.data = DATA[:size]
        self.path = str(path)
        path.write_bytes(self.data)
        self._file = path.open("r+b")

    def fileno(self) -> int:
        return self._file.fileno()

    def pread(self, position: int, length: int) -> bytes:
        return os.pread(self.fileno(), length, position)

    def truncate(self, size: int) -> None:
        os.ftruncate(self.fileno(), size)

    def close(self) -> None:
        self._file.close()


@pytest.fixture
def file(tmp_path: Path) -> Any:
    made = File(tmp_path / "file", 5_000_000)
    yield made
    made.close()


def region_answers(file: File) -> Callable[[memoryview], list[Any]]:
    """Responds to a frame of (position, length) with that region of the file, between a head and a tail."""

    def answer(received: memoryview) -> list[Any]:
        position, length = struct.unpack(">ii", received)
        return [struct.pack(">i", length + 8), b"head", Region(file, position, length), bytearray(b"tail")]

    return answer


def asked(position: int, length: int) -> bytes:
    return frame(struct.pack(">ii", position, length))


@pytest.mark.parametrize("length", [0, 1, 8191, 8192, 100_000, 4_900_000])
def test_a_region_is_sent_between_its_neighbours(start: Make, file: File, length: int) -> None:
    client = start(region_answers(file)).connect()
    client.send(asked(1234, length) * 3)
    for _ in range(3):
        assert client.answer() == b"head" + file.data[1234 : 1234 + length] + b"tail"


def test_regions_of_all_sizes_are_sent_in_order(start: Make, file: File) -> None:
    client = start(region_answers(file)).connect()
    lengths = [(n * 7919) % 20_000 for n in range(500)]
    client.send(b"".join(asked(n * 31, length) for n, length in enumerate(lengths)))
    for n, length in enumerate(lengths):
        assert client.answer()[4:-4] == file.data[n * 31 : n * 31 + length]


@pytest.mark.parametrize("size", [1, 32 * 1024, 33 * 1024, 3_000_000])
def test_memory_of_all_sizes_is_sent(start: Make, size: int) -> None:
    data = os.urandom(size)
    client = start(lambda received: [struct.pack(">i", size + 2), memoryview(data), b"ok"]).connect()
    client.send(frame(b"whatever") * 3)
    for _ in range(3):
        assert client.answer() == data + b"ok"


def test_a_connection_that_does_not_read_is_not_read(start: Make, file: File) -> None:
    harness = start(region_answers(file))
    client = harness.connect(receive_buffer=10_000)
    rest = memoryview(asked(0, 999_999) * 1_000_000)
    for _ in range(200):
        rest = rest[client.send_some(rest) :]
        harness.turn()
    taken = harness.protocols[0].frames
    assert taken < 10
    sent = (1_000_000 * 12 - len(rest)) // 12
    assert taken < sent < 1_000_000, "some requests wait in the socket"
    for _ in range(20):
        assert client.answer() == b"head" + file.data[:999_999] + b"tail"
    assert harness.protocols[0].frames < taken + 30


def test_a_closed_connection_releases_its_files(start: Make, file: File) -> None:
    """At once, without a run of the garbage collector: a deleted segment uses disk space until it is closed."""
    regions: list[weakref.ref[Region]] = []

    class Watched(Region):
        __slots__ = ("__weakref__",)

    def answer(received: memoryview) -> list[Any]:
        region = Watched(file, 0, 4_000_000)
        regions.append(weakref.ref(region))
        return [struct.pack(">i", len(region)), region]

    harness = start(answer)
    gc.disable()
    try:
        client = harness.connect(receive_buffer=10_000)
        client.send(frame(b"whatever") * 5)
        harness.until(lambda: regions, "a frame")
        assert any(region() for region in regions)
        client.reset()
        harness.until(lambda: not any(region() for region in regions), "no region is referenced")
    finally:
        gc.enable()


def test_a_slow_reader_receives_everything_and_does_not_block_others(start: Make, file: File) -> None:
    harness = start(region_answers(file))
    slow, quick = harness.connect(receive_buffer=10_000), harness.connect()
    slow.send(asked(0, 4_000_000) * 4)
    quick.send(asked(5, 10))
    assert quick.answer() == b"head" + file.data[5:15] + b"tail"
    for _ in range(4):
        assert slow.answer() == b"head" + file.data[:4_000_000] + b"tail"


def test_responses_are_sent_after_the_peer_stopped_sending(start: Make, file: File) -> None:
    import socket

    harness = start(region_answers(file))
    client = harness.connect(receive_buffer=10_000)
    client.send(asked(0, 2_000_000) * 2)
    client.socket.shutdown(socket.SHUT_WR)
    for _ in range(2):
        assert client.answer() == b"head" + file.data[:2_000_000] + b"tail"
    harness.until(client.at_end)


def test_a_reset_in_the_middle_of_a_region(start: Make, file: File, caplog: pytest.LogCaptureFixture) -> None:
    harness = start(region_answers(file))
    client = harness.connect(receive_buffer=10_000)
    client.send(asked(0, 4_000_000) * 3)
    harness.until(lambda: harness.protocols and harness.protocols[0].frames)
    client.reset()
    harness.until(lambda: not harness.hub.connections)
    assert harness.protocols[0].lost == 1
    assert not caplog.records


def test_a_file_that_ends_early_closes_the_connection_with_one_log_line(start: Make, file: File, caplog: pytest.LogCaptureFixture) -> None:
    harness = start(region_answers(file))
    gone: list[str] = []
    harness.hub.file_gone = gone.append
    client = harness.connect(receive_buffer=10_000)
    client.send(asked(0, 4_000_000))
    harness.until(lambda: harness.protocols and harness.protocols[0].frames)
    file.truncate(1_000_000)
    harness.until(lambda: client.receive_some() is None)
    assert len(caplog.records) == 1
    assert f"{file.path} is truncated at 1000000 or earlier, before position 4000000" in caplog.records[0].message
    assert gone == [file.path]


def test_a_response_is_finished_before_the_connection_closes(start: Make, file: File) -> None:
    harness = start(region_answers(file))
    client = harness.connect(receive_buffer=10_000)
    client.send(asked(0, 3_000_000))
    harness.until(lambda: harness.protocols and harness.protocols[0].frames)
    harness.protocols[0].transport.loseConnection()
    assert client.answer() == b"head" + file.data[:3_000_000] + b"tail"
    harness.until(client.at_end)


def cold(monkeypatch: pytest.MonkeyPatch, warm: set[int]) -> None:
    """Simulates that only the megabytes in `warm` are in the page cache."""

    def preadv(fd: int, buffers: list[bytearray], position: int, flags: int) -> int:
        assert flags == os.RWF_NOWAIT
        if position >> 20 not in warm:
            raise BlockingIOError
        return real(fd, buffers, position, flags)

    real = system.preadv
    monkeypatch.setattr(system, "preadv", preadv)


@pytest.mark.usefixtures("linux")
@pytest.mark.parametrize("length", [100, 4_500_000])
def test_cold_regions_are_read_by_the_worker_first(start: Make, file: File, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    warm: set[int] = set()
    cold(monkeypatch, warm)
    harness = start(region_answers(file))
    client = harness.connect()
    client.send(asked(0, length))
    other = harness.connect()
    slices = 0
    while not (client.receive_some() and len(client._received) >= 4 + 8 + length):
        harness.turn(0.002)
        if harness.worker.jobs:
            slices += 1
            harness.turns()
            assert len(harness.worker.jobs) == 1
            assert len(client._received) <= 4 + 8 + (slices - 1) * (1 << 20)
            harness.worker.work()
    assert slices == -(-length // (1 << 20))
    assert client.answer() == b"head" + file.data[:length] + b"tail"
    warm.update(range(10))
    other.send(asked(0, 50))
    assert other.answer() == b"head" + file.data[:50] + b"tail"
    assert not harness.worker.jobs


@pytest.mark.usefixtures("linux")
def test_a_worker_that_finishes_after_the_connection_is_closed(start: Make, file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    cold(monkeypatch, set())
    harness = start(region_answers(file))
    client = harness.connect()
    client.send(asked(0, 1_000_000))
    harness.until(lambda: harness.worker.jobs)
    client.reset()
    client.harness.turns()
    harness.protocols[0].transport.abortConnection()
    harness.until(lambda: not harness.hub.connections)
    harness.worker.work()


@pytest.mark.usefixtures("linux")
def test_closing_waits_for_the_worker(start: Make, file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    cold(monkeypatch, set())
    harness = start(region_answers(file))
    client = harness.connect()
    client.send(asked(0, 900_000))
    harness.until(lambda: harness.worker.jobs)
    harness.protocols[0].transport.loseConnection()
    harness.turns()
    harness.worker.work()
    assert client.answer() == b"head" + file.data[:900_000] + b"tail"
    harness.until(client.at_end)


def test_a_later_response_is_sent_at_once(start: Make) -> None:
    harness = start(lambda received: None)
    client = harness.connect()
    client.send(frame(b"wait for it"))
    harness.until(lambda: harness.protocols and harness.protocols[0].frames)
    harness.protocols[0].put([frame(b"here it is")])
    harness.protocols[0].transport.flush()
    assert client.answer() == b"here it is"


def test_responses_to_others_are_sent_together_when_the_connection_is_done(start: Make) -> None:
    harness = start()
    waiting, waking = harness.connect(), harness.connect()
    waiting.send(frame(b"just waiting"))
    waiting.answer()
    sent: list[bytes] = []

    def wake(received: memoryview) -> list[Any]:
        for n in range(10):
            harness.protocols[0].put([frame(b"woken up %d" % n)])
            harness.protocols[0].transport.flush()
        sent.append(bytes(harness.protocols[0].output_bytes))
        return [frame(b"all awake")]

    harness.build = lambda: None
    harness.until(lambda: len(harness.protocols) == 2)
    harness.protocols[1].answer = wake
    waking.send(frame(b"wake them"))
    assert waking.answer() == b"all awake"
    assert len(sent[0]) == 10 * 14, "some responses were sent before the others"
    assert [waiting.answer() for _ in range(10)] == [b"woken up %d" % n for n in range(10)]


def test_responses_of_actions_are_sent_after_the_connections_own_response(start: Make) -> None:
    harness = start()
    many = [harness.connect() for _ in range(50)]
    harness.until(lambda: len(harness.protocols) == 50)
    by_port = {client.port: client for client in many}
    waking = by_port.pop(harness.protocols[-1].transport.session.peer_port)
    unsent: list[int] = []

    def complete(_: str) -> None:
        assert waking.receive_some(), "the connection's own response was sent"
        for protocol in harness.protocols[:-1]:
            protocol.put([frame(b"wake up")])
            protocol.transport.flush()
            unsent.append(sum(other.output_bytes > 0 for other in harness.protocols))

    def wake(received: memoryview) -> list[Any]:
        harness.actions.add("waiting clients", complete)
        return [frame(b"all awake")]

    harness.protocols[-1].answer = wake
    waking.send(frame(b"wake them"))
    assert waking.answer() == b"all awake"
    assert unsent == [number % SENT_TOGETHER for number in range(1, 50)]
    assert [client.answer() for client in by_port.values()] == [b"wake up"] * 49


@pytest.mark.usefixtures("linux")  # elsewhere each connection is a turn
@pytest.mark.parametrize(("size", "kept_back"), [(100, [0, 1, 2]), (TOGETHER_BYTES_MAX, [0, 0, 0])])
def test_small_responses_to_the_requests_of_a_turn_are_sent_together(start: Make, size: int, kept_back: list[int]) -> None:
    harness = start(lambda received: None)
    clients = [harness.connect() for _ in range(3)]
    harness.until(lambda: len(harness.protocols) == 3)
    unsent: list[int] = []

    def answer(received: memoryview) -> list[Any]:
        unsent.append(sum(protocol.output_bytes > 0 for protocol in harness.protocols))
        return [frame(b"a" * size)]

    for protocol in harness.protocols:
        protocol.answer = answer
    for client in clients:
        client.send(frame(b"a question"))
    assert [client.answer() for client in clients] == [b"a" * size] * 3
    assert unsent == kept_back


def test_responses_of_one_turn_to_one_connection_are_sent_together(start: Make) -> None:
    harness = start(lambda received: None)
    client = harness.connect()
    client.send(frame(b"one of four") * 4)
    harness.until(lambda: harness.protocols and harness.protocols[0].frames == 4)
    protocol = harness.protocols[0]
    unsent: list[int] = []

    def complete(number: int) -> None:
        protocol.put([frame(b"%d" % number)])
        protocol.transport.flush()
        unsent.append(protocol.output_bytes)

    def answer_all(received: memoryview) -> None:
        for number in range(4):
            harness.actions.add(number, complete)

    protocol.answer = answer_all
    client.send(frame(b"and now answer all"))
    assert [client.answer() for _ in range(4)] == [b"0", b"1", b"2", b"3"]
    assert unsent == [5, 10, 15, 20], "all are sent at the end of the turn"


def has_taken(harness: ListenerHarness, frames: int) -> bool:
    return bool(harness.protocols[0].frames >= frames)


def test_a_full_protocol_gets_no_frames_until_it_flushes(start: Make) -> None:
    def fill(received: memoryview) -> None:
        harness.protocols[0].stop = True

    harness = start(fill)
    client = harness.connect()
    client.send(frame(b"one of many frames") * 30_000)
    harness.until(lambda: harness.protocols and harness.protocols[0].frames)
    harness.turns()
    assert harness.protocols[0].frames == 1
    for taken in range(2, 6):
        harness.protocols[0].stop = False
        harness.protocols[0].transport.flush()
        harness.until(partial(has_taken, harness, taken))
        harness.turns()
        assert harness.protocols[0].frames == taken
    harness.protocols[0].answer = lambda received: [b"."]
    harness.protocols[0].stop = False
    harness.protocols[0].transport.flush()
    assert client.receive(30_000 - 5) == b"." * (30_000 - 5)


def test_a_connection_that_cannot_send_does_not_hold_up_the_others_of_its_turn(start: Make, caplog: pytest.LogCaptureFixture) -> None:
    sent: list[str] = []

    class Postponed:
        def __init__(self, name: str) -> None:
            self.name = name

        def flush_now(self) -> None:
            sent.append(self.name)
            if self.name == "failing":
                raise RuntimeError("injected")

    hub: Any = start().hub
    hub.postponed += [Postponed("failing"), Postponed("other")]
    hub.flush_postponed()
    assert sent == ["failing", "other"] and not hub.postponed and not hub.serving
    assert "internal error sending responses" in caplog.text and "injected" in caplog.text
