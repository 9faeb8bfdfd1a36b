"""Answers of a broker that a function in the process of a test changes. Each of them waits for a limited time."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Protocol

from twisted.internet import protocol
from twisted.python.failure import Failure

from txbroker.testing.edit_frames import EDITED, FRAME_BYTES_MAX, HOST, LATE, PLACE, REMOVED, SIZE, TAKEN, framed
from txbroker.testing.rule_set import ActiveRule

Done = Callable[[bytes | None, str], None]  # with the body of the changed answer, or None and why there is none


class EditCalls(Protocol):
    """Calls of the functions of rules."""

    def ask(self, rule: ActiveRule, api: str, version: int, body: memoryview, done: Done) -> None:
        """Have the function of the rule change an answer; `done` is called once, later."""

    def end(self, rule: int) -> None:
        """The rule was removed: what waits for its function is done."""


class RemoteEdits:
    """Satisfies `EditCalls`: functions in other processes. `reactor`: of Twisted."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._waiting: dict[int, set[_Call]] = {}

    def ask(self, rule: ActiveRule, api: str, version: int, body: memoryview, done: Done) -> None:
        """See `EditCalls`."""
        place = PLACE.fullmatch(rule.spec.function)
        assert place is not None
        waiting = self._waiting.setdefault(rule.number, set())
        asked = json.dumps({"api": api, "version": version}).encode()
        call = _Call([place["key"].encode(), asked, bytes(body)], waiting, done)
        call.timer = self._reactor.callLater(rule.spec.seconds, call.finish, None, f"no answer within {rule.spec.seconds:g} s", LATE)
        self._reactor.connectTCP(HOST, int(place["port"]), _Caller(call), timeout=rule.spec.seconds)

    def end(self, rule: int) -> None:
        """See `EditCalls`."""
        for call in list(self._waiting.pop(rule, ())):
            call.finish(None, "the rule was removed meanwhile", REMOVED)


class _Call:
    """One answer that waits. `frames`: what is sent. `waiting`: the calls of its rule."""

    def __init__(self, frames: list[bytes], waiting: set[_Call], done: Done) -> None:
        self.frames = frames
        self.timer: Any = None
        self.connection: _Connection | None = None
        self._waiting = waiting
        self._done: Done | None = done
        waiting.add(self)

    @property
    def is_done(self) -> bool:
        """Whether it waits no more."""
        return self._done is None

    def finish(self, edited: bytes | None, problem: str, verdict: bytes) -> None:
        """It waits no more. The second time nothing happens."""
        if self._done is None:
            return
        done, self._done = self._done, None
        self._waiting.discard(self)
        if self.timer.active():
            self.timer.cancel()
        if self.connection is not None:
            self.connection.send(verdict)  # the other side closes the connection
        done(edited, problem)


class _Connection(protocol.Protocol):
    factory: _Caller
    transport: Any

    def __init__(self) -> None:
        self._received = bytearray()

    def connectionMade(self) -> None:
        call = self.factory.call
        if call.is_done:
            self.transport.abortConnection()
            return
        call.connection = self
        for frame in call.frames:
            self.send(frame)

    def send(self, frame: bytes) -> None:
        self.transport.write(framed(frame))

    def dataReceived(self, data: bytes) -> None:
        """One frame follows: the result."""
        received = self._received
        received += data
        if len(received) < SIZE.size:
            return
        (size,) = SIZE.unpack_from(received)
        if size > FRAME_BYTES_MAX:
            self.transport.abortConnection()
        elif len(received) == SIZE.size + size:
            kind, content = received[SIZE.size : SIZE.size + 1], bytes(memoryview(received)[SIZE.size + 1 :])
            if kind == EDITED:
                self.factory.call.finish(content, "", TAKEN)
            else:
                self.factory.call.finish(None, content.decode(errors="replace"), TAKEN)

    def connectionLost(self, reason: Failure = protocol.connectionDone) -> None:
        call = self.factory.call
        call.connection = None
        call.finish(None, "the process of the test has ended, or serves the function no more", REMOVED)


class _Caller(protocol.ClientFactory):
    protocol: Any = _Connection
    noisy = False

    def __init__(self, call: _Call) -> None:
        self.call = call

    def clientConnectionFailed(self, connector: Any, reason: Failure) -> None:
        self.call.finish(None, f"the process of the test cannot be reached: {reason.getErrorMessage()}", REMOVED)
