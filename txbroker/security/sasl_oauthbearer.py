"""The mechanism OAUTHBEARER (RFC 7628, KIP-255) of a server, as Kafka's OAuthBearerSaslServer.

A token that is refused is answered at once with an error in JSON, to which the client answers with the character 1; only then the login
has failed. Instead the client may send another token, as in Kafka, but only a few.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from txbroker.security.sasl_exchange import Cause, Exchange, LoginFailed, shown_user
from txbroker.security.scram import NAME, plain_name

REFUSED = b'{"status":"invalid_token"}'
SEPARATOR = "\x01"
TOKENS_MAX = 10  # in one login

# The patterns of Kafka's OAuthBearerClientInitialResponse.
_PAIRS = r"(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*"
_MESSAGE = re.compile(rf"n,(?:a=(?P<authorization>{NAME}))?,\x01(?P<pairs>{_PAIRS})\x01", re.DOTALL)
_AUTH = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)", re.ASCII)


class InvalidToken(ValueError):
    """A token that is refused; the message is for the log. `user`: whom the token is for, if its signature is right."""

    def __init__(self, reason: str, user: str = "") -> None:
        super().__init__(reason)
        self.user = user


class AcceptedToken(NamedTuple):
    """`lifetime_ms`: until the token ends; negative within the allowed skew after that."""

    user: str
    lifetime_ms: int


class OauthExchange(Exchange):
    """One login. `validate` returns what a token says, or raises InvalidToken."""

    def __init__(self, validate: Callable[[str], AcceptedToken]) -> None:
        super().__init__()
        self._validate = validate
        self._tokens = 0

    def respond(self, message: bytes) -> bytes:
        """See `Exchange`."""
        if self.refused and message == SEPARATOR.encode():
            raise LoginFailed(self.refused, REFUSED.decode(), cause=Cause.TOKEN)
        if self._tokens == TOKENS_MAX:
            reason = f"{TOKENS_MAX} tokens were refused, the last one as {self.refused}"
            raise LoginFailed(reason, REFUSED.decode(), cause=Cause.TOKEN)
        self._tokens += 1
        authorization_id, token = _parsed(message)
        try:
            accepted = self._validate(token)
        except InvalidToken as error:
            self.refused, self.user = str(error), error.user
            return REFUSED
        self.user = accepted.user
        if authorization_id and authorization_id != accepted.user:
            raise LoginFailed(
                f"the authorization id is {shown_user(authorization_id)} instead of the user of the token",
                f"Authentication failed: Client requested an authorization id ({authorization_id}) that is different from the token's "
                f"principal name ({accepted.user})",
                cause=Cause.OTHER_USER,
            )
        self.lifetime_ms = accepted.lifetime_ms
        self.is_complete = True
        return b""


def _parsed(message: bytes) -> tuple[str, str]:
    """The authorization id, and the token; LoginFailed."""
    found = _MESSAGE.fullmatch(message.decode("utf-8", "replace"))
    if found is None:
        raise LoginFailed("the message is malformed")
    pairs = dict(pair.partition("=")[::2] for pair in found["pairs"].split(SEPARATOR) if pair)
    auth = _AUTH.fullmatch(pairs.get("auth", ""))
    if auth is None or auth["scheme"].lower() != "bearer":
        raise LoginFailed("the message has no token: auth=Bearer TOKEN is missing")
    return plain_name(found["authorization"] or ""), auth["token"]
