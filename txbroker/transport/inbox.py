"""The received bytes of one connection that are not handled yet, in whichever of three places suits them."""

from __future__ import annotations

import struct
from collections.abc import Callable

from txbroker.transport.receive import KIB, SHARED_BYTES, OwnedBuffer, ReceiveBuffers, Waiter

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

    __slots__ = ("_buffers", "_expected", "_owned", "_reserved", "_stash", "_waiter", "filled", "starved", "view")

    def __init__(self, buffers: ReceiveBuffers, waiter: Waiter) -> None:
        self._buffers = buffers
        self._waiter = waiter
        self._stash = b""
        self._owned: OwnedBuffer | None = None
        self._reserved = 0
        self._expected = 0
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
        owned = self._buffers.ready(self._expected)
        if owned is not None:
            owned.filled = len(self._stash)
            owned.view[: owned.filled] = self._stash
            owned.need = self._expected
            self._owned = owned
            self._stash = b""
        return owned

    def _fill_owned(self, owned: OwnedBuffer, recv_into: Callable[[memoryview], int]) -> int:
        got = 0
        while owned.filled < owned.need:
            if owned.filled == owned.capacity:
                owned.grow(min(owned.need, 4 * owned.capacity))
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
        elif position or not self._reserved:
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
            self._give_back()
            return
        need = max(SIZE.size + announced, rest)
        owned = self._owned or self._buffers.take(need)
        if owned.capacity < rest:
            owned.grow(rest)
        if position or owned is not self._owned:
            owned.view[:rest] = kept
        owned.filled = rest
        owned.need = need
        self._owned = owned
        self._stash = b""
        if need >= LARGE:
            self._expected = need
        self._reserved = need
        self.starved = not self._buffers.reserve(need, self._waiter)

    def _give_back(self) -> None:
        owned, self._owned = self._owned, None
        if owned is not None:
            self._buffers.give(owned)

    def _release(self) -> None:
        reserved, self._reserved = self._reserved, 0
        if self.starved:
            self.starved = False
            self._buffers.forget(self._waiter)
        elif reserved:
            self._buffers.release(reserved)

    @property
    def holds(self) -> bool:
        """Whether it counts against the budget."""
        return self._reserved > 0 and not self.starved

    def close(self) -> None:
        """The connection is gone: give everything back."""
        self._release()
        self._stash = b""
        self._give_back()
