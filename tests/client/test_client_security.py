"""TLS and SASL of a client by the properties of Java's clients, and the messages of SCRAM."""

from __future__ import annotations

import pytest

from tests.support.oauth import MODULE as OAUTH_MODULE
from tests.support.oauth import JwksServer
from txbroker.client.client_errors import ConnectionFailed, RequestFailed
from txbroker.client.client_security import ClientSecurity, Sasl, Scram, Unsupported, login_steps
from txbroker.client.oauth_token import TokenSource
from txbroker.tls.settings import StoreSettings, TlsSettings
from txbroker.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from txbroker.wire.messages.sasl_handshake import SaslHandshakeResponse
from txbroker.wire.schema import Request

HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
OAUTH = f"{OAUTH_MODULE} required"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@pytest.mark.parametrize(("properties", "expected"), [
    ({}, None),
    ({"security.protocol": "PLAINTEXT", "sasl.mechanism": "OTHER"}, None),
    ({"security.protocol": "ssl"}, ClientSecurity("SSL", TlsSettings(None, None, None), None)),
    ({"security.protocol": "SSL", "ssl.truststore.location": "/ca.pem", "ssl.truststore.type": "PEM", "ssl.keystore.location": "/me.pem",
      "ssl.keystore.type": "pem", "ssl.key.password": "x", "ssl.endpoint.identification.algorithm": ""},
     ClientSecurity("SSL", TlsSettings(StoreSettings("keystore", "PEM", "/me.pem", None, None),
                                       StoreSettings("truststore", "PEM", "/ca.pem", None, None), "x", verifies_host=False), None)),
    ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
      "sasl.jaas.config": f'{MODULE} username="a b" password="p\\"q;=";'},
     ClientSecurity("SASL_PLAINTEXT", None, Sasl("PLAIN", "a b", 'p"q;='))),
    ({"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": "x required username=a password=b;"},
     ClientSecurity("SASL_SSL", TlsSettings(None, None, None), Sasl("SCRAM-SHA-512", "a", "b"))),
    ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", "sasl.login.callback.handler.class": HANDLER,
      "sasl.oauthbearer.token.endpoint.url": "file:///run/a%20token"},
     ClientSecurity("SASL_PLAINTEXT", None, Sasl("OAUTHBEARER", "", "", TokenSource("/run/a token")))),
    ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": "https://idp.example/t",
      "sasl.jaas.config": f'{OAUTH} clientId="id" clientSecret="of it" ssl.truststore.type="PEM" ssl.truststore.location="/ca";'},
     ClientSecurity("SASL_PLAINTEXT", None, Sasl("OAUTHBEARER", "", "", TokenSource(
         None, "https://idp.example/t", "id", "of it", None,
         TlsSettings(None, StoreSettings("truststore", "PEM", "/ca", None, None), None),
     )))),
])  # fmt: skip
def test_properties(properties: dict[str, str], expected: ClientSecurity | None) -> None:
    assert ClientSecurity.of(properties) == expected


@pytest.mark.parametrize(("properties", "problem"), [
    ({"security.protocol": "TLS"}, "security.protocol is TLS; it must be PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
    ({"security.protocol": "SSL", "ssl.truststore.type": "BKS"}, "ssl.truststore.type is BKS; it must be one of JKS, PKCS12, PEM"),
    ({"security.protocol": "SSL", "ssl.keystore.location": "/a.p12", "ssl.keystore.type": "PKCS12"},
     "ssl.keystore.password must be set for a key store of the type PKCS12"),
    ({"security.protocol": "SSL", "ssl.truststore.certificates": "-----BEGIN"}, "needs ssl.truststore.type=PEM, which is JKS"),
    ({"security.protocol": "SSL", "ssl.engine.factory.class": "a.B"}, "ssl.engine.factory.class names code of Java"),
    ({"security.protocol": "SASL_SSL"}, "sasl.mechanism is GSSAPI; supported are PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
    ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, "sasl.oauthbearer.token.endpoint.url is not set"),
    ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": "https://idp.example/token"},
     "sasl.jaas.config has no clientId and clientSecret, which sasl.oauthbearer.token.endpoint.url needs"),
    ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": "https://idp.example/token",
      "sasl.jaas.config": f'{OAUTH} clientId="id" clientSecret="of it" ssl.truststore.type="X";'},
     "sasl.jaas.config ssl.truststore.type is X; it must be one of"),
    ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": "gopher://idp.example"},
     "sasl.oauthbearer.token.endpoint.url must be an http: or https: URL with a host, or a file: URL"),
    ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.login.callback.handler.class": HANDLER},
     "sasl.login.callback.handler.class names code of Java"),
    ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", "sasl.login.callback.handler.class": "a.B",
      "sasl.oauthbearer.token.endpoint.url": "file:///t"}, "sasl.login.callback.handler.class names code of Java"),
    ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{MODULE};"}, "no username and password"),
])  # fmt: skip
def test_what_is_not_supported(properties: dict[str, str], problem: str) -> None:
    with pytest.raises(Unsupported, match=problem):
        ClientSecurity.of(properties)


class Peer:
    """A broker that answers SaslAuthenticate with these messages, and keeps what it was sent."""

    def __init__(self, *answers: str, code: int = 0) -> None:
        self._answers = list(answers)
        self._code = code
        self.sent: list[str] = []

    def call(self, request: Request) -> SaslHandshakeResponse | SaslAuthenticateResponse:
        if not isinstance(request, SaslAuthenticateRequest):
            return SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN", "SCRAM-SHA-256"])
        self.sent.append(bytes(request.auth_bytes).decode())
        return SaslAuthenticateResponse(error_code=self._code, error_message="no" if self._code else None,
                                        auth_bytes=self._answers.pop(0).encode())


def authenticate(peer: Peer, sasl: Sasl, nonce: str) -> int:
    """Log in; the lifetime of the session."""
    steps = login_steps(sasl, nonce)
    answer = None
    while True:
        try:
            answer = peer.call(steps.send(answer))
        except StopIteration as done:
            return int(done.value)


SERVER_FIRST = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
SERVER_FINAL = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
PENCIL = Sasl("SCRAM-SHA-256", "user", "pencil")


def test_the_example_of_rfc_7677() -> None:
    peer = Peer(SERVER_FIRST, SERVER_FINAL)
    authenticate(peer, PENCIL, "rOprNGfwEbeRWgbNEkqO")
    assert peer.sent == [
        "n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
        "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    ]


@pytest.mark.parametrize(("answers", "problem"), [
    ((SERVER_FIRST, "v=AAAA"), "could not prove that it knows the user's password"),
    ((SERVER_FIRST.replace("rOpr", "xxxx"),), "another nonce"),
    ((SERVER_FIRST.replace("4096", "1"),), "or 1 iterations"),
    ((SERVER_FIRST.replace("4096", "999999999"),), "or 999999999 iterations"),
    (("e=other-error",), "malformed SCRAM message"),
])  # fmt: skip
def test_a_broker_that_does_not_know_the_password(answers: tuple[str, ...], problem: str) -> None:
    with pytest.raises(ConnectionFailed, match=problem):
        authenticate(Peer(*answers), PENCIL, "rOprNGfwEbeRWgbNEkqO")


def test_plain_and_a_refused_user() -> None:
    peer = Peer("")
    authenticate(peer, Sasl("PLAIN", "a", "b"), "")
    assert peer.sent == ["\0a\0b"]
    with pytest.raises(RequestFailed, match="user a could not log in: no"):
        authenticate(Peer("", code=58), Sasl("PLAIN", "a", "b"), "")
    assert Scram(Sasl("SCRAM-SHA-512", "a=b,c", ""), "n").first == "n,,n=a=3Db=2Cc,r=n"


@pytest.mark.parametrize(("answer", "status", "problem"), [
    (b'{"access_token": "a.b.c"}', 200, None),
    (b'{"access_token": "a.b.c"}', 403, "the server answers with the status 403; check clientId, clientSecret and"),
    (b'{"access_token": "a b"}', 200, "the access_token in its answer is malformed"),
    (b'{"access_token": 7}', 200, "the access_token in its answer is malformed"),
    (b'{"token": "x"}', 200, "its answer has no access_token; check sasl.oauthbearer.token.endpoint.url"),
    (b"[]", 200, "its answer has no access_token"),
    (b"[" * 100_000, 200, "its answer has no access_token"),
    (b"x" * 2_000_000, 200, "the document has more than 1048576 bytes"),
], ids=range(8))  # fmt: skip
def test_tokens_of_a_provider(answer: bytes, status: int, problem: str | None) -> None:
    with JwksServer(answer) as server:
        server.status = status
        source = TokenSource(None, server.url, "id", "a:pass")
        if problem is None:
            assert source.token() == "a.b.c"
            assert server.forms == [("Basic aWQ6YTpwYXNz", "grant_type=client_credentials")]
            return
        with pytest.raises(ConnectionFailed) as caught:
            source.token()
    assert f"{server.url} gives client id no token: {problem}" in str(caught.value) and "a:pass" not in str(caught.value)


def test_a_provider_that_cannot_be_reached() -> None:
    with pytest.raises(ConnectionFailed, match=r"gives client id no token: .*Connection refused"):
        TokenSource(None, "http://127.0.0.1:1/token?hidden=1", "id", "secret").token()
