"""The messages of a login by a SASL mechanism, as a server sees them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import StrEnum

from twisted.internet.defer import Deferred

from txbroker.errors import BrokerError, ErrorCode

# At most this much of a user's name is logged.
LOGGED_USER_MAX = 100


class Cause(StrEnum):
    """Why logins fail, for metrics and the audit log."""

    UNKNOWN_USER = "unknown_user"
    WRONG_PASSWORD = "wrong_password"
    OTHER_USER = "other_user"  # an authorization id, or a second login on a connection
    MECHANISM = "mechanism"  # one that is not enabled, or another one in a second login
    TOKEN = "token"  # one that is not valid
    TLS = "tls"  # a handshake, or a certificate
    INVALID = "invalid"  # a message that is malformed, another request, or a credential that may not be used


class LoginFailed(BrokerError):
    """A client could not log in. `message` is for the client, None for one that gives no reason; `reason` is for the log."""

    def __init__(
        self,
        reason: str,
        message: str | None = None,
        code: ErrorCode = ErrorCode.SASL_AUTHENTICATION_FAILED,
        *,
        cause: Cause = Cause.INVALID,
    ) -> None:
        super().__init__(code, message)
        self.reason = reason
        self.cause = cause


class Exchange(ABC):
    """One login by one mechanism.

    `user`: whom the client claims to be, and is once `is_complete`; empty as long as it has not said so. `lifetime_ms`: how long the
    credential is still valid then; None: for ever. `refused`: why the last message was, if the client may send another one; else empty.
    `by_token`: the credential is a delegation token.
    """

    def __init__(self) -> None:
        self.user = ""
        self.is_complete = False
        self.lifetime_ms: int | None = None
        self.refused = ""
        self.by_token = False

    @abstractmethod
    def respond(self, message: bytes) -> bytes:
        """The answer to a message of the client; LoginFailed."""

    def wait(self) -> Deferred[None] | None:
        """What must end before the client's next message can be answered; None: nothing."""
        return None


def shown_user(user: str) -> str:
    """A user for the log, which gets names from clients that have proved nothing."""
    return repr(user[:LOGGED_USER_MAX])
