"""The messages of OAUTHBEARER, as a server sees them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txbroker.security.sasl_exchange import LoginFailed
from txbroker.security.sasl_oauthbearer import REFUSED, TOKENS_MAX, AcceptedToken, InvalidToken, OauthExchange

LIFETIME_MS = 5000


def exchange() -> OauthExchange:
    return OauthExchange(validate)


def validate(token: str) -> AcceptedToken:
    if not token.startswith("good"):
        raise InvalidToken("the token has expired", "carol")
    return AcceptedToken("a,b" if token == "good-comma" else "alice", LIFETIME_MS)


@pytest.mark.parametrize("message", [
    "n,,\1auth=Bearer good\1\1", "n,,\1auth=bEARER   good\1\1", "n,a=alice,\1auth=Bearer good\1\1",
    "n,a=a=2Cb,\1auth=Bearer good-comma\1\1",
    "n,,\1host=broker.example\1port=9092\1auth=Bearer good\1\1", "n,,\1auth=Bearer good\1logicalCluster=lkc-1\1\1",
    "n,,\1auth=Bearer good.~+/-_==\1\1",
])  # fmt: skip
def test_a_login(message: str) -> None:
    server = exchange()
    assert server.respond(message.encode()) == b""
    assert server.is_complete and server.lifetime_ms == LIFETIME_MS and server.user in ("alice", "a,b")


@pytest.mark.parametrize("message", [
    "", "\1", "x", "n,,\1\1", "y,,\1auth=Bearer good\1\1", "p=x,,\1auth=Bearer good\1\1", "n,,\1auth=Bearer good\1",
    "n,,\1auth=Basic good\1\1",
    "n,,\1auth=Bearer\1\1", "n,,\1auth=Bearer a b\1\1", "n,,\1auth=Bearer \xe4\1\1", "n,,\1auth=Bearer good\1\1\1",
    "n,b=alice,\1auth=Bearer good\1\1",
    "n,,\1auth=Bearer good\1key1=x\1\1",
])  # fmt: skip
def test_malformed_messages(message: str) -> None:
    with pytest.raises(LoginFailed) as failed:
        exchange().respond(message.encode())
    assert failed.value.message is None, "the client gets the text of all mechanisms"


def test_another_authorization_id() -> None:
    server = exchange()
    with pytest.raises(LoginFailed) as failed:
        server.respond(b"n,a=admin,\1auth=Bearer good\1\1")
    assert failed.value.message == ("Authentication failed: Client requested an authorization id (admin) that is different from the "
                                    "token's principal name (alice)")  # fmt: skip
    assert not server.is_complete


def test_a_refused_token_is_answered_before_the_login_fails() -> None:
    server = exchange()
    assert server.respond(b"n,,\1auth=Bearer old\1\1") == REFUSED == b'{"status":"invalid_token"}'
    assert not server.is_complete and server.user == "carol"
    with pytest.raises(LoginFailed) as failed:
        server.respond(b"\1")
    assert failed.value.message == REFUSED.decode() and failed.value.reason == "the token has expired"


def test_another_token_may_follow_but_not_for_ever() -> None:
    server = exchange()
    server.respond(b"n,,\1auth=Bearer old\1\1")
    assert server.respond(b"n,,\1auth=Bearer good\1\1") == b"" and server.is_complete
    server = exchange()
    for _ in range(TOKENS_MAX):
        assert server.respond(b"n,,\1auth=Bearer old\1\1") == REFUSED
    with pytest.raises(LoginFailed) as failed:
        server.respond(b"n,,\1auth=Bearer good\1\1")
    assert failed.value.reason == "10 tokens were refused, the last one as the token has expired" and not server.is_complete


@given(st.binary(max_size=80) | st.text("n,a=\1Bearuth g=2C", max_size=40).map(str.encode))
def test_any_bytes(message: bytes) -> None:
    server = exchange()
    try:
        assert server.respond(message) in (b"", REFUSED)
    except LoginFailed:
        assert not server.is_complete
