"""The mechanism PLAIN (RFC 4616), with users in the login configuration of a listener (Kafka's PlainSaslServer)."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from txbroker.security.sasl_exchange import Cause, Exchange, LoginFailed

PARTS = 3  # authorization id, user, password
USER_OPTION = "user_"
WRONG = "Authentication failed: Invalid username or password"


def plain_users(options: Mapping[str, str]) -> dict[str, str]:
    """The passwords of users in the options of a login module: `user_NAME="password"`."""
    return {name.removeprefix(USER_OPTION): password for name, password in options.items() if name.startswith(USER_OPTION)}


class PlainExchange(Exchange):
    """One login; `passwords` by user."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        super().__init__()
        self._passwords = passwords

    def respond(self, message: bytes) -> bytes:
        """See `Exchange`."""
        parts = message.decode("utf-8", "replace").split("\0", PARTS)
        if len(parts) != PARTS:
            raise LoginFailed(
                f"the message has {len(parts)} parts instead of {PARTS}",
                f"Invalid SASL/PLAIN response: expected {PARTS} tokens, got {len(parts)}",
            )
        authorization_id, self.user, password = parts
        if not self.user:
            raise LoginFailed("no user", "Authentication failed: username not specified")
        if not password:
            raise LoginFailed("no password", "Authentication failed: password not specified")
        known = self._passwords.get(self.user)
        is_equal = hmac.compare_digest(_digest(password), _digest(known or ""))
        if known is None:
            raise LoginFailed("no such user in the login configuration of PLAIN", WRONG, cause=Cause.UNKNOWN_USER)
        if not is_equal:
            raise LoginFailed("wrong password", WRONG, cause=Cause.WRONG_PASSWORD)
        if authorization_id and authorization_id != self.user:
            raise LoginFailed(
                "the authorization id is another one than the user",
                "Authentication failed: Client requested an authorization id that is different from username",
                cause=Cause.OTHER_USER,
            )
        self.is_complete = True
        return b""


def _digest(password: str) -> bytes:
    """Equally long for all passwords, so that the comparison does not show the length."""
    return hashlib.sha256(password.encode("utf-8", "surrogatepass")).digest()
