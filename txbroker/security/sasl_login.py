"""The login of a connection by SASL, without the connection: which mechanism, whose turn it is, and how long it lasts (KIP-43, 152, 368).

A mechanism is chosen by `begin`; then the client's messages come to `respond` until the login is complete. A session with a lifetime can be
renewed: `renew`, then as before, by the same user and mechanism.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

from twisted.internet.defer import Deferred

from txbroker.clock import Clock
from txbroker.errors import ErrorCode
from txbroker.security.failed_logins import FailedLogins
from txbroker.security.sasl_exchange import Cause, Exchange, LoginFailed, shown_user

RENEWAL_INTERVAL_S = 1.0  # Kafka's KafkaChannel: a client may not renew its session more often
MECHANISM_NAME_MAX = 100  # of one that is not enabled, in the log


class Turn(Enum):
    """What a login expects."""

    MECHANISM = "the client names a mechanism"
    MESSAGE = "the client sends a message of the mechanism"
    NOTHING = "the client has logged in"


class SaslServer:
    """What the logins of one listener share.

    `mechanisms`: makes the exchange of a login, by the names of the enabled ones, in the order that clients see. `lifetimes_ms`: how long a
    session lasts by mechanism; 0 for ever. `failures`: of all listeners. `message_bytes_max`: of a request before the client has logged in.
    `logins`: how many succeeded, by mechanism.
    """

    def __init__(
        self,
        listener: str,
        mechanisms: Mapping[str, Callable[[], Exchange]],
        lifetimes_ms: Mapping[str, int],
        clock: Clock,
        failures: FailedLogins,
        *,
        failure_delay_s: float,
        message_bytes_max: int,
    ) -> None:
        self.listener = listener
        self.mechanisms = mechanisms
        self.lifetimes_ms = lifetimes_ms
        self.clock = clock
        self.failures = failures
        self.failure_delay_s = failure_delay_s
        self.message_bytes_max = message_bytes_max
        self.logins = dict.fromkeys(mechanisms, 0)


class SaslLogin:
    """Of one connection. `principal`: of who has logged in; empty before. `failed`: the connection is to be closed.

    `is_framed`: the client's messages are in SaslAuthenticate requests (SaslHandshake v1), otherwise they have nothing before them but
    their size.
    """

    __slots__ = ("_exchange", "_expires_s", "_lifetime_ms", "_renewed_s", "_text", "failed", "is_framed", "mechanism", "principal",
                 "server", "turn")  # fmt: skip

    def __init__(self, server: SaslServer) -> None:
        self.server = server
        self.turn = Turn.MECHANISM
        self.principal = ""
        self.mechanism = ""
        self.failed: LoginFailed | None = None
        self.is_framed = True
        self._exchange: Exchange | None = None
        self._lifetime_ms = 0
        self._expires_s: float | None = None
        self._renewed_s: float | None = None
        self._text = "authentication"

    @property
    def user(self) -> str:
        """Whom the client claims to be, for the log."""
        return shown_user(self.claimed) if self.claimed else "an unknown user"

    @property
    def claimed(self) -> str:
        """The same as the client has sent it; empty as long as it has not."""
        return "" if self._exchange is None else self._exchange.user

    @property
    def by_token(self) -> bool:
        """Whether the client has logged in with a delegation token."""
        return self._exchange is not None and self._exchange.by_token

    @property
    def refused(self) -> str:
        """Why the last message was refused, if the login goes on; else empty."""
        return self._exchange.refused if self._exchange is not None and self.turn is Turn.MESSAGE and self.failed is None else ""

    @property
    def lifetime_ms(self) -> int:
        """How long the session lasts from the login on, for the client; 0: for ever, or before the login."""
        return self._lifetime_ms if self.turn is Turn.NOTHING else 0

    @property
    def is_limited(self) -> bool:
        """Whether the session ends at some time."""
        return self._expires_s is not None

    def is_expired(self) -> bool:
        """Whether the session has ended."""
        return self._expires_s is not None and self.server.clock.seconds() >= self._expires_s

    def renew(self) -> bool:
        """Begin to log in again; False if the client may not, as its session has no end, or because it has just done so."""
        now_s = self.server.clock.seconds()
        if self._expires_s is None or (self._renewed_s is not None and now_s < self._renewed_s + RENEWAL_INTERVAL_S):
            return False
        self._renewed_s = now_s
        self.turn = Turn.MECHANISM
        self._text = "re-authentication"
        return True

    def begin(self, mechanism: str, *, is_framed: bool) -> None:
        """The client has chosen a mechanism. Sets `failed`; LoginFailed if there is none of this name."""
        assert self.turn is Turn.MECHANISM, "a login has begun"
        make = self.server.mechanisms.get(mechanism)
        if make is None:
            raise self._failure(LoginFailed(
                f"the mechanism {mechanism[:MECHANISM_NAME_MAX]!r} is not enabled on this listener",
                f"Unsupported SASL mechanism {mechanism[:MECHANISM_NAME_MAX]}",
                ErrorCode.UNSUPPORTED_SASL_MECHANISM,
                cause=Cause.MECHANISM,
            ))  # fmt: skip
        if self.principal and mechanism != self.mechanism:
            # As in Kafka, the client learns it by the end of the connection.
            self._failure(LoginFailed(f"re-authentication with {mechanism} instead of {self.mechanism}", cause=Cause.MECHANISM))
            return
        self.mechanism, self.is_framed = mechanism, is_framed
        self._exchange = make()
        self.turn = Turn.MESSAGE

    def wait(self) -> Deferred[None] | None:
        """See `Exchange`."""
        return None if self._exchange is None or self.turn is not Turn.MESSAGE else self._exchange.wait()

    def respond(self, message: bytes) -> bytes:
        """The answer to a message of the client; LoginFailed, with the message for the client."""
        assert self.turn is Turn.MESSAGE and self._exchange is not None, "no login has begun"
        exchange = self._exchange
        try:
            answer = exchange.respond(message)
            if exchange.is_complete:
                self._check_principal(f"User:{exchange.user}")
        except LoginFailed as failure:
            text = f"Authentication failed during {self._text} due to invalid credentials with SASL mechanism {self.mechanism}"
            raise self._failure(LoginFailed(failure.reason, failure.message or text, cause=failure.cause)) from None
        if exchange.is_complete:
            self._complete(f"User:{exchange.user}", exchange.lifetime_ms)
        return answer

    def _check_principal(self, principal: str) -> None:
        if self.principal and principal != self.principal:
            before, after = (name.replace(":", ".", 1) for name in (self.principal, principal))
            raise LoginFailed(
                "re-authentication as another user",
                f"Cannot change principals during re-authentication from {before}: {after}",
                cause=Cause.OTHER_USER,
            )

    def _complete(self, principal: str, credential_ms: int | None) -> None:
        server = self.server
        self.principal = principal
        self.turn = Turn.NOTHING
        server.logins[self.mechanism] += 1
        configured_ms = server.lifetimes_ms.get(self.mechanism, 0)
        limits_ms = [each for each in (configured_ms if configured_ms > 0 else None, credential_ms) if each is not None]
        self._lifetime_ms = max(min(limits_ms, default=0), 0)
        self._expires_s = server.clock.seconds() + self._lifetime_ms / 1000 if limits_ms else None

    def _failure(self, failure: LoginFailed) -> LoginFailed:
        self.failed = failure
        return failure
