"""TLS and SASL of connections, from the properties of a Java client, so that one file serves Spark's consumers too.

Supported: `security.protocol` SSL, SASL_PLAINTEXT and SASL_SSL, with the `ssl.` keys that listeners have (`tls/settings.py`);
`sasl.mechanism` PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, without channel binding), with user and password in
`sasl.jaas.config`; OAUTHBEARER with a token from `sasl.oauthbearer.token.endpoint.url` (`oauth_token.py`). Kerberos is refused.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Generator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from txbroker.client.client_errors import ConnectionFailed, LoginRefused
from txbroker.client.oauth_token import TokenSource
from txbroker.config.jaas import InvalidJaas, parse_jaas
from txbroker.config.oauthbearer import LOGIN_HANDLERS, OAUTHBEARER, InvalidUrl
from txbroker.errors import ErrorCode
from txbroker.tls.settings import TlsProblem, TlsSettings, read_settings
from txbroker.wire import scram
from txbroker.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from txbroker.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from txbroker.wire.schema import Request
from txbroker.wire.scram import HASHES, ITERATIONS_MIN

PROTOCOLS = {"PLAINTEXT": (False, False), "SSL": (True, False), "SASL_PLAINTEXT": (False, True), "SASL_SSL": (True, True)}
PLAIN = "PLAIN"
ITERATIONS_MAX = 1_000_000  # the broker chooses
HANDLER_KEY = "sasl.login.callback.handler.class"
_OTHER_CODE = ("ssl.engine.factory.class", "sasl.login.class", "sasl.login.callback.handler.class", "sasl.client.callback.handler.class")


# Each login of a user needs the same; it takes milliseconds, in a broker in the thread that serves its clients.
_salted_password = lru_cache(maxsize=16)(scram.salted_password)


class Unsupported(ValueError):
    """A property that this client cannot use; the text names it and says what to do."""


class Sasl(NamedTuple):
    """A mechanism with its user; for OAUTHBEARER only where its token comes from, for each login."""

    mechanism: str
    user: str
    password: str
    token: TokenSource | None = None

    @property
    def who(self) -> str:
        """Who logs in, for an error."""
        return f"user {self.user}" if self.token is None else f"the client with {self.token}"


class ClientSecurity(NamedTuple):
    """It is sent to other processes: files are opened where the connection is made."""

    protocol: str
    tls: TlsSettings | None
    sasl: Sasl | None

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> ClientSecurity | None:
        """None for PLAINTEXT. Unsupported."""
        protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
        if protocol not in PROTOCOLS:
            raise Unsupported(f"security.protocol is {protocol}; it must be {', '.join(PROTOCOLS)}")
        tls, sasl = PROTOCOLS[protocol]
        if not tls and not sasl:
            return None
        for key in _OTHER_CODE:
            if properties.get(key) and not (key == HANDLER_KEY and is_oauth(properties) and properties[key].strip() in LOGIN_HANDLERS):
                raise Unsupported(f"{key} names code of Java, which this client cannot run")
        return cls(protocol, _tls(properties) if tls else None, _sasl(properties) if sasl else None)


def _tls(properties: Mapping[str, str]) -> TlsSettings:
    try:
        return read_settings(properties.get)
    except TlsProblem as problem:
        raise Unsupported(str(problem)) from None


def _mechanism(properties: Mapping[str, str]) -> str:
    return properties.get("sasl.mechanism", "GSSAPI").strip().upper()


def is_oauth(properties: Mapping[str, str]) -> bool:
    """Whether a client with these properties logs in with a token of OAUTHBEARER."""
    return _mechanism(properties) == OAUTHBEARER


def _sasl(properties: Mapping[str, str]) -> Sasl:
    mechanism = _mechanism(properties)
    if mechanism == OAUTHBEARER:
        try:
            return Sasl(mechanism, "", "", TokenSource.of(properties))
        except InvalidUrl as error:
            raise Unsupported(str(error)) from None
    if mechanism != PLAIN and mechanism not in HASHES:
        raise Unsupported(f"sasl.mechanism is {mechanism}; supported are {', '.join((PLAIN, *HASHES, OAUTHBEARER))}")
    try:
        options = parse_jaas(properties.get("sasl.jaas.config", "")).options
    except InvalidJaas as error:
        raise Unsupported(f"sasl.jaas.config {error}") from None
    user, password = options.get("username"), options.get("password")
    if user is None or password is None:
        raise Unsupported("sasl.jaas.config has no username and password")
    return Sasl(mechanism, user, password)


def login_steps(sasl: Sasl, nonce: str) -> Generator[Request, Any, int]:
    """The requests of a login, one after the other; each gets its response. Returns the lifetime of the session in ms, 0 for ever.

    LoginRefused; ConnectionFailed for a broker that cheats. `nonce`: a new random text of the client.
    """
    handshake: SaslHandshakeResponse = yield SaslHandshakeRequest(mechanism=sasl.mechanism)
    if handshake.error_code:
        offered = ", ".join(handshake.mechanisms) or "none"
        raise LoginRefused(f"the broker does not support the SASL mechanism {sasl.mechanism}, but {offered}", handshake.error_code)
    if sasl.token is not None:
        answer = yield _message(f"n,,\x01auth=Bearer {sasl.token.token()}\x01\x01")
        if _content(answer, sasl):
            answer = yield _message("\x01")  # the broker refuses the token, and gives the reason after this
            _content(answer, sasl)
            raise LoginRefused(f"{sasl.who} could not log in", ErrorCode.SASL_AUTHENTICATION_FAILED)
        return _lifetime_ms(answer)
    if sasl.mechanism == PLAIN:
        answer = yield _message(f"\0{sasl.user}\0{sasl.password}")
        _content(answer, sasl)
        return _lifetime_ms(answer)
    messages = Scram(sasl, nonce)
    first = yield _message(messages.first)
    answer = yield _message(messages.final(_content(first, sasl)))
    messages.check(_content(answer, sasl))
    return _lifetime_ms(answer)


def _message(content: str) -> SaslAuthenticateRequest:
    return SaslAuthenticateRequest(auth_bytes=content.encode())


def _content(answer: SaslAuthenticateResponse, sasl: Sasl) -> str:
    if answer.error_code:
        reason = f": {answer.error_message}" if answer.error_message else ""
        raise LoginRefused(f"{sasl.who} could not log in{reason}", answer.error_code)
    return bytes(answer.auth_bytes).decode("utf-8", "replace")


def _lifetime_ms(answer: SaslAuthenticateResponse) -> int:
    return max(answer.session_lifetime_ms, 0)


class Scram:
    """The messages of RFC 5802 of a client, in order: `first`, `final`, `check`. ConnectionFailed."""

    def __init__(self, sasl: Sasl, nonce: str) -> None:
        self._hash = HASHES[sasl.mechanism]
        self._password = sasl.password
        self._nonce = nonce
        self._signature = b""
        self._bare = f"n={sasl.user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
        self.first = f"n,,{self._bare}"

    def final(self, answer: str) -> str:
        """The message after the broker's first one."""
        fields = dict(field.split("=", 1) for field in answer.split(",") if "=" in field)
        try:
            nonce, salt, iterations = fields["r"], base64.b64decode(fields["s"], validate=True), int(fields["i"])
        except (KeyError, ValueError):
            raise ConnectionFailed("the broker sent a malformed SCRAM message; check sasl.mechanism") from None
        if not nonce.startswith(self._nonce) or not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise ConnectionFailed(f"the broker sent a SCRAM message with another nonce, or {iterations} iterations; this is not safe")
        salted = _salted_password(self._hash, self._password, salt, iterations)
        client_key = scram.client_key(self._hash, salted)
        without_proof = f"c=biws,r={nonce}"
        signed = ",".join((self._bare, answer, without_proof)).encode()
        proof = scram.exclusive_or(client_key, scram.signature(self._hash, scram.stored_key(self._hash, client_key), signed))
        self._signature = scram.signature(self._hash, scram.server_key(self._hash, salted), signed)
        return f"{without_proof},p={base64.b64encode(proof).decode()}"

    def check(self, answer: str) -> None:
        """The broker's last message: whether it knows the password too."""
        expected = f"v={base64.b64encode(self._signature).decode()}"
        if not hmac.compare_digest(answer.split(",")[0].encode(), expected.encode()):
            raise ConnectionFailed("the broker could not prove that it knows the user's password; check the address")
