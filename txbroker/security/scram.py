"""The mechanisms SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, 7677) of a server, and their credentials (Kafka's ScramSaslServer).

A user who does not exist is answered as one with a wrong password: with a salt that looks like those of Kafka's tools and is the same each
time. As in Kafka, channel binding and its field `c` are not checked, and names are ASCII.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from typing import NamedTuple

from twisted.internet.defer import Deferred

from txbroker.security.sasl_exchange import Cause, Exchange, LoginFailed
from txbroker.wire import scram
from txbroker.wire.scram import HASHES, ITERATIONS_MIN

SALT_BITS = 130  # of Kafka's tools: a number in base 36, 25 or 26 characters
SALT_BYTES = 17
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_ITERATIONS = re.compile(r"0*([0-9]{1,9})", re.ASCII)

NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_PRINTABLE = r"[\x21-\x2b\x2d-\x7e]+"
_VALUE = r"[\x01-\x2b\x2d-\x7f]+"
_EXTENSIONS = rf"(?:,[A-Za-z]+={_VALUE})*"
_BASE64 = r"[A-Za-z0-9+/]*={0,2}"
# The patterns of Kafka's ScramMessages. `bare` is signed by both sides.
_FIRST = re.compile(
    rf"n,(?:a=(?P<authorization>{NAME}))?,(?P<bare>(?:m={_VALUE},)?n=(?P<name>{NAME}),r=(?P<nonce>{_PRINTABLE})(?P<extensions>{_EXTENSIONS}))",
    re.DOTALL,
)
_FINAL = re.compile(rf"(?P<without_proof>c={_BASE64},r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})", re.DOTALL)
_TOKEN = re.compile(r",tokenauth=true(,|$)", re.IGNORECASE)


class InvalidCredential(ValueError):
    """A stored credential that cannot be used; the message has no part of it."""


class ScramCredential(NamedTuple):
    """What a server keeps of a password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    @classmethod
    def of_salted(cls, mechanism: str, salt: bytes, salted: bytes, iterations: int) -> ScramCredential:
        """From the salted password, which clients of AlterUserScramCredentials compute."""
        name = HASHES[mechanism]
        return cls(salt, scram.stored_key(name, scram.client_key(name, salted)), scram.server_key(name, salted), iterations)

    @classmethod
    def parse(cls, text: str) -> ScramCredential:
        """From the form in the metadata tree (ScramCredentialUtils); InvalidCredential."""
        fields = dict(field.partition("=")[::2] for field in text.split(","))
        if fields.keys() != {"salt", "stored_key", "server_key", "iterations"}:
            raise InvalidCredential("it must have the fields salt, stored_key, server_key and iterations")
        count = _ITERATIONS.fullmatch(fields["iterations"])
        try:
            salt, stored, server = (base64.b64decode(fields[name], validate=True) for name in ("salt", "stored_key", "server_key"))
        except binascii.Error:
            raise InvalidCredential("salt, stored_key and server_key must be in base64") from None
        if count is None:
            raise InvalidCredential("iterations must be a number")
        return cls(salt, stored, server, int(count.group(1)))

    def format(self) -> str:
        """The form in the metadata tree, with the fields in Kafka's order."""
        salt, stored, server = (base64.b64encode(value).decode() for value in (self.salt, self.stored_key, self.server_key))
        return f"salt={salt},stored_key={stored},server_key={server},iterations={self.iterations}"


class TokenCredential:
    """The credential of a delegation token, which takes milliseconds to derive: that is done elsewhere, while the client does the same.

    `salt` and `iterations` are known at once, `derived` when the Deferreds of `wait` have fired; None if it could not be derived.
    """

    def __init__(self, salt: bytes, deriving: Deferred[ScramCredential | None]) -> None:
        self.salt = salt
        self.iterations = ITERATIONS_MIN
        self.derived: ScramCredential | None = None
        self._waiting: list[Deferred[None]] | None = []
        deriving.addCallback(self._have_derived)

    def wait(self) -> Deferred[None] | None:
        """Fires when it is derived; None if it is already."""
        if self._waiting is None:
            return None
        later: Deferred[None] = Deferred()
        self._waiting.append(later)
        return later

    def _have_derived(self, credential: ScramCredential | None) -> None:
        self.derived = credential
        waiting, self._waiting = self._waiting or [], None
        for later in waiting:
            later.callback(None)


class TokenLogin(NamedTuple):
    """A delegation token by which a client logs in, as the user `owner`. `lifetime_ms`: until it ends; negative after that."""

    credential: TokenCredential
    owner: str
    lifetime_ms: int


# Of a mechanism: returns the login of a token by its id and the salt to use; None if there is no such token.
FindToken = Callable[[str, str, bytes], TokenLogin | None]


class ScramExchange(Exchange):
    """One login.

    `find` returns the credential of a user, None if there is none. `nonce`: new random text. `secret`: what the salts of missing users
    and of tokens are made of. `find_token`: None if this broker has no delegation tokens.
    """

    def __init__(
        self,
        mechanism: str,
        find: Callable[[str], ScramCredential | None],
        nonce: str,
        secret: bytes,
        find_token: FindToken | None = None,
    ) -> None:
        super().__init__()
        self._hash = HASHES[mechanism]
        self._mechanism = mechanism
        self._find = find
        self._nonce = nonce
        self._client_nonce = ""
        self._secret = secret
        self._find_token = find_token
        self._token: TokenLogin | None = None
        self._credential: ScramCredential | TokenCredential | None = None
        self._why_not = ""  # why the proof cannot be right
        self._cause = Cause.WRONG_PASSWORD
        self._signed = ""

    def respond(self, message: bytes) -> bytes:
        """See `Exchange`."""
        text = message.decode("utf-8", "replace")
        return (self._first(text) if self._credential is None else self._final(text, self._derived(self._credential))).encode()

    def wait(self) -> Deferred[None] | None:
        """See `Exchange`."""
        return self._credential.wait() if isinstance(self._credential, TokenCredential) else None

    def _derived(self, credential: ScramCredential | TokenCredential) -> ScramCredential:
        if not isinstance(credential, TokenCredential):
            return credential
        if credential.derived is None:
            raise LoginFailed("internal error: the credential of the delegation token could not be derived, see the log", cause=Cause.TOKEN)
        return credential.derived

    def _first(self, text: str) -> str:
        message = _FIRST.fullmatch(text)
        if message is None:
            raise LoginFailed("the first message is malformed")
        self.user = plain_name(message["name"])
        by_token = _TOKEN.search(message["extensions"]) is not None
        found: ScramCredential | TokenCredential | None = self._credential_of_token() if by_token else self._find(self.user)
        if found is None:
            self._why_not = "no such delegation token" if by_token else f"no such user for {self._mechanism}"
            self._cause = Cause.TOKEN if by_token else Cause.UNKNOWN_USER
        elif found.iterations < ITERATIONS_MIN:
            self._why_not = f"the credential has {found.iterations} iterations, and {ITERATIONS_MIN} is the minimum: set the password again"
            self._cause = Cause.INVALID
        credential = self._credential = fake_credential(self._secret, self._mechanism, self.user) if self._why_not or not found else found
        authorization_id = message["authorization"]
        if authorization_id and plain_name(authorization_id) != self.user:
            raise LoginFailed(
                "the authorization id is another one than the user",
                "Authentication failed: Client requested an authorization id that is different from username",
                cause=Cause.OTHER_USER,
            )
        self._client_nonce = message["nonce"]
        self._nonce = self._client_nonce + self._nonce
        answer = f"r={self._nonce},s={base64.b64encode(credential.salt).decode()},i={credential.iterations}"
        self._signed = f"{message['bare']},{answer}"
        return answer

    def _credential_of_token(self) -> TokenCredential | None:
        """With the salt that a missing token has, so that the answer does not show which tokens exist."""
        if self._find_token is None:
            raise LoginFailed("the client uses a delegation token, for which delegation.token.secret.key must be set", cause=Cause.TOKEN)
        salt = fake_credential(self._secret, self._mechanism, self.user).salt
        self._token = self._find_token(self._mechanism, self.user, salt)
        return None if self._token is None else self._token.credential

    def _final(self, text: str, credential: ScramCredential) -> str:
        message = _FINAL.fullmatch(text)
        if message is None:
            raise LoginFailed("the final message is malformed")
        # librdkafka before 2.6.1, that of Debian 12 too, has the client's part twice. Kafka 3.9 takes it, Kafka 4 does not. The part that
        # this broker has chosen must be there in each case, so that no old message can be sent again (CVE-2024-56128).
        allowed = (self._nonce.encode(), (self._client_nonce + self._nonce).encode())
        if not any(hmac.compare_digest(message["nonce"].encode(), each) for each in allowed):
            raise LoginFailed("the final message has another nonce")
        signed = f"{self._signed},{message['without_proof']}".encode()
        expected = scram.signature(self._hash, credential.stored_key, signed)
        try:
            proof = base64.b64decode(message["proof"], validate=True)
        except binascii.Error:
            raise LoginFailed("the final message is malformed") from None
        if len(proof) != len(expected):
            raise LoginFailed(self._why_not or "the proof has another length", cause=self._cause)
        is_right = hmac.compare_digest(scram.stored_key(self._hash, scram.exclusive_or(proof, expected)), credential.stored_key)
        if self._why_not or not is_right:
            raise LoginFailed(self._why_not or "wrong password", cause=self._cause)
        if self._token is not None:
            self.user, self.lifetime_ms, self.by_token = self._token.owner, self._token.lifetime_ms, True
        self.is_complete = True
        return f"v={base64.b64encode(scram.signature(self._hash, credential.server_key, signed)).decode()}"


def can_log_in(user: str) -> bool:
    """Whether a client can send this name (the pattern of ScramMessages): it has only ASCII characters, and not the character 0."""
    return user.isascii() and "\0" not in user


def fake_credential(secret: bytes, mechanism: str, user: str) -> ScramCredential:
    """A credential of a user who has none, the same each time; no password fits it."""
    digest = hmac.digest(secret, f"{mechanism},{user}".encode(), hashlib.sha512)
    size = hashlib.new(HASHES[mechanism]).digest_size
    return ScramCredential(salt_of(digest), digest[-size:], digest[-size:], ITERATIONS_MIN)


def salt_of(random_bytes: bytes) -> bytes:
    """A salt as Kafka's tools make it, of the first 17 of these bytes."""
    number, salt = int.from_bytes(random_bytes[:SALT_BYTES]) >> (8 * SALT_BYTES - SALT_BITS), ""
    while number:
        number, digit = divmod(number, len(_DIGITS))
        salt = _DIGITS[digit] + salt
    return salt.encode()


def plain_name(name: str) -> str:
    """A name in a message without its escapes (RFC 5801)."""
    return name.replace("=2C", ",").replace("=3D", "=")
