"""The received bytes of one connection that are not handled yet, in whichever of three places suits them."""

from __future__ import annotations

import struct
from collections.abc import Callable

from txbroker.transport.receive import KIB, OWNED_BYTES_MIN, SHARED_BYTES, OwnedBuffer, ReceiveBuffers, Waiter

SIZE = struct.Struct(">i")

# A rest up to this long is kept as bytes and put back into the shared buffer for the next read.
STASH_MAX = 8 * KIB

# After a frame this large, the next one is received into an owned buffer straight away.
LARGE = SHARED_BYTES // 2


class Inbox:
    """Fills a buffer from the socket, offers it as `view[:filled]`, and keeps what `consumed` leaves.

    - Nothing, or a short rest, is left: the next read goes into the shared buffer, behind the rest.
    - A longer rest, or the beginning of a large frame, is left: it moves into an owned buffer, and the next reads go on there, no
      further than this frame's end, so that its bytes are in place when it is whole.
    - The last frame was large: the next read goes into a pooled buffer from the start.

    `view` is valid until the reactor serves another connection; `starved` says that the budget does not allow to read on.
    """

    __slots__ = ("_buffers", "_expected", "_owned", "_pending", "_reserved", "_settled", "_stash", "_waiter", "filled", "starved", "view")

    def __init__(self, buffers: ReceiveBuffers, waiter: Waiter) -> None:
        self._buffers = buffers
        self._waiter = waiter
        self._stash = b""
        self._owned: OwnedBuffer | None = None
        self._reserved = 0
        self._pending = 0  # to be reserved while it is starved
        self._expected = 0
        self._settled = False  # whether the owned buffer's need is the one that its frame announces
        self.starved = False
        self.view = buffers.shared
        self.filled = 0

    def fill(self, recv_into: Callable[[memoryview], int]) -> int:
        """Read once from the socket: the bytes read, 0 at its end. Raises OSError as `recv_into` does."""
        owned = self._owned
        if owned is None:
            if not self._expected:
                return self._fill_shared(recv_into)
            owned = self._expect()
            if owned is None:
                return self._fill_shared(recv_into)
        count = self._fill_owned(owned, recv_into)
        self.view, self.filled = owned.view, owned.filled
        return count

    def _fill_shared(self, recv_into: Callable[[memoryview], int]) -> int:
        view = self.view = self._buffers.shared
        start = len(self._stash)
        if start:
            view[:start] = self._stash
            count = recv_into(view[start:])
        else:
            count = recv_into(view)
        self.filled = start + count
        return count

    def _expect(self) -> OwnedBuffer | None:
        """A pooled buffer for a frame like the last one, if one is there and the budget has room."""
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
        self._settled = False
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
        if self._owned is not None:
            self.view, self.filled = self._owned.view, self._owned.filled
        else:
            self.view, self.filled = self._buffers.shared, len(self._stash)
            self.view[: self.filled] = self._stash

    def consumed(self, position: int) -> None:
        """Everything before `position` is done with; keep the rest, which begins with a frame's size."""
        rest = self.filled - position
        owned = self._owned
        if owned is None:
            if rest:
                self._keep(position, rest)
            elif self._stash:
                self._stash = b""
        elif position or not self._settled:
            if position:
                self._release()
            if position < LARGE:
                self._expected = 0
            if rest:
                self._keep(position, rest)
            else:
                self._give_back()

    def _keep(self, position: int, rest: int) -> None:
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
        # When the buffer is full already, the next read begins with its growth.
        if not self._reserve(min(owned.capacity if rest < owned.capacity else 4 * owned.capacity, need)) and owned.capacity > 4 * rest:
            # Who must wait does it with little.
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
        self._settled = True
        self._stash = b""
        if need >= LARGE:
            self._expected = need

    def _give_back(self) -> None:
        owned, self._owned = self._owned, None
        if owned is not None:
            self.view, self.filled = self._buffers.shared, 0  # a view would hold the memory as long as this connection is remembered
            self._buffers.give(owned)

    def _reserve(self, size: int) -> bool:
        """Have `size` bytes reserved in all; False: `starved` until they are granted."""
        more = size - self._reserved
        if more > 0:
            if not self._buffers.reserve(more, self):
                self._pending = more
                self.starved = True
                return False
            self._reserved = size
        return True

    def granted(self) -> None:
        """What was wanted is reserved now."""
        self._reserved += self._pending
        self._pending = 0
        self.starved = False
        self._waiter.granted()

    def _release(self) -> None:
        reserved, self._reserved = self._reserved, 0
        if self.starved:
            self.starved = False
            self._pending = 0
            self._buffers.forget(self)
        if reserved:
            self._buffers.release(reserved, self)

    @property
    def holding(self) -> int:
        """How many bytes it keeps from others and may add to: 0 while it is starved, or in no large frame."""
        return self._owned.filled if self._owned is not None and self._reserved > 0 and not self.starved else 0

    def close(self) -> None:
        """The connection is gone: give everything back."""
        self._release()
        self._stash = b""
        self._give_back()
