"""Where received bytes live: one buffer that all connections share, and buffers owned by a connection in the middle of a large frame.

Owned buffers are anonymous private memory, which the system fills in page by page as bytes arrive, and which grows by moving
page tables. They are pooled between frames, and given back to the system when nobody has needed them for a while.
"""

from __future__ import annotations

import mmap
from collections import deque
from typing import Protocol

KIB = 1024
MIB = 1024 * KIB

# One read takes at most this much, so this also bounds the work of one connection before others have their turn.
SHARED_BYTES = 256 * KIB

# An owned buffer starts with this much, or with what its frame needs, and grows fourfold as bytes really arrive.
OWNED_BYTES_MIN = 64 * KIB

# What the pool keeps for the next large frames; larger buffers, and more of them, go back to the system at once.
POOLED_BUFFER_MAX = 16 * MIB
POOLED_BYTES_MAX = 64 * MIB


class OwnedBuffer:
    """Memory for the bytes of one connection: `filled` bytes of it are in use, `need` bytes make the first frame whole."""

    __slots__ = ("_map", "capacity", "filled", "need", "view")

    def __init__(self, capacity: int) -> None:
        self._map = _anonymous(capacity)
        self.capacity = capacity
        self.view = memoryview(self._map)
        self.filled = 0
        self.need = 0

    def grow(self, capacity: int) -> None:
        """Make it larger, keeping what is in it."""
        try:
            self.view.release()
            self._map.resize(capacity)
            self.view = memoryview(self._map)
        except (BufferError, ValueError, SystemError):
            # Somebody still looks at an earlier frame (BufferError), or the platform cannot resize: take new memory.
            # The old one goes with the last view of it.
            grown = _anonymous(capacity)
            view = memoryview(grown)
            view[: self.filled] = memoryview(self._map)[: self.filled]
            self._map, self.view = grown, view
        self.capacity = capacity


def _anonymous(size: int) -> mmap.mmap:
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


class Waiter(Protocol):
    """A connection that waits for its share of the budget."""

    def granted(self) -> None:
        """The reservation that was refused is made now; read on."""


class ReceiveBuffers:
    """The shared buffer, the pool, and the budget for large frames of all connections of one reactor.

    The budget counts the memory that frames in the making take up, not what they announce: whoever only announces holds up nobody. When it
    is used up connections wait, first come, first served, but for one of them, the favourite: it gets whatever its frame needs, so that
    somebody always comes to an end. All together hold no more than the budget, one step of growth, and the favourite's frame.
    """

    def __init__(self, budget: int = -1) -> None:
        self.shared = memoryview(bytearray(SHARED_BYTES))
        self.reserved = 0
        self.waits = 0
        """How often a connection had to wait for the budget."""
        self.budget = budget
        self._favourite: Waiter | None = None
        self._waiting: deque[tuple[Waiter, int]] = deque()
        self._free: list[OwnedBuffer] = []
        self._free_bytes = 0
        self._spare = 0

    def take(self, size: int) -> OwnedBuffer:
        """An empty buffer for `size` bytes of which some are there; it may have to grow."""
        return self._pop() if self._free else OwnedBuffer(min(size, OWNED_BYTES_MIN))

    def ready(self, size: int) -> OwnedBuffer | None:
        """An empty buffer of at least `size` bytes, if the pool has one on top."""
        return self._pop() if self._free and self._free[-1].capacity >= size else None

    def _pop(self) -> OwnedBuffer:
        buffer = self._free.pop()
        self._free_bytes -= buffer.capacity
        self._spare = min(self._spare, len(self._free))
        buffer.filled = 0
        return buffer

    def give(self, buffer: OwnedBuffer) -> None:
        """Put a buffer back whose bytes are done with."""
        if buffer.capacity <= POOLED_BUFFER_MAX and self._free_bytes + buffer.capacity <= POOLED_BYTES_MAX:
            self._free.append(buffer)
            self._free_bytes += buffer.capacity

    def trim(self) -> None:
        """Give the system back what nobody took since the last call."""
        self._free_bytes -= sum(buffer.capacity for buffer in self._free[: self._spare])
        del self._free[: self._spare]
        self._spare = len(self._free)

    @property
    def contended(self) -> bool:
        """Somebody waits for the budget."""
        return bool(self._waiting)

    def reserve(self, size: int, waiter: Waiter) -> bool:
        """Count `size` more bytes against the budget; False: wait for `granted`."""
        if self.reserve_now(size, waiter):
            return True
        if self._favourite is not None:
            self._waiting.append((waiter, size))
            self.waits += 1
            return False
        self._favourite = waiter
        self.reserved += size
        return True

    def reserve_now(self, size: int, waiter: Waiter) -> bool:
        """Count `size` more bytes if something of the budget is left; False: no, and nobody waits for it."""
        if self.budget >= 0 and waiter is not self._favourite and (self._waiting or self.reserved >= self.budget):
            return False
        self.reserved += size
        return True

    def release(self, size: int, waiter: Waiter) -> None:
        """Return what a connection has reserved, all of it; those that wait are served."""
        self.reserved -= size
        if waiter is self._favourite:
            self._favourite = None
        while self._waiting and (self._favourite is None or self.reserved < self.budget):
            first, wanted = self._waiting.popleft()
            if self.reserved >= self.budget:
                self._favourite = first
            self.reserved += wanted
            first.granted()

    def forget(self, waiter: Waiter) -> None:
        """A connection does not wait any longer; what it has is still reserved."""
        self._waiting = deque(entry for entry in self._waiting if entry[0] is not waiter)
