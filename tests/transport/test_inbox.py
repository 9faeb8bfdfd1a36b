"""The inbox by itself: whatever the pieces that arrive, what it offers is the stream, in place and without gaps."""

from __future__ import annotations

import struct
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from txbroker.transport.inbox import STASH_MAX, Inbox
from txbroker.transport.receive import POOLED_BUFFER_MAX, SHARED_BYTES, OwnedBuffer, ReceiveBuffers


class Granted:
    def __init__(self) -> None:
        self.times = 0

    def granted(self) -> None:
        self.times += 1


def frames_of(inbox: Inbox, handled_max: int = 1 << 30) -> list[bytes]:
    """The whole frames in it, and consume them."""
    found, position = [], 0
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


@settings(max_examples=40, deadline=None)
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
        # Another connection uses the shared buffer meanwhile.
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
    """Whether a whole frame is left in it."""
    inbox.reload()
    return inbox.filled >= 4 and inbox.filled >= 4 + struct.unpack_from(">i", inbox.view)[0]


def test_a_frame_still_looked_at_is_not_moved_or_overwritten() -> None:
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


def test_the_pool_keeps_no_giants_and_trims_what_nobody_takes() -> None:
    buffers = ReceiveBuffers()
    buffers.give(OwnedBuffer(POOLED_BUFFER_MAX + 1))
    assert buffers.ready(1) is None
    for _ in range(3):
        buffers.give(OwnedBuffer(100_000))
    buffers.trim()
    # One of the three is needed between the two calls.
    taken = buffers.ready(100_000)
    assert taken is not None
    buffers.give(taken)
    buffers.trim()
    assert buffers.ready(100_000) is not None
    assert buffers.ready(1) is None


def test_the_budget_is_served_in_order_and_never_deadlocks() -> None:
    buffers = ReceiveBuffers(budget=100)
    waiters = [Granted() for _ in range(4)]
    assert buffers.reserve(99, waiters[0])
    assert buffers.reserve(500, waiters[1]), "something was left"
    assert not buffers.reserve(1, waiters[2])
    assert not buffers.reserve(1, waiters[3])
    buffers.release(99)
    assert [waiter.times for waiter in waiters] == [0, 0, 0, 0]
    buffers.forget(waiters[2])
    buffers.release(500)
    assert [waiter.times for waiter in waiters] == [0, 0, 0, 1]
    assert buffers.reserved == 1
