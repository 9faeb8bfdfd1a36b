"""The memory of received bytes: one buffer that all connections share, and buffers owned by connections that receive a large frame.

Owned buffers are anonymous private memory: the system provides pages as bytes arrive, and a buffer grows by moving page tables. They are
pooled between frames, and returned to the system when they have not been used for a while.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from txbroker.platform import system
from txbroker.transport.limits import KIB, MIB

# The limit of one read, and so of the work for one connection before others are served.
SHARED_BYTES = 256 * KIB

# The first size of an owned buffer, if its frame is not smaller. It grows fourfold as bytes arrive.
OWNED_BYTES_MIN = 64 * KIB

# The limits of the pool. Larger buffers, and more of them, are returned to the system at once.
POOLED_BUFFER_MAX = 16 * MIB
POOLED_BYTES_MAX = 64 * MIB


class OwnedBuffer:
    """Memory for the bytes of one connection: `filled` bytes are in use; with `need` bytes the first frame is complete."""

    __slots__ = ("_map", "capacity", "filled", "need", "view")

    def __init__(self, capacity: int) -> None:
        self._map = system.anonymous_memory(capacity)
        self.capacity = capacity
        self.view = memoryview(self._map)
        self.filled = 0
        self.need = 0

    def grow(self, capacity: int) -> None:
        """Make it larger and keep its content."""
        try:
            self.view.release()
            self._map.resize(capacity)
            self.view = memoryview(self._map)
        except (BufferError, ValueError, SystemError):
            # There is a view of an earlier frame (BufferError), or the platform cannot resize: take new memory.
            # The old memory is freed with its last view.
            grown = system.anonymous_memory(capacity)
            view = memoryview(grown)
            view[: self.filled] = memoryview(self._map)[: self.filled]
            self._map, self.view = grown, view
        self.capacity = capacity


class Waiter(Protocol):
    """A connection that waits for memory of the budget."""

    def granted(self) -> None:
        """The reservation that was refused is made now; continue to read."""


class ReceiveBuffers:
    """The shared buffer, the pool, and the budget for large frames of all connections of one reactor.

    The budget counts the memory that incomplete frames use, not the sizes that they announce, so that announcing a size does not block
    others. When it is used up, connections wait in the order of their requests. One of them is exempt and gets whatever its
    frame needs, so that there is always a frame that can be completed. All connections together use at most the budget, one step of growth,
    and the exempt connection's frame.
    """

    def __init__(self, budget: int = -1) -> None:
        self.shared = memoryview(system.anonymous_memory(SHARED_BYTES))
        self.reserved = 0
        self.waits = 0
        """How often a connection had to wait for the budget."""
        self.budget = budget
        self._exempt: Waiter | None = None
        self._waiting: deque[tuple[Waiter, int]] = deque()
        self._free: list[OwnedBuffer] = []
        self._free_bytes = 0
        self._spare = 0

    def take(self, size: int) -> OwnedBuffer:
        """An empty buffer for a frame of `size` bytes, some of which have been received; it may have to grow."""
        return self._pop() if self._free else OwnedBuffer(min(size, OWNED_BYTES_MIN))

    def ready(self, size: int) -> OwnedBuffer | None:
        """An empty buffer of at least `size` bytes, if the pool has one at its end."""
        return self._pop() if self._free and self._free[-1].capacity >= size else None

    def _pop(self) -> OwnedBuffer:
        buffer = self._free.pop()
        self._free_bytes -= buffer.capacity
        self._spare = min(self._spare, len(self._free))
        buffer.filled = 0
        return buffer

    def give(self, buffer: OwnedBuffer) -> None:
        """Return a buffer whose bytes are not used any more."""
        if buffer.capacity <= POOLED_BUFFER_MAX and self._free_bytes + buffer.capacity <= POOLED_BYTES_MAX:
            self._free.append(buffer)
            self._free_bytes += buffer.capacity

    def trim(self) -> None:
        """Return the buffers to the system that were not used since the last call."""
        self._free_bytes -= sum(buffer.capacity for buffer in self._free[: self._spare])
        del self._free[: self._spare]
        self._spare = len(self._free)

    @property
    def contended(self) -> bool:
        """Whether a connection waits for the budget."""
        return bool(self._waiting)

    def reserve(self, size: int, waiter: Waiter) -> bool:
        """Count `size` more bytes against the budget; False: wait for `granted`."""
        if self.reserve_now(size, waiter):
            return True
        if self._exempt is not None:
            self._waiting.append((waiter, size))
            self.waits += 1
            return False
        self._exempt = waiter
        self.reserved += size
        return True

    def reserve_now(self, size: int, waiter: Waiter) -> bool:
        """Count `size` more bytes if the budget is not used up; False: it is, and the connection does not wait."""
        if self.budget >= 0 and waiter is not self._exempt and (self._waiting or self.reserved >= self.budget):
            return False
        self.reserved += size
        return True

    def release(self, size: int, waiter: Waiter) -> None:
        """Return all that a connection has reserved; connections that wait are served."""
        self.reserved -= size
        if waiter is self._exempt:
            self._exempt = None
        while self._waiting and (self._exempt is None or self.reserved < self.budget):
            first, wanted = self._waiting.popleft()
            if self.reserved >= self.budget:
                self._exempt = first
            self.reserved += wanted
            first.granted()

    def forget(self, waiter: Waiter) -> None:
        """A connection does not wait any more; what it has is still reserved."""
        self._waiting = deque(entry for entry in self._waiting if entry[0] is not waiter)
