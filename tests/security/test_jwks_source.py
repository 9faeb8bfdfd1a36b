"""When the keys of tokens are read, and what a read that fails leaves."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from twisted.internet.defer import Deferred, execute
from twisted.internet.task import Clock

from tests.support.oauth import SigningKey, jwks
from txbroker.backoff import Backoff
from txbroker.broker import jwks_source
from txbroker.broker.jwks_source import MISSING_AGAIN_S, MISSING_MAX, JwksSource
from txbroker.client.web_document import NoDocument

ONE, TWO = SigningKey("one"), SigningKey("two")
REFRESH_S = 3600.0


class Source(JwksSource):
    """Reads `document`, or fails if it is an exception. `reads`: how often."""

    def __init__(self, document: bytes | Exception) -> None:
        self.document = document
        self.reads = 0
        self.clock = Clock()
        super().__init__("https://idp.example/keys", self._document, self.clock, execute, REFRESH_S, Backoff(lambda: 0.5, 0.1, 10.0))

    def _document(self) -> bytes:
        self.reads += 1
        if isinstance(self.document, Exception):
            raise self.document
        return self.document

    def finds(self, kid: str) -> bool:
        return self.find(kid, "RS256") is not None


def started(document: bytes | Exception) -> Source:
    source = Source(document)
    fired: list[None] = []
    source.start().addCallback(fired.append)
    assert fired == [None], "after the first attempt, also after one that fails"
    return source


def test_keys_are_read_at_the_start_and_at_intervals() -> None:
    source = started(jwks(ONE))
    assert source.finds("one") and source.reads == 1
    source.document = jwks(TWO)
    source.clock.advance(REFRESH_S)
    assert source.reads == 2 and source.finds("two") and not source.finds("one")
    source.stop()
    assert source.clock.getDelayedCalls() == []


def test_an_unknown_key_causes_a_read_once_a_minute() -> None:
    source = started(jwks(ONE))
    source.document = jwks(ONE, TWO)
    assert not source.finds("two") and source.reads == 2, "this token is refused, as by Kafka"
    assert source.finds("two") and source.reads == 2
    for _ in range(5):
        assert not source.finds("ghost")
    assert source.reads == 3
    source.clock.advance(MISSING_AGAIN_S)
    assert not source.finds("ghost") and source.reads == 4
    assert source.find(None, "ES256") is None and source.reads == 4, "without a name of a key"
    assert not source.finds("x" * 1001) and source.reads == 4
    assert len(source.clock.getDelayedCalls()) == 1


def test_many_unknown_keys_cause_few_reads() -> None:
    source = started(jwks(ONE))
    for number in range(1000):
        source.finds(f"ghost {number}")
    assert source.reads == 1 + MISSING_MAX and len(source._missing) == MISSING_MAX
    source.clock.advance(MISSING_AGAIN_S)
    source.finds("another")
    assert source.reads == 2 + MISSING_MAX


@pytest.mark.parametrize("broken", [NoDocument("the server answers with the status 500"), b"<html>", b"{}"])
def test_a_read_that_fails_keeps_the_keys_and_is_repeated(broken: bytes | Exception, caplog: pytest.LogCaptureFixture) -> None:
    source = started(jwks(ONE))
    source.document = broken
    source.clock.advance(REFRESH_S)
    assert source.finds("one")
    assert "cannot be read from https://idp.example/keys, so the keys stay as they were" in caplog.text
    reads = source.reads
    source.clock.pump([0.1] * 2000)
    assert 15 < source.reads - reads < 35, "with a back-off"
    source.document = jwks(TWO)
    source.clock.pump([0.1] * 130)
    assert source.finds("two")
    reads = source.reads
    source.clock.advance(REFRESH_S)
    assert source.reads == reads + 1, "the timer goes on"


def test_a_start_without_keys(caplog: pytest.LogCaptureFixture) -> None:
    source = started(NoDocument("connection refused"))
    assert not source.finds("one") and source.keys is None
    assert "so all tokens are refused: connection refused" in caplog.text
    source.document = jwks(ONE)
    with caplog.at_level(logging.INFO, jwks_source.log.name):
        source.clock.advance(1)
    assert source.finds("one") and "tokens are verified by 1 key of https://idp.example/keys" in caplog.text


def test_an_empty_set_of_keys_takes_the_keys_away(caplog: pytest.LogCaptureFixture) -> None:
    source = started(jwks(ONE))
    source.document = jwks()
    source.clock.advance(REFRESH_S)
    assert not source.finds("one")
    assert "all tokens are refused: https://idp.example/keys has no key" in caplog.text


def test_a_defect_is_logged_and_repeated(caplog: pytest.LogCaptureFixture) -> None:
    source = started(TypeError("a defect"))
    assert "internal error" in caplog.text
    source.document = jwks(ONE)
    source.clock.advance(1)
    assert source.finds("one")


def test_a_stop_while_keys_are_read() -> None:
    source = Source(jwks(ONE))
    waiting: Deferred[Any] = Deferred()
    source._in_worker = lambda job: waiting
    source.start()
    source.stop()
    waiting.callback(())
    assert source.keys is None and source.clock.getDelayedCalls() == []
    source = started(NoDocument("x"))
    source.stop()
    source.clock.advance(100)
    assert source.reads == 1 and source.clock.getDelayedCalls() == []
