"""Delegation tokens (KIP-48): made, renewed, ended and used for logins, by the rules of Kafka's DelegationTokenManagerZk.

Kafka has no bounds; those here are for the memory of all brokers, each of which keeps every token.
"""

from __future__ import annotations

import base64
import hashlib
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from txbroker.errors import BrokerError, ErrorCode
from txbroker.security.scram import ScramCredential, TokenCredential, TokenLogin
from txbroker.security.token_nodes import USER_TYPE, Token, encode_token, token_hmac, token_password
from txbroker.security.token_store import TokenNotFound, TokenStore
from txbroker.wire import scram
from txbroker.wire.scram import HASHES, ITERATIONS_MIN

log = logging.getLogger("txbroker.security")

ID_BYTES = 16
TOKENS_MAX = 100_000
REQUESTED_MAX = 10_000  # by one principal, so that it leaves some for others
RENEWERS_MAX = 100
TOKEN_BYTES_MAX = 16_384  # of its node
_TIME_MAX = 2**63 - 1


class Lifetimes(NamedTuple):
    """delegation.token.max.lifetime.ms and delegation.token.expiry.time.ms."""

    max_ms: int
    renewal_ms: int


class DelegationTokens:
    """`secret`: that of all brokers; None: there are no tokens, and all calls but `login` raise DELEGATION_TOKEN_AUTH_DISABLED.

    `now_ms`: the wall clock.
    """

    def __init__(
        self,
        store: TokenStore,
        secret: bytes | None,
        lifetimes: Lifetimes,
        now_ms: Callable[[], int],
        random_bytes: Callable[[int], bytes],
        in_worker: Callable[[Callable[[], Any]], Deferred[Any]],
    ) -> None:
        self._store = store
        self.now_ms = now_ms
        self._kept_secret = secret
        self._lifetimes = lifetimes
        self._random_bytes = random_bytes
        self._in_worker = in_worker
        self._credentials: dict[tuple[str, str], TokenCredential] = {}
        self._ids: dict[bytes, str] = {}  # by the digest of the password

    @property
    def is_enabled(self) -> bool:
        """Whether there can be tokens."""
        return self._kept_secret is not None

    @property
    def _secret(self) -> bytes:
        if self._kept_secret is None:
            raise BrokerError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, "delegation.token.secret.key is not set.")
        return self._kept_secret

    def all(self) -> list[Token]:
        """Those that exist; BrokerError."""
        assert self._secret
        return list(self._store.tokens.values())

    def hmac_of(self, token: Token) -> bytes:
        """The password of a token."""
        return token_hmac(self._secret, token.id)

    def create(self, owner: str, requester: str, renewers: tuple[str, ...], max_lifetime_ms: int) -> Deferred[Token]:
        """A new token, as soon as it counts; BrokerError, POLICY_VIOLATION for one more than there may be.

        `max_lifetime_ms`: 0 or less for the default.
        """
        assert self._secret
        token_id = base64.urlsafe_b64encode(self._random_bytes(ID_BYTES)).decode().rstrip("=")
        now_ms, longest_ms = self.now_ms(), self._lifetimes.max_ms
        max_ms = _later(now_ms, min(max_lifetime_ms, longest_ms) if max_lifetime_ms > 0 else longest_ms)
        token = Token(token_id, owner, requester, renewers, now_ms, max_ms, min(max_ms, _later(now_ms, self._lifetimes.renewal_ms)))
        self._check_bounds(token)
        return self._store.add(token).addCallback(lambda _: token)

    def renew(self, principal: str, password: bytes, period_ms: int) -> Deferred[Token]:
        """Let a token end after another time; what it is then. `period_ms`: below 0 for the default. BrokerError."""
        return self._end_after(self._of(principal, password), self._lifetimes.renewal_ms if period_ms < 0 else period_ms)

    def expire(self, principal: str, password: bytes, period_ms: int) -> Deferred[Token]:
        """Let a token end after a time, or remove it at once if that is below 0: its `expires_ms` is now. BrokerError."""
        token = self._of(principal, password)
        if period_ms >= 0:
            return self._end_after(token, period_ms)
        removed = token._replace(expires_ms=self.now_ms())
        return self._store.change(token.id, lambda _: None).addCallback(lambda _: removed)

    async def remove_expired(self) -> None:
        """Remove the tokens that have ended, one after the other; BrokerError, of the first that could not be removed."""
        for token in [token for token in self._store.tokens.values() if token.is_expired(self.now_ms())]:
            with suppress(TokenNotFound):  # another broker has removed it
                await self._store.change(token.id, lambda found: None if found.is_expired(self.now_ms()) else found)

    def login(self, mechanism: str, token_id: str, salt: bytes) -> TokenLogin | None:
        """What a client must prove that logs in with a token; None if there is none, or it has ended.

        A client that logs in is a user: a token of an owner of another type, which only another program can write, counts as none.
        """
        token = self._store.tokens.get(token_id)
        if token is None or token.is_expired(self.now_ms()) or not token.owner.startswith(f"{USER_TYPE}:"):
            return None
        key = mechanism, token_id
        credential = self._credentials.get(key)
        if credential is None:
            if len(self._credentials) > len(HASHES) * len(self._store.tokens):
                self._credentials = {each: kept for each, kept in self._credentials.items() if each[1] in self._store.tokens}
            credential = self._credentials[key] = self._derived(mechanism, token_id, salt)
        return TokenLogin(credential, token.owner.partition(":")[2], token.expires_ms - self.now_ms())

    def _derived(self, mechanism: str, token_id: str, salt: bytes) -> TokenCredential:
        password = token_password(self._secret, token_id)

        def derive() -> ScramCredential:
            salted = scram.salted_password(HASHES[mechanism], password, salt, ITERATIONS_MIN)
            return ScramCredential.of_salted(mechanism, salt, salted, ITERATIONS_MIN)

        def failed(failure: Failure) -> None:
            self._credentials.pop((mechanism, token_id), None)
            log.error("internal error: the credential of delegation token %s could not be derived: %s", token_id, failure.getTraceback())

        return TokenCredential(salt, self._in_worker(derive).addErrback(failed))

    def _check_bounds(self, token: Token) -> None:
        tokens = self._store.tokens
        bounds = (
            (len(tokens) >= TOKENS_MAX, f"There are {len(tokens)} delegation tokens; expire some"),
            (
                sum(each.requester == token.requester for each in tokens.values()) >= REQUESTED_MAX,
                f"{token.requester} has {REQUESTED_MAX} delegation tokens; expire some",
            ),
            (len(token.renewers) > RENEWERS_MAX, f"A delegation token can have {RENEWERS_MAX} renewers"),
            (len(encode_token(token)) > TOKEN_BYTES_MAX, f"The names in a delegation token can have {TOKEN_BYTES_MAX} bytes"),
        )
        for is_exceeded, why in bounds:
            if is_exceeded:
                raise BrokerError(ErrorCode.POLICY_VIOLATION, f"{why}.")

    def _end_after(self, known: Token, period_ms: int) -> Deferred[Token]:
        def changed(token: Token) -> Token:
            now_ms = self.now_ms()
            if token.is_expired(now_ms):
                raise BrokerError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
            return token._replace(expires_ms=min(token.max_ms, _later(now_ms, period_ms)))

        def found(token: Token | None) -> Token:
            assert token is not None, "it was not removed"
            return token

        return self._store.change(known.id, changed).addCallback(found)

    def _of(self, principal: str, password: bytes) -> Token:
        """The token with this password, which the principal may renew and end."""
        token = self._with_password(password)
        if token is None:
            raise BrokerError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        if not token.may_renew(principal):
            raise BrokerError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
        return token

    def _with_password(self, password: bytes) -> Token | None:
        """Found by digests, so that the time does not show how much of a password is right."""
        assert self._secret
        tokens = self._store.tokens
        if len(self._ids) > 2 * len(tokens):
            self._ids = {digest: token_id for digest, token_id in self._ids.items() if token_id in tokens}
        for token_id in tokens.keys() - self._ids.values():
            self._ids[hashlib.sha256(self.hmac_of(tokens[token_id])).digest()] = token_id
        found = self._ids.get(hashlib.sha256(password).digest())
        return None if found is None else tokens.get(found)


def _later(now_ms: int, period_ms: int) -> int:
    return min(now_ms + period_ms, _TIME_MAX)
