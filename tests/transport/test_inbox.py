"""The inbox without sockets: frames are those of the stream, for any pieces that arrive."""

from __future__ import annotations

import struct
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from txbroker.transport.inbox import STASH_MAX, Inbox
from txbroker.transport.receive import POOLED_BUFFER_MAX, SHARED_BYTES, OwnedBuffer, ReceiveBuffers


class Granted:
    def __init__(self) -> None:
        self.times = 0

    def granted(self) -> None:
        self.times += 1


def frames_of(inbox: Inbox, handled_max: int = 1 << 30) -> list[bytes]:
    """Consume the complete frames of the inbox."""
    found: list[bytes] = []
    position = 0
    while inbox.filled - position >= 4 and len(found) < handled_max:
        end = position + 4 + struct.unpack_from(">i", inbox.view, position)[0]
        if end > inbox.filled:
            break
        found.append(bytes(inbox.view[position + 4 : end]))
        position = end
    inbox.consumed(position)
    return found


def feeding(stream: memoryview, piece: int) -> Callable[[memoryview], int]:
    def recv_into(view: memoryview) -> int:
        count = min(len(view), piece, len(stream))
        view[:count] = stream[:count]
        return count

    return recv_into


SIZES = st.one_of(
    st.integers(0, 40),
    st.integers(STASH_MAX - 10, STASH_MAX + 10),
    st.integers(SHARED_BYTES // 2 - 8, SHARED_BYTES // 2 + 8),
    st.integers(SHARED_BYTES - 10, SHARED_BYTES + 10),
    st.integers(0, 1_500_000),
)


@settings(max_examples=examples(40))
@given(
    sizes=st.lists(SIZES, max_size=8),
    pieces=st.lists(st.one_of(st.integers(1, 100), st.integers(1, 400_000)), min_size=1, max_size=20),
    handled=st.lists(st.integers(0, 3), min_size=1, max_size=5),
)
def test_any_frames_in_any_pieces(sizes: list[int], pieces: list[int], handled: list[int]) -> None:
    bodies = [bytes([65 + n]) * size for n, size in enumerate(sizes)]
    stream = memoryview(b"".join(struct.pack(">i", len(body)) + body for body in bodies))
    buffers = ReceiveBuffers()
    inbox, other = Inbox(buffers, Granted()), Inbox(buffers, Granted())
    found: list[bytes] = []
    turn = 0
    while len(stream):
        piece = max(pieces[turn % len(pieces)], len(stream) // 300)
        count = inbox.fill(feeding(stream, piece))
        assert count
        stream = stream[count:]
        found += frames_of(inbox, handled[turn % len(handled)])
        # Another connection uses the shared buffer.
        other.fill(feeding(memoryview(b"\0\0\0\4past" * 100), 800))
        frames_of(other)
        while waiting(inbox):
            inbox.reload()
            found += frames_of(inbox)
        turn += 1
    assert found == bodies
    assert buffers.reserved == 0
    other.close()


def waiting(inbox: Inbox) -> bool:
    """Whether the inbox has another complete frame."""
    inbox.reload()
    return inbox.filled >= 4 and inbox.filled >= 4 + struct.unpack_from(">i", inbox.view)[0]


def test_a_frame_in_use_is_neither_moved_nor_overwritten() -> None:
    buffers = ReceiveBuffers()
    inbox = Inbox(buffers, Granted())
    kept: list[memoryview] = []
    for n in range(4):
        body = bytes([n]) * (300_000 + 400_000 * n)
        stream = memoryview(struct.pack(">i", len(body)) + body)
        while len(stream):
            stream = stream[inbox.fill(feeding(stream, 100_000)) :]
            if inbox.filled < 4 + len(body):
                inbox.consumed(0)
        kept.append(inbox.view[4 : inbox.filled])
        assert kept[-1] == body
        inbox.consumed(inbox.filled)
    assert len(kept[0]) == 300_000


def test_the_memory_of_a_frame_follows_what_arrives() -> None:
    inbox = Inbox(ReceiveBuffers(), Granted())
    stream = memoryview(struct.pack(">i", 50_000_000) + bytes(3_000_000))
    while len(stream):
        stream = stream[inbox.fill(feeding(stream, 200_000)) :]
        inbox.consumed(0)
        assert inbox._owned is not None
        assert inbox._owned.capacity <= 4 * max(inbox.filled, 65_536)


def test_the_pool_is_bounded_and_releases_unused_buffers() -> None:
    buffers = ReceiveBuffers()
    buffers.give(OwnedBuffer(POOLED_BUFFER_MAX + 1))
    assert buffers.ready(1) is None
    for _ in range(3):
        buffers.give(OwnedBuffer(100_000))
    buffers.trim()
    # One of the three is used between the two calls.
    taken = buffers.ready(100_000)
    assert taken is not None
    buffers.give(taken)
    buffers.trim()
    assert buffers.ready(100_000) is not None
    assert buffers.ready(1) is None


def test_the_budget_is_assigned_in_order_and_one_connection_always_continues() -> None:
    buffers = ReceiveBuffers(budget=100)
    first, second, third, fourth = waiters = [Granted() for _ in range(4)]
    assert buffers.reserve(60, first)
    assert buffers.reserve(60, second), "some of the budget was left"
    assert buffers.reserve(1, third), "nothing is left, but one connection continues"
    assert not buffers.reserve(1, first)
    assert not buffers.reserve(1, fourth)
    assert buffers.contended
    assert buffers.reserve(500, third), "it continues until its frame is complete"
    buffers.release(501, third)
    assert [waiter.times for waiter in waiters] == [1, 0, 0, 0], "the next one continues"
    assert buffers.reserve(70, first)
    buffers.release(131, first)
    assert [waiter.times for waiter in waiters] == [1, 0, 0, 1]
    assert not buffers.contended
    assert buffers.reserved == 61
    assert buffers.reserve(100, second)
    assert buffers.reserve(1, first)
    assert not buffers.reserve(1, third)
    buffers.forget(third)
    buffers.release(160, second)
    assert third.times == 0
    assert buffers.reserved == 2


@settings(max_examples=examples(60))
@given(
    frames=st.lists(st.integers(1, 3_000_000), min_size=1, max_size=6),
    budget=st.integers(1, 2_000_000),
    turns=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 700_000)), min_size=1, max_size=60),
)
def test_every_frame_completes_within_any_budget(frames: list[int], budget: int, turns: list[tuple[int, int]]) -> None:
    buffers = ReceiveBuffers(budget)
    inboxes = [Inbox(buffers, Granted()) for _ in frames]
    streams = [memoryview(struct.pack(">i", size) + bytes([65 + n]) * size) for n, size in enumerate(frames)]
    found: list[list[bytes]] = [[] for _ in frames]
    chosen = iter(turns)
    while any(map(len, streams)):
        who, piece = next(chosen, (0, 1_000_000))
        ready = [n for n, inbox in enumerate(inboxes) if len(streams[n]) and not inbox.starved]
        assert ready, "all connections wait"
        n = ready[who % len(ready)]
        count = inboxes[n].fill(feeding(streams[n], piece))
        assert count
        streams[n] = streams[n][count:]
        found[n] += frames_of(inboxes[n])
        growth = 4 * max(frames)
        assert buffers.reserved <= budget + growth + max(frames) + 4
    assert [[len(body) for body in bodies] for bodies in found] == [[size] for size in frames]
    assert buffers.reserved == 0
    assert not buffers.contended
