"""OAUTHBEARER at a real broker, by the bytes of the protocol and by real clients, the same as at Apache Kafka (--broker)."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs

import pytest
from confluent_kafka import Producer
from cryptography.hazmat.primitives.asymmetric import ec
from kafka import KafkaProducer
from kafka import errors as kafka_errors
from kafka.net.sasl.oauth import AbstractTokenProvider
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from tests.cli.commands import ENVIRONMENT, command
from tests.cli.commands import run as txbroker
from tests.support import java
from tests.support.broker import BrokerProcess
from tests.support.cache import KAFKA_NEW, KAFKA_OLD
from tests.support.oauth import LOGIN, MODULE, VALIDATOR, JwksServer, SigningKey, allowed, hand_made, jwks
from tests.support.raw import ConnectionEnded, RawConnection
from tests.support.raw_admin import create_topic
from tests.support.sasl import produce_and_consume, properties_file, sasl_server
from tests.support.server import HOST, Server, free_port
from tests.support.waiting import PATIENCE_S, until
from txbroker.client.blocking_connection import BlockingConnection
from txbroker.client.client_errors import LoginRefused
from txbroker.client.client_machine import ClientSettings
from txbroker.client.client_security import ClientSecurity

pytestmark = pytest.mark.process

TOPIC = "secured"
LOGIN_FAILED = 58
REFUSED = b'{"status":"invalid_token"}'
GENERIC = "Authentication failed during authentication due to invalid credentials with SASL mechanism OAUTHBEARER"
RSA, EC = SigningKey("rsa"), SigningKey("ec", ec.generate_private_key(ec.SECP256R1()))
ISSUER, AUDIENCE = "https://idp.example", "kafka"
MAX_REAUTH_MS = 600_000


@pytest.fixture(scope="module")
def provider() -> Iterator[JwksServer]:
    with JwksServer(jwks(RSA, EC)) as server:
        yield server


@pytest.fixture(scope="module")
def secured(request: pytest.FixtureRequest, server_directory: Path, provider: JwksServer) -> Iterator[Any]:
    """A broker with two listeners of OAUTHBEARER: one has Kafka's defaults, the other one expects issuer and audience."""
    strict, key = f"{HOST}:{free_port()}", "listener.name.{}.oauthbearer.sasl.{}"
    of_both = {"jaas.config": f"{MODULE} required;", "server.callback.handler.class": VALIDATOR,
               "oauthbearer.jwks.endpoint.url": provider.url}  # fmt: skip
    overrides = {key.format(name, setting): value for name in ("sasl_plaintext", "strict") for setting, value in of_both.items()}
    overrides |= {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        key.format("strict", "oauthbearer.expected.issuer"): ISSUER,
        key.format("strict", "oauthbearer.expected.audience"): f"{AUDIENCE},logs",
        key.format("strict", "oauthbearer.sub.claim.name"): "client_id",
        "listener.name.strict.oauthbearer.connections.max.reauth.ms": str(MAX_REAUTH_MS),
    }
    kind = request.config.getoption("--broker")
    server, address = sasl_server(kind, server_directory / "oauth", overrides, {"STRICT": strict})
    for setting in ("plain", "scram-sha-256", "scram-sha-512"):
        server.overrides.pop(f"listener.name.sasl_plaintext.{setting}.sasl.jaas.config")
    if kind != BrokerProcess.kind:
        server.java_options = (*server.java_options, allowed(provider.url))  # type: ignore[attr-defined]
    server.start()
    try:
        create_topic(server, TOPIC)
        yield SimpleNamespace(server=server, address=address, strict=strict)
        if kind == BrokerProcess.kind:
            log = server.log()
            assert "Traceback (most recent call last)" not in log
            assert "eyJ" not in log, "tokens, at the level debug"
    finally:
        server.close()


def bearer(token: str, authorization: str = "") -> bytes:
    return f"n,{authorization},\1auth=Bearer {token}\1\1".encode()


def handshake(connection: RawConnection) -> None:
    assert connection.call(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1).error_code == 0


def authenticate(connection: RawConnection, message: bytes) -> Any:
    return connection.call(SaslAuthenticateRequest(auth_bytes=message), 2)


def log_in(address: str, token: str) -> tuple[int, str | None, bytes]:
    """The answer to a login with a token: a refusal is taken until its end."""
    with RawConnection(address) as connection:
        handshake(connection)
        answer = authenticate(connection, bearer(token))
        if answer.auth_bytes != REFUSED:
            return answer.error_code, answer.error_message, answer.auth_bytes
        assert answer.error_code == 0
        answer = authenticate(connection, b"\1")
        assert connection.is_ended()
        return answer.error_code, answer.error_message, answer.auth_bytes


ACCEPTED = (0, "", b"")
INVALID = (LOGIN_FAILED, REFUSED.decode(), b"")


def now_s(seconds: float) -> float:
    return int(time.time()) + seconds


@pytest.mark.parametrize(("token", "answer"), [
    (lambda: RSA.token(), ACCEPTED), (lambda: EC.token(), ACCEPTED), (lambda: RSA.token(algorithm="PS256"), ACCEPTED),
    (lambda: RSA.token(algorithm="RS512"), ACCEPTED), (lambda: RSA.token(headers={"kid": None}), ACCEPTED),
    (lambda: RSA.token(iss="https://other"), ACCEPTED), (lambda: RSA.token(scope="a b"), ACCEPTED),
    (lambda: RSA.token(exp=now_s(-10), iat=now_s(-100)), ACCEPTED), (lambda: RSA.token(exp=now_s(-40), iat=now_s(-100)), INVALID),
    (lambda: RSA.token(exp=None), INVALID), (lambda: RSA.token(iat=None), INVALID), (lambda: RSA.token(aud="kafka"), INVALID),
    (lambda: RSA.token(iat=now_s(9000)), INVALID), (lambda: RSA.token(iat=now_s(100)), ACCEPTED),
    (lambda: RSA.token(nbf=now_s(100)), INVALID), (lambda: RSA.token(sub=""), INVALID), (lambda: RSA.token(sub=None), INVALID),
    (lambda: RSA.token(scope=""), INVALID), (lambda: RSA.token(scope=["a", "a"]), INVALID), (lambda: RSA.token(exp="x"), INVALID),
    (lambda: RSA.token(exp=now_s(100.5)), ACCEPTED), (lambda: RSA.token(headers={"kid": "ec"}), INVALID),
    (lambda: SigningKey("rsa").token(), INVALID), (lambda: SigningKey("ghost").token(), INVALID),
    (lambda: hand_made({"alg": "none"}, {"sub": "alice"}), INVALID),
    (lambda: hand_made({"alg": "none", "kid": "rsa"}, {"sub": "a"}), INVALID),
    (RSA.with_public_key_as_secret, INVALID), (lambda: "abc", INVALID), (lambda: "a.b.c", INVALID),
    (lambda: "a b", (LOGIN_FAILED, GENERIC, b"")),
])  # fmt: skip
def test_tokens_with_the_default_settings(secured: Any, token: Any, answer: tuple[int, str, bytes]) -> None:
    assert log_in(secured.address, token()) == answer


@pytest.mark.parametrize(("claims", "answer"), [
    ({"iss": ISSUER, "aud": AUDIENCE}, ACCEPTED), ({"iss": ISSUER, "aud": ["x", "logs"]}, ACCEPTED), ({"iss": ISSUER}, INVALID),
    ({"iss": ISSUER, "aud": "x"}, INVALID), ({"aud": AUDIENCE}, INVALID), ({"iss": "https://other", "aud": AUDIENCE}, INVALID),
    ({"iss": ISSUER, "aud": AUDIENCE, "client_id": None}, INVALID),
])  # fmt: skip
def test_tokens_with_an_expected_issuer_and_audience(secured: Any, claims: dict[str, Any], answer: tuple[int, str, bytes]) -> None:
    assert log_in(secured.strict, RSA.token(**{"client_id": "app", **claims})) == answer


def test_another_authorization_id(secured: Any) -> None:
    with RawConnection(secured.address) as connection:
        handshake(connection)
        answer = authenticate(connection, bearer(RSA.token("alice"), "a=admin"))
        text = ("Authentication failed: Client requested an authorization id (admin) that is different from the token's principal name "
                "(alice)")  # fmt: skip
        assert (answer.error_code, answer.error_message) == (LOGIN_FAILED, text) and connection.is_ended()


def test_another_token_after_one_that_was_refused(secured: Any) -> None:
    with RawConnection(secured.address) as connection:
        handshake(connection)
        assert authenticate(connection, bearer("abc")).auth_bytes == REFUSED
        answer = authenticate(connection, bearer(RSA.token()))
        assert (answer.error_code, answer.auth_bytes) == (0, b"")
        assert serves(connection)
    if secured.server.kind != BrokerProcess.kind:
        return  # Kafka takes any number of tokens
    with RawConnection(secured.address) as connection:
        handshake(connection)
        for _ in range(10):
            assert authenticate(connection, bearer("abc")).auth_bytes == REFUSED
        assert authenticate(connection, bearer(RSA.token())).error_code == LOGIN_FAILED and connection.is_ended()


def test_a_session_ends_with_its_token(secured: Any) -> None:
    valid_s = 3000
    with RawConnection(secured.address) as connection:
        handshake(connection)
        lifetime_ms = authenticate(connection, bearer(RSA.token(exp=now_s(valid_s)))).session_lifetime_ms
        assert 0 < lifetime_ms <= valid_s * 1000
        assert serves(connection)
        handshake(connection)
        answer = authenticate(connection, bearer(RSA.token("bob")))
        assert (answer.error_code, connection.is_ended()) == (LOGIN_FAILED, True), "the session is of another user"
    with RawConnection(secured.strict) as connection:
        handshake(connection)
        token = RSA.token(client_id="app", iss=ISSUER, aud=AUDIENCE, exp=now_s(valid_s))
        assert authenticate(connection, bearer(token)).session_lifetime_ms == MAX_REAUTH_MS, "the shorter time"
    with RawConnection(secured.address) as connection:
        handshake(connection)
        ended = RSA.token(iat=now_s(-100), exp=now_s(-5))
        answer = authenticate(connection, bearer(ended))
        assert (answer.error_code, answer.session_lifetime_ms) == (0, 0), "the clocks may differ"
        with pytest.raises(ConnectionEnded):
            serves(connection)


def serves(connection: RawConnection) -> bool:
    wanted = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False)
    (topic,) = connection.call(wanted, 8).topics
    return bool(topic.error_code == 0)


def test_rotated_keys(secured: Any, provider: JwksServer) -> None:
    """A token with a new key is refused once, and the keys are read again."""
    fresh = SigningKey("fresh")
    provider.document = jwks(RSA, EC, fresh)
    assert log_in(secured.address, fresh.token()) == INVALID
    until(lambda: log_in(secured.address, fresh.token()) == ACCEPTED, "the new key is known")
    served = provider.served
    for _ in range(3):
        assert log_in(secured.address, SigningKey("fresh").token()) == INVALID
    assert provider.served == served, "a known name of a key"
    provider.status = 500
    try:
        for _ in range(3):
            assert log_in(secured.address, SigningKey("unknown", RSA.private).token()) == INVALID
        until(lambda: provider.served > served, "the keys are asked for")
        assert log_in(secured.address, fresh.token()) == ACCEPTED, "the keys stay"
    finally:
        provider.status = 200


# --- real clients ---


class Provider(AbstractTokenProvider):  # type: ignore[misc]
    """Tokens for kafka-python."""

    def __init__(self, token: str) -> None:
        self._token = token
        super().__init__()

    def token(self) -> str:
        return self._token


def python_settings(address: str, token: str) -> dict[str, Any]:
    return {"bootstrap_servers": address, "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauth_token_provider": Provider(token)}  # fmt: skip


def test_kafka_python(secured: Any) -> None:
    produce_and_consume(TOPIC, b"python", python_settings(secured.address, RSA.token("python")))
    with pytest.raises((kafka_errors.SaslAuthenticationFailedError, kafka_errors.KafkaTimeoutError)):
        KafkaProducer(**python_settings(secured.address, SigningKey("rsa").token()), bootstrap_timeout_ms=1_000).close()


def test_librdkafka(secured: Any) -> None:
    settings = {"bootstrap.servers": secured.address, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "OAUTHBEARER"}
    delivered: list[Any] = []
    producer = Producer({**settings, "oauth_cb": lambda _: (EC.token("librdkafka"), time.time() + 3600)})
    producer.produce(TOPIC, b"librdkafka", on_delivery=lambda error, _: delivered.append(error))
    producer.flush(PATIENCE_S)
    assert delivered == [None]
    errors: list[Any] = []
    foreign = SigningKey("rsa")
    producer = Producer({**settings, "oauth_cb": lambda _: (foreign.token(), time.time() + 3600), "error_cb": errors.append})
    until(lambda: producer.poll(0.1) is not None and bool(errors), "the client reports the error")
    assert errors[0].name() == "_AUTHENTICATION" and "invalid_token" in errors[0].str()


@pytest.mark.extended
@pytest.mark.parametrize("release", [KAFKA_OLD, KAFKA_NEW])
def test_kafkas_console_clients(secured: Any, tmp_path: Path, name: str, release: str) -> None:
    create_topic(secured.server, name)
    file = tmp_path / "token"
    file.write_text(RSA.token("java"))
    properties = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": f"{MODULE} required;",
                  "sasl.login.callback.handler.class": LOGIN, "sasl.oauthbearer.token.endpoint.url": file.as_uri()}  # fmt: skip
    settings = properties_file(tmp_path / "client", properties)
    place = ("--bootstrap-server", secured.address, "--topic", name)
    options = (*java.SHORT_LIVED, allowed(file.as_uri()))
    java.run("kafka-console-producer", *place, "--producer.config", settings, stdin="from Java\n", options=options, release=release)
    ended = ("--from-beginning", "--max-messages", "1", "--consumer.config", settings)
    assert "from Java" in java.run("kafka-console-consumer", *place, *ended, options=options, release=release).splitlines()
    file.write_text(SigningKey("rsa").token())
    with pytest.raises(java.ToolFailed, match="invalid_token"):
        java.run("kafka-topics", *place[:2], "--list", "--command-config", settings, options=options, release=release)


def test_own_clients(secured: Any, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(RSA.token("own") + "\n")
    settings = ClientSettings(security=ClientSecurity.of({
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": file.as_uri(),
    }))  # fmt: skip
    host, _, port = secured.address.rpartition(":")
    BlockingConnection(host, int(port), settings).close()
    file.write_text(SigningKey("rsa").token("own"))
    with pytest.raises(LoginRefused, match=f"the client with the token of {file} could not log in.*invalid_token"):
        BlockingConnection(host, int(port), settings)


GRANT = ("Basic YW4taWQ6YSBzZWNyZXQ=", {"grant_type": ["client_credentials"], "scope": ["a b"]})  # "an-id:a secret"


def of_provider(url: str) -> dict[str, str]:
    """A client that asks a provider for its token."""
    return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", "sasl.login.callback.handler.class": LOGIN,
            "sasl.oauthbearer.token.endpoint.url": url,
            "sasl.jaas.config": f'{MODULE} required clientId="an-id" clientSecret="a secret" scope="a b";'}  # fmt: skip


def answer(token: str) -> bytes:
    return json.dumps({"access_token": token, "token_type": "Bearer", "expires_in": 3600, "scope": "a b"}).encode()


@pytest.mark.extended
def test_commands_get_a_token_from_a_provider_as_clients_of_java(secured: Any, tmp_path: Path, name: str) -> None:
    """The own client, that of kafka-python, and Java's with the same file."""
    with JwksServer(answer(RSA.token("own"))) as endpoint:
        settings = str(properties_file(tmp_path / "client", of_provider(endpoint.url)))
        place = ("--bootstrap-server", secured.address)
        java.run("kafka-topics", *place, "--create", "--topic", name, "--command-config", settings,
                 options=(*java.SHORT_LIVED, allowed(endpoint.url)))  # fmt: skip
        of_java = len(endpoint.forms)
        txbroker("produce", *place, "--topic", name, "--command-config", settings, stdin="by a token\n")
        # Java's client leaves the space as it is.
        asked = [(authorization, parse_qs(form)) for authorization, form in endpoint.forms]
        assert len(asked) > of_java > 0 and all(each == GRANT for each in asked)
        assert name in txbroker("topics", *place, "--list", "--command-config", settings)[0]
        endpoint.status = 401
        _, complaint = txbroker("topics", *place, "--list", "--command-config", settings, status=1)
        assert f"{endpoint.url} gives client an-id no token: the server answers with the status 401" in complaint
        assert "a secret" not in complaint


@pytest.mark.extended
def test_commands_read_a_token_from_a_file(secured: Any, tmp_path: Path, name: str) -> None:
    file = tmp_path / "token"
    file.write_text(RSA.token("own"))
    properties = {**of_provider(file.as_uri()), "sasl.jaas.config": f"{MODULE} required;"}
    settings = str(properties_file(tmp_path / "client", properties))
    create_topic(secured.server, name)
    txbroker("produce", "--bootstrap-server", secured.address, "--topic", name, "--command-config", settings, stdin="x\n")
    file.write_text("no token")
    _, complaint = txbroker("topics", "--bootstrap-server", secured.address, "--list", "--command-config", settings, status=1)
    assert f"{file} has no token of OAUTHBEARER" in complaint


@pytest.mark.extended
def test_the_mirror_gets_a_token_from_a_provider(
    secured: Any, start_broker: Callable[..., Server], tmp_path: Path, name: str
) -> None:
    target = start_broker().address
    with JwksServer(answer(RSA.token("own"))) as endpoint:
        settings = str(properties_file(tmp_path / "client", of_provider(endpoint.url)))
        source = ("--bootstrap-server", secured.address, "--topic", name, "--command-config", settings)
        txbroker("topics", "--create", *source)
        txbroker("produce", *source, stdin="by a token\n")
        of_commands = len(endpoint.forms)
        # It has a reactor of its own.
        mirror = command("mirror", "--from", secured.address, "--from-command-config", settings, "--to", target, "--topic", name)
        ended = subprocess.run([*mirror, "--until-caught-up"], env=ENVIRONMENT, capture_output=True, text=True, timeout=PATIENCE_S,
                               check=False)  # fmt: skip
        assert ended.returncode == 0, ended.stderr
        assert len(endpoint.forms) > of_commands
    output, _ = txbroker("consume", "--bootstrap-server", target, "--topic", name, "--from-beginning", "--max-messages", "1")
    assert output == "by a token\n"


def test_the_log_names_the_reason(secured: Any) -> None:
    if secured.server.kind != BrokerProcess.kind:
        pytest.skip("lines of this broker")
    log_in(secured.address, RSA.token("carol", exp=now_s(-100), iat=now_s(-200)))
    until(lambda: "as 'carol' with OAUTHBEARER on listener SASL_PLAINTEXT: the token has expired" in secured.server.log(), "the reason")
