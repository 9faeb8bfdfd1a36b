"""Delegation tokens of brokers that share a metadata tree: their nodes, their rules, and what counts on all brokers."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from tests.support.fakes.turns import Turns
from txbroker.cluster.tree.interface import Tree
from txbroker.cluster.tree.memory import MemoryTrees
from txbroker.cluster.tree.session_tree import SessionTree
from txbroker.errors import BrokerError, ErrorCode
from txbroker.security.delegation_tokens import DelegationTokens, Lifetimes
from txbroker.security.token_nodes import Token, decode_token, encode_token
from txbroker.security.token_store import RELOAD_S, TokenStore

SECRET = b"a secret of all brokers"
ALICE, BOB, CAROL = "User:alice", "User:bob", "User:carol"
HOUR_MS = 3_600_000
LIFETIMES = Lifetimes(max_ms=10 * HOUR_MS, renewal_ms=HOUR_MS)
NOW_MS = 1_700_000_000_000
# As Apache Kafka 3.9.1 writes it.
NODE = (
    b'{"issueTimestamp":1,"renewers":["User%3Acarol"],"tokenRequester":"User%3Abob","tokenId":"an-id","owner":"User%3Aalice",'
    b'"expiryTimestamp":2,"maxTimestamp":3,"version":3}'
)


class Brokers:
    """A tree, and any number of brokers with their sessions."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.trees = MemoryTrees(self.turns.call_soon)
        self.tree = self.trees.session()
        self.clock = Clock()

    def now_ms(self) -> int:
        return NOW_MS + round(self.clock.seconds() * 1000)

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.turns.run()


class Broker:
    def __init__(self, brokers: Brokers, secret: bytes | None = SECRET) -> None:
        self._brokers = brokers
        self.session = brokers.trees.session()
        self.tree = SessionTree(self.session, self._next, lambda: None, brokers.clock, None, lambda: 0.5)
        self.store = TokenStore(self.tree, brokers.clock, lambda: 0.5)
        self.tree.on_renewed(self._renewed)
        self.tokens = DelegationTokens(
            self.store, secret, LIFETIMES, lambda: NOW_MS + round(brokers.clock.seconds() * 1000), random_bytes()
        )
        brokers.turns.result(Deferred.fromCoroutine(self.store.start()))

    def _next(self) -> Deferred[Tree]:
        self.session = self._brokers.trees.session()
        return succeed(self.session)

    async def _renewed(self, _: Tree) -> None:
        self.store.renew()

    def create(self, owner: str = ALICE, *renewers: str, lifetime_ms: int = -1) -> Token:
        return self._brokers.turns.result(self.tokens.create(owner, owner, renewers, lifetime_ms))

    def renew(self, token: Token, principal: str = ALICE, period_ms: int = -1) -> Token:
        return self._brokers.turns.result(self.tokens.renew(principal, self.tokens.hmac_of(token), period_ms))

    def expire(self, token: Token, principal: str = ALICE, period_ms: int = -1) -> Token:
        return self._brokers.turns.result(self.tokens.expire(principal, self.tokens.hmac_of(token), period_ms))

    def ids(self) -> set[str]:
        return {token.id for token in self.tokens.all()}


def random_bytes() -> Callable[[int], bytes]:
    made = iter(range(1000))
    return lambda size: next(made).to_bytes(size)


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


def refused(call: Callable[..., Any], *arguments: Any, **named: Any) -> ErrorCode:
    with pytest.raises(BrokerError) as caught:
        call(*arguments, **named)
    return caught.value.code


def test_the_node_is_that_of_kafka() -> None:
    token = decode_token(NODE, "an-id")
    assert token == Token("an-id", ALICE, BOB, (CAROL,), 1, 3, 2)
    assert encode_token(token) == NODE
    old = b'{"version":1,"owner":"User%3Aalice","renewers":[],"issueTimestamp":1,"maxTimestamp":3,"expiryTimestamp":2,"tokenId":"i"}'
    assert decode_token(old, "i").requester == ALICE


def test_lifetimes(brokers: Brokers) -> None:
    broker = Broker(brokers)
    token = broker.create()
    assert (token.issued_ms, token.expires_ms, token.max_ms) == (NOW_MS, NOW_MS + HOUR_MS, NOW_MS + 10 * HOUR_MS)
    assert broker.create(lifetime_ms=100 * HOUR_MS).max_ms == token.max_ms, "the limit of the broker"
    short = broker.create(lifetime_ms=1000)
    assert (short.max_ms, short.expires_ms) == (NOW_MS + 1000, NOW_MS + 1000)
    brokers.advance(1)
    assert broker.renew(token).expires_ms == NOW_MS + 1000 + HOUR_MS
    assert broker.renew(token, period_ms=2**63 - 1).expires_ms == token.max_ms
    assert broker.expire(token, period_ms=5000).expires_ms == NOW_MS + 6000
    brokers.advance(1)
    assert refused(broker.renew, short) == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert refused(broker.expire, short, period_ms=0) == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert broker.expire(short).expires_ms == NOW_MS + 2000
    assert short.id not in broker.ids()


def test_who_may_change_a_token(brokers: Brokers) -> None:
    broker = Broker(brokers)
    token = broker.create(ALICE, BOB)
    assert broker.renew(token, BOB).id == token.id
    for change in (broker.renew, broker.expire):
        assert refused(change, token, CAROL) == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert refused(broker.tokens.renew, ALICE, b"guess", -1) == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert refused(broker.tokens.expire, ALICE, b"", -1) == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_a_broker_without_a_secret_has_no_tokens(brokers: Brokers) -> None:
    token = Broker(brokers).create()
    without = Broker(brokers, secret=None)
    disabled = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert refused(without.create) == refused(without.tokens.all) == disabled
    assert refused(without.tokens.renew, ALICE, b"x", -1) == refused(without.tokens.expire, ALICE, b"x", -1) == disabled
    assert not without.tokens.is_enabled and token.id


def test_a_change_counts_on_all_brokers(brokers: Brokers) -> None:
    one, other = Broker(brokers), Broker(brokers)
    token = one.create(ALICE, BOB)
    brokers.turns.run()
    assert other.ids() == {token.id} and other.tokens.hmac_of(token) == hmac.digest(SECRET, token.id.encode(), hashlib.sha512)
    assert other.renew(token, BOB, 2 * HOUR_MS).expires_ms == NOW_MS + 2 * HOUR_MS
    brokers.turns.run()
    assert one.tokens.all()[0].expires_ms == NOW_MS + 2 * HOUR_MS
    one.expire(token)
    brokers.turns.run()
    assert other.ids() == set()
    assert refused(other.renew, token) == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_changes_that_nobody_reported_are_read_again(brokers: Brokers) -> None:
    broker = Broker(brokers)
    first, second = broker.create(), broker.create()
    brokers.turns.result(brokers.tree.delete(f"/delegation_token/tokens/{first.id}"))
    brokers.turns.run()
    brokers.trees.expire(broker.session)
    brokers.turns.run()
    assert broker.ids() == {second.id}, "after a new session"
    brokers.turns.result(brokers.tree.delete(f"/delegation_token/tokens/{second.id}"))
    brokers.advance(RELOAD_S)
    assert broker.ids() == set(), "after a while"


@pytest.mark.parametrize("data", [
    b"", b"[" * 100_000, b"{}", NODE.replace(b"an-id", b"other"), NODE.replace(b'"version":3', b'"version":9'),
    NODE.replace(b'"maxTimestamp":3', b'"maxTimestamp":-3'),
    NODE.replace(b'["User%3Acarol"]', b"7"), NODE.replace(b'"User%3Aalice"', b"null"), NODE.replace(b'"expiryTimestamp":2', b'"x":2'),
], ids=range(9))  # fmt: skip
def test_a_node_that_cannot_be_read_is_no_token(brokers: Brokers, data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    one = Broker(brokers)
    good = one.create()
    brokers.turns.result(brokers.tree.create("/delegation_token/tokens/an-id", data))
    with caplog.at_level("ERROR", "txbroker.security"):
        other = Broker(brokers)
        brokers.advance(RELOAD_S)
    assert other.ids() == {good.id} == one.ids()
    assert (
        len([r for r in caplog.records if "until its node is repaired or deleted: /delegation_token/tokens/an-id" in r.getMessage()]) == 2
    )
    assert brokers.turns.result(brokers.tree.get("/delegation_token/tokens/an-id"))[0] == data, "it stays for the administrator"


def test_expired_tokens_are_removed(brokers: Brokers) -> None:
    one, other = Broker(brokers), Broker(brokers)
    short, long = one.create(lifetime_ms=1000), one.create()
    brokers.advance(1)
    assert one.tokens.remove_expired() == [], "it ends after this millisecond"
    brokers.advance(1)
    for removal in one.tokens.remove_expired():
        brokers.turns.result(removal)
    brokers.turns.run()
    assert one.ids() == other.ids() == {long.id} and short.id != long.id


def test_a_login_with_a_token(brokers: Brokers) -> None:
    broker = Broker(brokers)
    token = broker.create()
    login = broker.tokens.login("SCRAM-SHA-256", token.id, b"salt")
    assert login is not None and (login.owner, login.lifetime_ms) == ("alice", HOUR_MS)
    assert broker.tokens.login("SCRAM-SHA-256", "ghost", b"salt") is None
    brokers.advance(HOUR_MS / 1000 + 1)
    assert broker.tokens.login("SCRAM-SHA-256", token.id, b"salt") is None, "it has ended"
    other = broker.create()
    assert broker.tokens.login("SCRAM-SHA-256", other.id, b"salt") is not None
    broker.expire(other)
    assert broker.tokens.login("SCRAM-SHA-256", other.id, b"salt") is None, "it is removed"


def test_an_owner_that_is_no_user_cannot_log_in(brokers: Brokers) -> None:
    """Else its login would be that of the user with the same name."""
    broker = Broker(brokers)
    token = broker.create("Group:admin")
    assert broker.tokens.login("SCRAM-SHA-256", token.id, b"salt") is None
