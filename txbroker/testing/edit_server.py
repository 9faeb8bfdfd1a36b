"""The functions of `When.edit` in the process of a test, and the port at which brokers have them change answers.

It is there from the first function to the last one.
"""

from __future__ import annotations

import json
import os
import secrets
import selectors
import socket
import threading
from contextlib import suppress

from txbroker.testing.edit_frames import EDITED, FAILED, FRAME_BYTES_MAX, HOST, LATE, SIZE, framed
from txbroker.testing.edit_function import EditFunction

BACKLOG = 1000
PATIENCE_S = 10.0  # with a broker that sends nothing, because it is paused


class EditServer:
    """Of one `Kafka`. A function has a place, PORT/KEY, which its rule names."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listening: _Listening | None = None
        self._owner = os.getpid()

    def add(self, function: EditFunction) -> str:
        """Serve a function; its place."""
        if self._owner != os.getpid():  # a fork has no thread
            self._lock, self._listening, self._owner = threading.Lock(), None, os.getpid()
        with self._lock:
            if self._listening is None:
                self._listening = _Listening()
            return self._listening.add(function)

    def remove(self, place: str) -> None:
        """Serve the function no more."""
        with self._lock:
            if self._listening is not None and not self._listening.remove(place):
                self._listening.close()
                self._listening = None


class _Listening:
    """A thread and its socket. Each answer has another thread, and functions run one after the other."""

    def __init__(self) -> None:
        self._functions: dict[str, EditFunction] = {}
        self._lock = threading.Lock()
        self._turn = threading.Lock()  # to run a function
        self._is_closed = False
        self._open: set[socket.socket] = set()
        self._socket = socket.create_server((HOST, 0), backlog=BACKLOG)
        self._port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, name="txbroker-edit", daemon=True).start()

    def add(self, function: EditFunction) -> str:
        key = secrets.token_hex(16)
        self._functions[key] = function
        return f"{self._port}/{key}"

    def remove(self, place: str) -> int:
        """How many functions are left."""
        self._functions.pop(place.partition("/")[2], None)
        return len(self._functions)

    def close(self) -> None:
        """End the thread, and the connections: brokers send the answers that wait."""
        with self._lock:
            self._is_closed = True
            for connection in self._open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        with suppress(OSError):
            socket.create_connection((HOST, self._port)).close()  # accept() returns

    def _serve(self) -> None:
        with self._socket:
            while True:
                connection, _ = self._socket.accept()
                with self._lock:
                    if self._is_closed:
                        connection.close()
                        return
                    self._open.add(connection)
                threading.Thread(target=self._converse, args=(connection,), name="txbroker-edit-answer", daemon=True).start()

    def _converse(self, connection: socket.socket) -> None:
        with connection, suppress(OSError, EOFError):
            connection.settimeout(PATIENCE_S)
            self._answer(connection)
        with self._lock:
            self._open.discard(connection)

    def _answer(self, connection: socket.socket) -> None:
        function = self._functions.get(_read_frame(connection).decode(errors="replace"))
        if function is None:
            return
        asked, body = json.loads(_read_frame(connection)), _read_frame(connection)
        with function.waiting(lambda: _peeked(connection) == framed(LATE)):
            with self._turn:
                if not _peeked(connection):  # the functions before it did not take too long
                    edited, problem = function.run(asked["api"], asked["version"], body)
                    connection.sendall(framed(FAILED + problem.encode(errors="replace") if edited is None else EDITED + edited))
            _peeked(connection, PATIENCE_S)


def _peeked(connection: socket.socket, timeout_s: float = 0.0) -> bytes:
    """What has arrived and is not read yet: the verdict."""
    with suppress(OSError, ValueError), selectors.DefaultSelector() as selector:  # it may be closed meanwhile
        selector.register(connection, selectors.EVENT_READ)
        if selector.select(timeout_s):
            return connection.recv(SIZE.size + len(LATE), socket.MSG_PEEK)
    return b""


def _read_frame(connection: socket.socket) -> bytes:
    (size,) = SIZE.unpack(_read(connection, SIZE.size))
    if size > FRAME_BYTES_MAX:
        raise EOFError(f"a frame of {size} bytes")
    return _read(connection, size)


def _read(connection: socket.socket, size: int) -> bytes:
    content = bytearray(size)
    view = memoryview(content)
    while view:
        count = connection.recv_into(view)
        if not count:
            raise EOFError("the broker has closed the connection")
        view = view[count:]
    return bytes(content)
