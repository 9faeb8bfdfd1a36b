"""One non-blocking connection with several requests in flight, for loads: what goes out and comes in is counted in gigabytes."""

from __future__ import annotations

import selectors
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from txbroker.client.blocking import ANSWER_BYTES_MAX, CONNECT_TIMEOUT_S, Closed, NotKafka, Unreachable, after_tags, place_of
from txbroker.errors import ProtocolError
from txbroker.wire.headers import request_prefix, response_header_version
from txbroker.wire.schema import Request

_SIZE = struct.Struct(">i")
_CHUNK_BYTES = 256 * 1024
_PARTS_MAX = 64  # of one sendmsg; the system's limit is 1024

Answered = Callable[[memoryview], None]


class Waiting(NamedTuple):
    """A request without its answer yet. `answered` gets the answer's body; it is called from `Channel.read`."""

    correlation_id: int
    sent_s: float
    header_version: int
    answered: Answered


class Channel:
    """Requests go out in order, and so do answers come in. LinkFailed from any method: the connection is lost."""

    def __init__(self, host: str, port: int, client_id: str, send_buffer: int = -1, receive_buffer: int = -1) -> None:
        self.place = place_of(host, port)
        self.waiting: deque[Waiting] = deque()
        self._client_id = client_id
        self._correlation_id = 0
        self._unsent: deque[memoryview] = deque()
        self._chunk = bytearray(_CHUNK_BYTES)
        self._chunk_end = 0
        self._frame: bytearray | None = None
        self._frame_end = 0
        try:
            self.socket = socket.create_connection((host, port), CONNECT_TIMEOUT_S)
        except OSError as error:
            raise Unreachable(self.place, error) from None
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for option, size in ((socket.SO_SNDBUF, send_buffer), (socket.SO_RCVBUF, receive_buffer)):
            if size != -1:  # -1: as the system likes, in Kafka's clients too
                self.socket.setsockopt(socket.SOL_SOCKET, option, size)
        self.socket.setblocking(False)

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()

    @property
    def events(self) -> int:
        """What to wait for, in the terms of `selectors`."""
        return selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)

    @property
    def unsent(self) -> bool:
        """Whether something of a request is still to be sent."""
        return bool(self._unsent)

    def send(self, request: type[Request], version: int, parts: Sequence[bytes | bytearray | memoryview], now_s: float,
             answered: Answered | None) -> None:
        """Send a request, as far as the socket takes it; the rest by `write`. Without `answered` no answer is waited for."""
        self._correlation_id = self._correlation_id + 1 & 0x7FFFFFFF
        size = sum(map(len, parts))
        prefix = request_prefix(request, version, self._correlation_id, self._client_id, size)
        if answered is not None:
            header_version = response_header_version(request, version)
            self.waiting.append(Waiting(self._correlation_id, now_s, header_version, answered))
        self._unsent.append(memoryview(prefix))
        self._unsent.extend(map(memoryview, parts))
        self.write()

    def write(self) -> None:
        """Send as much as the socket takes."""
        unsent = self._unsent
        try:
            while unsent:
                count = self.socket.sendmsg([unsent[i] for i in range(min(len(unsent), _PARTS_MAX))])
                while count:
                    first = unsent[0]
                    if count < len(first):
                        unsent[0] = first[count:]
                        break
                    count -= len(first)
                    unsent.popleft()
                while unsent and not len(unsent[0]):
                    unsent.popleft()
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            raise Closed(f"{self.place} closed the connection ({error.strerror or error})") from None

    def read(self) -> None:
        """Take what is there, and give each whole answer to who waits for it."""
        if self._frame is not None:
            self._read_frame()
            return
        count = self._receive(memoryview(self._chunk)[self._chunk_end :])
        if count is None:
            return
        end = self._chunk_end + count
        position = 0
        view = memoryview(self._chunk)
        while end - position >= 4:
            (size,) = _SIZE.unpack_from(self._chunk, position)
            if not 4 <= size <= ANSWER_BYTES_MAX:
                raise NotKafka(f"{self.place} does not answer in Kafka's protocol", bytes(view[position : position + 64]))
            if end - position - 4 < size:
                if size > _CHUNK_BYTES // 2:
                    self._frame = bytearray(size)
                    self._frame_end = end - position - 4
                    self._frame[: self._frame_end] = view[position + 4 : end]
                    position = end
                break
            self._answer(view[position + 4 : position + 4 + size])
            position += 4 + size
        if position:
            self._chunk[: end - position] = bytes(view[position:end])
        self._chunk_end = end - position

    def _read_frame(self) -> None:
        """The rest of an answer that does not fit into the chunk. What it is read into is its own."""
        assert self._frame is not None
        view = memoryview(self._frame)
        while self._frame_end < len(view):
            count = self._receive(view[self._frame_end :])
            if count is None:
                return
            self._frame_end += count
        self._frame = None
        self._answer(view)

    def _receive(self, view: memoryview) -> int | None:
        """Bytes received; None when there are none now."""
        try:
            count = self.socket.recv_into(view)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError as error:
            raise Closed(f"{self.place} closed the connection ({error.strerror or error})") from None
        if not count:
            raise Closed(f"{self.place} closed the connection")
        return count

    def _answer(self, frame: memoryview) -> None:
        if not self.waiting or self.waiting[0].correlation_id != _SIZE.unpack_from(frame)[0]:
            raise NotKafka(f"{self.place} answers what was not asked", bytes(frame[:64]))
        waiting = self.waiting.popleft()
        position = 4
        if waiting.header_version == 1:
            position = after_tags(frame, self.place)
        try:
            waiting.answered(frame[position:])
        except ProtocolError as error:
            raise NotKafka(f"{self.place} answers with nonsense: {error}", bytes(frame[:64])) from None
