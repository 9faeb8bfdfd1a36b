"""What is in flight on a connection, the order of its responses, and when it is full."""

from __future__ import annotations

from collections import deque
from typing import Any

from twisted.internet.defer import Deferred

from txbroker.api.encoded.response_frame import Part
from txbroker.api.parking import ParkedRequest
from txbroker.connection.states import State
from txbroker.transport.interfaces import FrameTransport

# Requests of one connection that may wait for their response. Kafka serves one at a time; its producers send 5 before they wait, other
# clients some dozens.
IN_FLIGHT_MAX = 100

# With more output than this no more requests are taken until the transport has sent some. One response may still be larger.
OUTPUT_BYTES_MAX = 1024 * 1024

# Requests in flight hold their message, without its records, in memory: beyond this many bytes no more are taken.
WAITING_BYTES_MAX = 1024 * 1024


class Slot:
    """A request in flight, or a response that waits for those before it: `parts` is None until it is there, [] if there is none.

    `is_last`: the connection is closed when it is this one's turn; nothing after it is sent.
    """

    __slots__ = ("is_last", "later", "parts", "request_size", "size")

    def __init__(self, later: Deferred[Any] | ParkedRequest[Any] | None, request_size: int = 0) -> None:
        self.later = later
        self.parts: list[Part] | None = None
        self.size = 0
        self.request_size = request_size
        self.is_last = False


class ResponseOrder:
    """The lowest layer of a connection.

    `full`: no more requests are taken now.
    """

    __slots__ = ("_held_bytes", "_output", "_slots", "_state", "_transport", "_waiting_bytes", "full", "output_bytes")

    _transport: FrameTransport

    def __init__(self) -> None:
        self._output: list[Part] = []
        self.output_bytes = 0
        self._slots: deque[Slot] = deque()
        self._held_bytes = 0  # of responses that wait for those before them
        self._waiting_bytes = 0  # of requests in flight
        self.full = False
        self._state = State.NEW

    @property
    def _is_ending(self) -> bool:
        """Whether the connection takes no more requests. It is closed once those in flight are answered."""
        return self._state is State.CLOSING or self._state is State.CLOSED

    @property
    def in_flight(self) -> int:
        return len(self._slots)

    def take_output(self) -> list[Part]:
        output, self._output = self._output, []
        self.output_bytes = 0
        if self.full:
            self._measure()
        return output

    def _put(self, parts: list[Part], size: int) -> None:
        """A response is made: it is sent next, unless others are before it."""
        if self._slots:
            slot = Slot(None)
            self._slots.append(slot)
            self._fill(slot, parts, size)
            self._measure()
        else:
            self._output += parts
            self.output_bytes += size
            if self.output_bytes > OUTPUT_BYTES_MAX:
                self.full = True

    def _reserve(self, later: Deferred[Any] | ParkedRequest[Any], request_size: int) -> Slot:
        """The place of a response that comes later."""
        slot = Slot(later, request_size)
        self._slots.append(slot)
        self._waiting_bytes += request_size
        self._measure()
        return slot

    def _fill(self, slot: Slot, parts: list[Part], size: int) -> None:
        slot.parts = parts
        slot.size = size
        self._held_bytes += size

    def _drain(self) -> None:
        """The first response is made: it and those that waited for it are sent next."""
        slots = self._slots
        while slots and (parts := slots[0].parts) is not None:
            self._output += parts
            slot = slots.popleft()
            self._held_bytes -= slot.size
            self.output_bytes += slot.size
            if slot.is_last:
                self._lose()
                break
        if not slots:
            self._drained()
        self._measure()
        self._transport.flush()

    def _drained(self) -> None:
        """Nothing is in flight any more."""
        raise NotImplementedError

    def _is_held(self) -> bool:
        """Whether the next request must wait."""
        raise NotImplementedError

    def _measure(self) -> None:
        self.full = (
            self._is_ending
            or self._is_held()
            or len(self._slots) >= IN_FLIGHT_MAX
            or self.output_bytes + self._held_bytes > OUTPUT_BYTES_MAX
            or self._waiting_bytes > WAITING_BYTES_MAX
        )

    def _end(self, slot: Slot | None = None) -> None:
        """Take no more requests, and close when those before `slot` are answered; None: all that are in flight."""
        was_ending, self.full = self._is_ending, True
        if not was_ending:
            self._state = State.CLOSING
        if slot is not None:
            slot.is_last = True
        elif was_ending:
            return
        elif self._slots:
            slot = Slot(None)
            slot.parts = []
            slot.is_last = True
            self._slots.append(slot)
        else:
            self._lose()

    def _lose(self) -> None:
        """Send the output, and close."""
        self._state = State.CLOSED
        self._transport.loseConnection()

    def _abandon(self) -> list[Deferred[Any] | ParkedRequest[Any]]:
        """The connection is lost. Returns what is in flight, to be cancelled."""
        self._state, self.full = State.CLOSED, True
        slots, self._slots = self._slots, deque()
        return [slot.later for slot in slots if slot.later is not None]
