"""Delegation tokens of brokers that share a metadata tree: their nodes, their rules, and what counts on all brokers."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.task import Clock

from simulation.memory_disk import MemoryDisk
from tests.config.configs import broker_config
from tests.support.fakes.environment import fake_environment
from tests.support.fakes.reactor import FakeReactor
from tests.support.fakes.turns import Turns
from txbroker.api.registry import Registry
from txbroker.broker.token_service import TokenService
from txbroker.cluster.tree.interface import Tree
from txbroker.cluster.tree.memory import MemoryTrees
from txbroker.cluster.tree.session_tree import SessionTree
from txbroker.errors import BrokerError, ErrorCode
from txbroker.security import delegation_tokens
from txbroker.security.delegation_tokens import DelegationTokens, Lifetimes
from txbroker.security.reported_nodes import RELOAD_S
from txbroker.security.sasl_exchange import LoginFailed
from txbroker.security.scram import ScramCredential, ScramExchange
from txbroker.security.token_nodes import Token, decode_token, encode_token, token_password
from txbroker.security.token_store import TokenStore
from txbroker.wire import scram

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
        self.jobs: list[Callable[[], object]] = []
        self.session = brokers.trees.session()
        self.tree = SessionTree(self.session, self._next, lambda: None, brokers.clock, None, lambda: 0.5)
        self.store = TokenStore(self.tree, brokers.clock, lambda: 0.5, is_shared=True)
        self.tree.on_renewed(self._renewed)
        self.tokens = DelegationTokens(
            self.store, secret, LIFETIMES, lambda: NOW_MS + round(brokers.clock.seconds() * 1000), random_bytes(), self._in_worker
        )
        brokers.turns.result(Deferred.fromCoroutine(self.store.start()))

    def _next(self) -> Deferred[Tree]:
        self.session = self._brokers.trees.session()
        return succeed(self.session)

    async def _renewed(self, _: Tree) -> None:
        self.store.renew()

    def _in_worker(self, job: Callable[[], Any]) -> Deferred[Any]:
        later: Deferred[Any] = Deferred()
        self.jobs.append(lambda: maybeDeferred(job).chainDeferred(later))
        return later

    def work(self) -> None:
        """Do the jobs of workers."""
        while self.jobs:
            self.jobs.pop(0)()

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


def remove_expired(brokers: Brokers, broker: Broker) -> None:
    brokers.turns.result(Deferred.fromCoroutine(broker.tokens.remove_expired()))


def test_expired_tokens_are_removed(brokers: Brokers) -> None:
    one, other = Broker(brokers), Broker(brokers)
    short, long = one.create(lifetime_ms=1000), one.create()
    brokers.advance(1)
    remove_expired(brokers, one)
    assert one.ids() == {short.id, long.id}, "it ends after this millisecond"
    brokers.advance(1)
    remove_expired(brokers, one)
    brokers.turns.run()
    assert one.ids() == other.ids() == {long.id} and short.id != long.id


def test_an_expired_token_that_another_broker_has_changed(brokers: Brokers) -> None:
    """What this broker does not know yet: one is removed, and one renewed, which is not written again."""
    one, other = Broker(brokers), Broker(brokers)
    gone, renewed, ended = (one.create(lifetime_ms=lifetime_ms) for lifetime_ms in (1000, 2 * HOUR_MS, 1000))
    brokers.advance(HOUR_MS / 1000 - 1)
    one.store.stop()
    brokers.trees.expire(one.session)
    stale = {token.id: token for token in (gone, renewed, ended)}
    other.renew(renewed)
    other.expire(gone)
    brokers.advance(2)
    one.store.tokens = stale
    path = f"/delegation_token/tokens/{renewed.id}"
    _, before = brokers.turns.result(brokers.tree.get(path))
    remove_expired(brokers, one)
    _, after = brokers.turns.result(brokers.tree.get(path))
    assert after.version == before.version, "it is not written"
    assert one.ids() == {renewed.id} and one.store.tokens[renewed.id].expires_ms > renewed.expires_ms


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


def test_a_credential_is_derived_in_a_worker_and_kept(brokers: Brokers) -> None:
    """It takes milliseconds, in which no client would be served."""
    broker = Broker(brokers)
    token = broker.create()
    first = broker.tokens.login("SCRAM-SHA-256", token.id, b"salt")
    second = broker.tokens.login("SCRAM-SHA-256", token.id, b"salt")
    assert first is not None and second is not None and first.credential is second.credential
    assert first.credential.derived is None and len(broker.jobs) == 1
    waits = first.credential.wait(), second.credential.wait()
    fired: list[None] = []
    for each in waits:
        assert each is not None
        each.addCallback(fired.append)
    broker.work()
    assert len(fired) == 2 and first.credential.wait() is None
    password = token_password(SECRET, token.id).encode()
    salted = hashlib.pbkdf2_hmac("sha256", password, b"salt", 4096)
    assert first.credential.derived == ScramCredential.of_salted("SCRAM-SHA-256", b"salt", salted, 4096)
    # Those of tokens that do not exist any more are not kept.
    for _ in range(10):
        other = broker.create()
        broker.tokens.login("SCRAM-SHA-256", other.id, b"salt")
        broker.expire(other)
    assert len(broker.tokens._credentials) <= 4


def test_a_credential_that_cannot_be_derived_lets_nobody_in(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker(brokers)
    token = broker.create()
    monkeypatch.setattr(scram, "salted_password", lambda *_: 1 // 0)
    exchange = ScramExchange("SCRAM-SHA-256", lambda _: None, "server", b"secret", broker.tokens.login)
    assert exchange.respond(f"n,,n={token.id},r=client,tokenauth=true".encode()).startswith(b"r=clientserver,s=")
    assert exchange.wait() is not None
    broker.work()
    assert exchange.wait() is None
    with pytest.raises(LoginFailed, match="SASL_AUTHENTICATION_FAILED"):
        exchange.respond(b"c=biws,r=clientserver,p=AAAA")
    assert f"the credential of delegation token {token.id} could not be derived" in caplog.text
    again = broker.tokens.login("SCRAM-SHA-256", token.id, b"salt")
    assert again is not None and again.credential.wait() is not None, "the next login tries again"


def test_bounds(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(brokers)
    policy = ErrorCode.POLICY_VIOLATION
    renewers = [f"User:{number}" for number in range(delegation_tokens.RENEWERS_MAX)]
    assert broker.create(ALICE, *renewers).renewers == tuple(renewers)
    assert refused(broker.create, ALICE, *renewers, "User:one-more") == policy
    assert refused(broker.create, ALICE, f"User:{'x' * delegation_tokens.TOKEN_BYTES_MAX}") == policy
    monkeypatch.setattr(delegation_tokens, "REQUESTED_MAX", 3)
    monkeypatch.setattr(delegation_tokens, "TOKENS_MAX", 5)
    tokens = [broker.create(ALICE) for _ in range(2)]
    assert refused(broker.create, ALICE) == policy, "others can still make some"
    for _ in range(2):
        broker.create(BOB)
    assert refused(broker.create, CAROL) == policy
    broker.expire(tokens[0])
    broker.create(CAROL)


def test_problems_of_tokens_that_are_gone_are_forgotten(brokers: Brokers) -> None:
    broker = Broker(brokers)
    path = "/delegation_token/tokens/damaged"
    brokers.turns.result(brokers.tree.create(path, b"{}"))
    brokers.advance(RELOAD_S)
    assert len(broker.store.problems) == 1
    brokers.turns.result(brokers.tree.delete(path))
    brokers.advance(RELOAD_S)
    assert len(broker.store.problems) == 0


def test_passwords_find_their_tokens_after_many_changes(brokers: Brokers) -> None:
    broker = Broker(brokers)
    for _ in range(20):
        token, other = broker.create(), broker.create()
        assert broker.renew(token).id == token.id
        broker.expire(token)
        assert refused(broker.renew, token) == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        assert broker.renew(other).id == other.id
        broker.expire(other)
    assert len(broker.tokens._ids) <= 4


def test_removals_do_not_accumulate_while_the_metadata_is_slow(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    reactor = FakeReactor()
    environment = fake_environment(reactor, MemoryDisk(), Random(1))
    expired = Broker(brokers)
    for _ in range(3):
        expired.create(lifetime_ms=1)
    config = broker_config("delegation.token.secret.key=s\ndelegation.token.expiry.check.interval.ms=1000\n")
    service = TokenService(environment, config, expired.tree)
    brokers.turns.result(Deferred.fromCoroutine(service.start()))
    service.serve(Registry([]), lambda: True)
    begun: list[str] = []
    change = TokenStore.change

    def noted(self: TokenStore, token_id: str, how: Any) -> Any:
        begun.append(token_id)
        return change(self, token_id, how)

    monkeypatch.setattr(TokenStore, "change", noted)
    monkeypatch.setattr(Token, "is_expired", lambda self, now_ms: True)
    reactor.advance(10.0)
    assert len(begun) == 1, "one at a time, however often the check is due"
    brokers.turns.run()
    assert len(begun) == 3
    brokers.turns.run()
    reactor.advance(1.0)
    assert brokers.turns.result(brokers.tree.children("/delegation_token/tokens")) == []
    service.stop()


def test_an_owner_that_is_no_user_cannot_log_in(brokers: Brokers) -> None:
    """Else its login would be that of the user with the same name."""
    broker = Broker(brokers)
    token = broker.create("Group:admin")
    assert broker.tokens.login("SCRAM-SHA-256", token.id, b"salt") is None
