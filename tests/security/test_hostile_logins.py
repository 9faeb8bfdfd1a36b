"""Clients that log in with bad intent: lengths that announce gigabytes, and many clients with wrong passwords in a loop."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Iterator

import pytest
from twisted.internet.task import Clock

from tests.security.test_sasl_connection import DELAY_S, LOGIN, WRONG, SaslPeer
from txbroker.security.failed_logins import ANSWERS_PER_S, BURST_S, DELAY_S_MAX, FailedLogins
from txbroker.wire.codec import encode_bytes
from txbroker.wire.headers import request_prefix
from txbroker.wire.messages.api_versions import ApiVersionsRequest
from txbroker.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from txbroker.wire.messages.sasl_handshake import SaslHandshakeRequest
from txbroker.wire.schema import Request

# The largest length as an int32, an int16, and as a varint of compact strings and of tagged fields.
LENGTHS = [struct.pack(">i", 2**31 - 1), struct.pack(">h", 2**15 - 1), b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f"]
MEMORY_MAX = 10_000_000  # of 2 GB; what keeps the lines of the log needs some of it


def requests() -> Iterator[tuple[Request, int]]:
    for version in range(5):
        yield ApiVersionsRequest(client_software_name="name", client_software_version="1"), version
    for version in range(2):
        yield SaslHandshakeRequest(mechanism="PLAIN"), version
    for version in range(3):
        yield SaslAuthenticateRequest(auth_bytes=LOGIN), version


def send(message: Request, frame: bytes) -> SaslPeer:
    """Send a frame on a new connection, in the state for this request."""
    peer = SaslPeer()
    if isinstance(message, SaslAuthenticateRequest):
        peer.handshake()
    peer.send_raw(frame)
    return peer


@pytest.mark.parametrize(("message", "version"), [pytest.param(*each, id=f"{type(each[0]).__name__}-{each[1]}") for each in requests()])
def test_no_length_before_the_login_takes_memory(message: Request, version: int) -> None:
    """CVE-2022-34917: each part of each request may be the largest length."""
    body = encode_bytes(message, version)
    frame = bytes((request_prefix(type(message), version, 7, "client", len(body)) + body)[4:])
    for _ in range(2):  # what is made once, such as decoders
        send(message, frame)
        send(message, frame[:8] + LENGTHS[0])
    tracemalloc.start()
    try:
        for position in range(8, len(frame)):
            for length in LENGTHS:
                for changed in (frame[:position] + length + frame[position + len(length) :], frame[:position] + length):
                    tracemalloc.reset_peak()
                    before, _ = tracemalloc.get_traced_memory()
                    peer = send(message, changed)
                    assert tracemalloc.get_traced_memory()[1] - before < MEMORY_MAX, (position, length)
                    peer.clock.advance(DELAY_S)
                    assert not peer.logged_in or LOGIN in changed, (position, length)
    finally:
        tracemalloc.stop()


class Loop:
    """Clients of one listener that log in with a wrong password, again as soon as they have the answer."""

    def __init__(self, count: int) -> None:
        self.peer = SaslPeer()
        self.answers = 0
        self.longest_s = 0.0
        self._waiting: list[tuple[float, SaslPeer]] = []
        for _ in range(count):
            self._try(self.another())

    def another(self) -> SaslPeer:
        peer = SaslPeer()
        peer.clock, peer.failures, peer.server, peer.registry = self.peer.clock, self.peer.failures, self.peer.server, self.peer.registry
        peer.connect()
        return peer

    def _try(self, peer: SaslPeer) -> None:
        peer.connect()
        peer.handshake()
        peer.login(WRONG)
        peer.replies()
        self._waiting.append((self.peer.clock.seconds(), peer))

    def run(self, seconds: float) -> None:
        """The clients see each answer within a hundredth of a second."""
        for _ in range(round(seconds * 100)):
            self.peer.clock.advance(0.01)
            now_s = self.peer.clock.seconds()
            waiting, self._waiting = self._waiting, []
            for begun_s, peer in waiting:
                if not peer.transport.closing:
                    self._waiting.append((begun_s, peer))
                    continue
                assert peer.login_answer().error_code == 58
                self.answers += 1
                self.longest_s = max(self.longest_s, now_s - begun_s)
                self._try(peer)


def test_many_clients_with_wrong_passwords_are_answered_at_a_bounded_rate() -> None:
    """KAFKA-4206, KAFKA-6950: with the delay of each alone, these would make 2,000 logins a second."""
    loop = Loop(200)
    loop.run(5)
    assert 3 * ANSWERS_PER_S < loop.answers <= ANSWERS_PER_S * (5 + BURST_S)
    assert DELAY_S < loop.longest_s <= DELAY_S_MAX + 0.02
    assert sum(loop.peer.failures.counts.values()) == loop.answers + 200, "each failure is counted"
    good = loop.another()
    good.handshake()
    good.login(LOGIN)
    assert good.answers() == [2, 3] and good.logged_in, "who knows the password does not wait"


def test_more_clients_wait_no_longer_than_their_time_outs() -> None:
    failures = FailedLogins(Clock())
    delays = [failures.delay_s(DELAY_S) for _ in range(5000)]
    assert delays == sorted(delays) and (delays[0], delays[-1]) == (DELAY_S, DELAY_S_MAX)
    assert failures.delay_s(2 * DELAY_S_MAX) == 2 * DELAY_S_MAX, "what is configured is the least"


def test_a_few_failures_are_delayed_as_each_alone() -> None:
    loop = Loop(5)
    loop.run(1)
    assert loop.longest_s < 2 * DELAY_S and loop.answers >= 5 * 5
