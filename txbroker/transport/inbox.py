"""The received bytes of one connection that are not handled yet.

There are four states. `consumed` decides on the state after each read.

| state    | `_owned`, `_stash`                 | the next read goes                         | reached when                               |
|----------|------------------------------------|--------------------------------------------|--------------------------------------------|
| empty    | None, no bytes                     | into the shared buffer                     | all bytes were handled, frames are small   |
| rest     | None, some bytes                   | into the shared buffer, after these bytes  | a short beginning of a small frame is left |
| frame    | buffer; `need` is the frame's end  | into the buffer, up to the frame's end     | a longer beginning, or of a large frame    |
| expected | buffer; `need` is a guess          | into the buffer, up to the guessed end     | the last frame was large, a buffer is free |

A frame in an owned buffer is in place, without a copy, when it is complete. In the states "frame" and "expected" the memory of the buffer
is reserved from the budget (`_reserved`). While the budget is used up the inbox is `starved`: it is not read until memory is granted.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from txbroker.transport.limits import KIB
from txbroker.transport.receive import OWNED_BYTES_MIN, SHARED_BYTES, OwnedBuffer, ReceiveBuffers, Waiter

SIZE = struct.Struct(">i")

# A rest up to this size is kept as bytes and copied to the shared buffer before the next read.
STASH_MAX = 8 * KIB

# After a frame of at least this size, the next one is expected to be as large.
LARGE = SHARED_BYTES // 2


class Inbox:
    """Reads from the socket, offers the bytes as `view[:filled]`, and keeps what `consumed` leaves.

    `view` is valid until the reactor serves another connection. `starved`: the bytes that it waits for to be reserved; 0 if it can be read.
    `is_fresh`: it keeps nothing, so that nothing is to be done if all bytes were handled.
    """

    __slots__ = ("_buffers", "_expected", "_is_frame", "_owned", "_reserved", "_stash", "_waiter", "filled", "is_fresh",
                 "starved", "view")  # fmt: skip

    def __init__(self, buffers: ReceiveBuffers, waiter: Waiter) -> None:
        self._buffers = buffers
        self._waiter = waiter
        self._stash = b""
        self._owned: OwnedBuffer | None = None
        self._is_frame = False  # of the states with an owned buffer: "frame", not "expected"
        self._reserved = 0
        self._expected = 0  # the size of the last frame if it was large
        self.starved = 0
        self.view = buffers.shared
        self.filled = 0
        self.is_fresh = True

    def fill(self, recv_into: Callable[[memoryview], int]) -> int:
        """Read once from the socket: the bytes read, 0 at its end. Raises OSError as `recv_into` does."""
        owned = self._owned
        if owned is None and self._expected:
            owned = self._expect()
        if owned is not None:
            self.is_fresh = False
            count = self._fill_owned(owned, recv_into)
            self.view, self.filled = owned.view, owned.filled
            return count
        view = self.view = self._buffers.shared
        start = len(self._stash)
        if start:
            view[:start] = self._stash
            count = recv_into(view[start:])
        else:
            count = recv_into(view)
        self.is_fresh = not start
        self.filled = start + count
        return count

    def _expect(self) -> OwnedBuffer | None:
        """A pooled buffer for a frame like the last one, if there is one and the budget is not used up."""
        buffers, expected = self._buffers, self._expected
        owned = buffers.ready(expected)
        if owned is None:
            return None
        if not buffers.reserve_now(expected, self):
            buffers.give(owned)
            return None
        self._reserved = expected
        owned.filled = len(self._stash)
        owned.view[: owned.filled] = self._stash
        owned.need = expected
        self._owned = owned
        self._is_frame = False
        self._stash = b""
        return owned

    def _fill_owned(self, owned: OwnedBuffer, recv_into: Callable[[memoryview], int]) -> int:
        got = 0
        while owned.filled < owned.need:
            if owned.filled == owned.capacity:
                capacity = min(owned.need, 4 * owned.capacity)
                if not self._reserve(capacity):
                    break
                owned.grow(capacity)
            end = min(owned.need, owned.capacity)
            room = end - owned.filled
            try:
                count = recv_into(owned.view[owned.filled : end])
            except BlockingIOError:
                if got:
                    break
                raise
            owned.filled += count
            got += count
            if count < room:
                break
        return got

    def reload(self) -> None:
        """Offer what was kept again, without reading."""
        self.is_fresh = False
        if self._owned is not None:
            self.view, self.filled = self._owned.view, self._owned.filled
        else:
            self.view, self.filled = self._buffers.shared, len(self._stash)
            self.view[: self.filled] = self._stash

    def consumed(self, position: int) -> None:
        """The bytes before `position` are handled; keep the rest, which begins with the size of a frame."""
        rest = self.filled - position
        owned = self._owned
        if owned is None:
            if rest:
                self._keep(position, rest)
            elif self._stash:
                self._stash = b""
        elif position or not self._is_frame:
            if position:
                self._release()
            if position < LARGE:
                self._expected = 0
            if rest:
                self._keep(position, rest)
            else:
                self._give_back()

    def _keep(self, position: int, rest: int) -> None:
        """Keep the rest from `position` on: go to the state "rest" or "frame"."""
        kept = self.view[position : self.filled]
        announced = SIZE.unpack_from(kept)[0] if rest >= SIZE.size else 0
        if rest <= STASH_MAX and announced <= SHARED_BYTES - SIZE.size:
            self._stash = bytes(kept)
            self._release()
            self._give_back()
            return
        need = max(SIZE.size + announced, rest)
        owned = self._owned or self._buffers.take(need)
        if owned.capacity < rest:
            owned.grow(rest)
        # If the buffer is full, the next read begins with its growth.
        if not self._reserve(min(owned.capacity if rest < owned.capacity else 4 * owned.capacity, need)) and owned.capacity > 4 * rest:
            # A connection that waits does so with a small buffer.
            if owned is not self._owned:
                self._buffers.give(owned)
            owned = OwnedBuffer(max(rest, OWNED_BYTES_MIN))
        if position or owned is not self._owned:
            owned.view[:rest] = kept
            if self._owned is not owned:
                self._give_back()
        owned.filled = rest
        owned.need = need
        self._owned = owned
        self._is_frame = True
        self._stash = b""
        if need >= LARGE:
            self._expected = need

    def _give_back(self) -> None:
        owned, self._owned = self._owned, None
        if owned is not None:
            self.view, self.filled = self._buffers.shared, 0  # a view would keep the buffer's memory
            self._buffers.give(owned)

    def _reserve(self, size: int) -> bool:
        """Reserve `size` bytes in total; False: `starved` until they are granted."""
        more = size - self._reserved
        if more > 0:
            if not self._buffers.reserve(more, self):
                self.starved = more
                return False
            self._reserved = size
        return True

    def granted(self) -> None:
        """The budget has reserved what this inbox waits for."""
        self._reserved += self.starved
        self.starved = 0
        self._waiter.granted()

    def _release(self) -> None:
        reserved, self._reserved = self._reserved, 0
        if self.starved:
            self.starved = 0
            self._buffers.forget(self)
        if reserved:
            self._buffers.release(reserved, self)

    @property
    def holding(self) -> int:
        """How many bytes of an incomplete large frame use up the budget; 0 while it is starved."""
        return self._owned.filled if self._owned is not None and self._reserved > 0 and not self.starved else 0

    def close(self) -> None:
        """The connection is lost: return all memory."""
        self._release()
        self._stash = b""
        self._give_back()
