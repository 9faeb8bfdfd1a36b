"""Delegation tokens (KIP-48): made, renewed, ended and used for logins, by the rules of Kafka's DelegationTokenManagerZk."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable
from typing import NamedTuple

from twisted.internet.defer import Deferred

from txbroker.errors import BrokerError, ErrorCode
from txbroker.security.scram import ScramCredential, TokenLogin
from txbroker.security.token_nodes import USER_TYPE, Token, token_hmac, token_password
from txbroker.security.token_store import TokenStore
from txbroker.wire import scram
from txbroker.wire.scram import HASHES, ITERATIONS_MIN

ID_BYTES = 16
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
    ) -> None:
        self._store = store
        self.now_ms = now_ms
        self._kept_secret = secret
        self._lifetimes = lifetimes
        self._random_bytes = random_bytes
        self._credentials: dict[tuple[str, str], ScramCredential] = {}

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
        """A new token, as soon as it counts; BrokerError. `max_lifetime_ms`: 0 or less for the default."""
        assert self._secret
        token_id = base64.urlsafe_b64encode(self._random_bytes(ID_BYTES)).decode().rstrip("=")
        now_ms, longest_ms = self.now_ms(), self._lifetimes.max_ms
        max_ms = _later(now_ms, min(max_lifetime_ms, longest_ms) if max_lifetime_ms > 0 else longest_ms)
        token = Token(token_id, owner, requester, renewers, now_ms, max_ms, min(max_ms, _later(now_ms, self._lifetimes.renewal_ms)))
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

    def remove_expired(self) -> list[Deferred[Token | None]]:
        """Remove the tokens that have ended."""
        return [
            self._store.change(token.id, lambda found: None if found.is_expired(self.now_ms()) else found)
            for token in list(self._store.tokens.values())
            if token.is_expired(self.now_ms())
        ]

    def login(self, mechanism: str, token_id: str, salt: bytes) -> TokenLogin | None:
        """What a client must prove that logs in with a token; None if there is none, or it has ended.

        A client that logs in is a user: a token of an owner of another type, which only another program can write, counts as none.
        """
        token = self._store.tokens.get(token_id)
        if token is None or token.is_expired(self.now_ms()) or not token.owner.startswith(f"{USER_TYPE}:"):
            return None
        credential = self._credentials.get((mechanism, token_id))
        if credential is None:
            salted = scram.salted_password(HASHES[mechanism], token_password(self._secret, token_id), salt, ITERATIONS_MIN)
            credential = ScramCredential.of_salted(mechanism, salt, salted, ITERATIONS_MIN)
            kept = {key: each for key, each in self._credentials.items() if key[1] in self._store.tokens}
            self._credentials = {**kept, (mechanism, token_id): credential}
        return TokenLogin(credential, token.owner.partition(":")[2], token.expires_ms - self.now_ms())

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
        """Compared by digests, so that the time does not show how much of a password is right."""
        assert self._secret
        wanted = hashlib.sha256(password).digest()
        return next(
            (t for t in self._store.tokens.values() if hmac.compare_digest(hashlib.sha256(self.hmac_of(t)).digest(), wanted)), None
        )


def _later(now_ms: int, period_ms: int) -> int:
    return min(now_ms + period_ms, _TIME_MAX)
