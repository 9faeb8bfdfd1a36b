"""Logins at a real broker, by the bytes of the protocol and by real clients, the same as at Apache Kafka (--broker)."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka import KafkaProducer
from kafka import errors as kafka_errors
from kafka.protocol.admin import AlterUserScramCredentialsRequest, DescribeUserScramCredentialsRequest
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from tests.support import java
from tests.support.broker import BrokerProcess
from tests.support.raw import ConnectionEnded, RawConnection
from tests.support.raw_admin import create_topic
from tests.support.sasl import MECHANISMS, PASSWORDS, client_properties, produce_and_consume, properties_file, sasl_server
from tests.support.server import Server
from tests.support.waiting import PATIENCE_S, until
from txbroker.client.client_security import Sasl, Scram

pytestmark = pytest.mark.process

TOPIC, SALT = "secured", b"salt of a test"
HASHES = {1: "sha256", 2: "sha512"}
LOGIN_FAILED, UNSUPPORTED_MECHANISM, ILLEGAL_STATE = 58, 33, 34
LIFETIME_MS = 15_000


@pytest.fixture(scope="module")
def secured(request: pytest.FixtureRequest, server_directory: Path) -> Iterator[Server]:
    """A broker with users for each mechanism, and a topic."""
    kind = request.config.getoption("--broker")
    server, _ = sasl_server(kind, server_directory / "secured")
    server.start()
    try:
        create_topic(server, TOPIC)
        for user, password in PASSWORDS.items():
            assert set_password(server.address, user, password) == [(user, 0)]
        for mechanism in MECHANISMS:
            until(partial(can_log_in, server, mechanism), f"alice can log in with {mechanism}")
        yield server
        if server.kind == BrokerProcess.kind:
            log = server.log()
            assert "Traceback (most recent call last)" not in log
            assert [secret for secret in (*PASSWORDS.values(), "guess", "stored_key") if secret in log] == [], "at the level debug"
    finally:
        server.close()


def address(server: Any) -> str:
    """The listener with SASL."""
    found: str = server.sasl
    return found


def set_password(plaintext: str, user: str, password: str) -> list[tuple[str, int]]:
    """The errors of all its requests: Kafka 4 does not take two mechanisms of a user in one."""
    errors: set[tuple[str, int]] = set()
    for number, name in HASHES.items():
        upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
            name=user, mechanism=number, iterations=4096, salt=SALT,
            salted_password=hashlib.pbkdf2_hmac(name, password.encode(), SALT, 4096),
        )  # fmt: skip
        with RawConnection(plaintext) as connection:
            answer = connection.call(AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion]), 0)
        errors.update((result.user, result.error_code) for result in answer.results)
    return list(errors)


def handshake(connection: RawConnection, mechanism: str, version: int = 1) -> Any:
    return connection.call(SaslHandshakeRequest(mechanism=mechanism), version)


def authenticate(connection: RawConnection, message: bytes, version: int = 2) -> Any:
    return connection.call(SaslAuthenticateRequest(auth_bytes=message), version)


def log_in(connection: RawConnection, mechanism: str, user: str = "alice", password: str = PASSWORDS["alice"]) -> Any:
    """The last answer to a login."""
    assert handshake(connection, mechanism).error_code == 0
    if mechanism == "PLAIN":
        return authenticate(connection, f"\0{user}\0{password}".encode())
    client = Scram(Sasl(mechanism, user, password), "client")
    first = authenticate(connection, client.first.encode())
    if first.error_code:
        return first
    final = authenticate(connection, client.final(first.auth_bytes.decode()).encode())
    if not final.error_code:
        client.check(final.auth_bytes.decode())
    return final


def can_log_in(server: Server, mechanism: str) -> bool:
    with RawConnection(address(server)) as connection:
        return not log_in(connection, mechanism).error_code


def serves(connection: RawConnection) -> bool:
    wanted = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False)
    (topic,) = connection.call(wanted, 8).topics
    return bool(topic.error_code == 0)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_login_and_what_fails(secured: Server, mechanism: str) -> None:
    with RawConnection(address(secured)) as connection:
        answer = log_in(connection, mechanism)
        assert (answer.error_code, answer.error_message, answer.session_lifetime_ms) == (0, "", 0)
        assert serves(connection)
    texts = {"PLAIN": "Authentication failed: Invalid username or password"}
    generic = f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"
    for user, password in (("alice", "guess"), ("ghost", "guess")):
        with RawConnection(address(secured)) as connection:
            answer = log_in(connection, mechanism, user, password)
            assert (answer.error_code, answer.error_message) == (LOGIN_FAILED, texts.get(mechanism, generic))
            assert connection.is_ended()
    with RawConnection(address(secured)) as connection:
        handshake(connection, mechanism)
        answer = authenticate(connection, b"malformed")
        text = "Invalid SASL/PLAIN response: expected 3 tokens, got 1" if mechanism == "PLAIN" else generic
        assert (answer.error_code, answer.error_message) == (LOGIN_FAILED, text) and connection.is_ended()


def test_another_mechanism(secured: Server) -> None:
    for version in (0, 1):
        with RawConnection(address(secured)) as connection:
            answer = handshake(connection, "GSSAPI", version)
            assert (answer.error_code, set(answer.mechanisms)) == (UNSUPPORTED_MECHANISM, set(MECHANISMS)) and connection.is_ended()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_messages_without_a_header(secured: Server, mechanism: str) -> None:
    """SaslHandshake v0."""
    with RawConnection(address(secured)) as connection:
        assert handshake(connection, mechanism, 0).error_code == 0
        client = Scram(Sasl(mechanism.replace("PLAIN", "SCRAM-SHA-256"), "alice", PASSWORDS["alice"]), "client")
        if mechanism == "PLAIN":
            assert message(connection, f"\0alice\0{PASSWORDS['alice']}".encode()) == b""
        else:
            first = message(connection, client.first.encode())
            client.check(message(connection, client.final(first.decode()).encode()).decode())
        assert serves(connection)
    for wrong in (b"\0alice\0guess", b"", b"x"):
        with RawConnection(address(secured)) as connection:
            handshake(connection, mechanism, 0)
            with pytest.raises(ConnectionEnded):
                message(connection, wrong)


def message(connection: RawConnection, content: bytes) -> bytes:
    connection.send_bytes(struct.pack(">i", len(content)) + content)
    return connection.receive_frame()


@pytest.mark.parametrize("before", ["nothing", "versions", "handshake"])
@pytest.mark.parametrize("key", ["metadata", "versions", "authenticate", "too_large"])
def test_requests_before_the_login(secured: Server, before: str, key: str) -> None:
    """None of them is served: the connection ends, after an error once a mechanism is chosen."""
    versions = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    metadata = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=TOPIC)])
    if (before, key) in (("nothing", "versions"), ("handshake", "authenticate")):
        pytest.skip("it may be sent now")
    with RawConnection(address(secured)) as connection:
        if before == "versions":
            listed = {api.api_key for api in connection.call(versions, 3).api_keys}
            assert {17, 36, 51} <= listed
        elif before == "handshake":
            handshake(connection, "PLAIN")
        if key == "too_large":
            connection.send_bytes(struct.pack(">i", 524_289) + bytes(100))
        elif key == "versions":
            connection.send(versions, 3)
        elif key == "authenticate":
            connection.send(SaslAuthenticateRequest(auth_bytes=f"\0alice\0{PASSWORDS['alice']}".encode()), 2)
        else:
            connection.send(metadata, 8)
        if before == "handshake" and key == "metadata":
            assert [topic.error_code for topic in connection.receive(metadata).topics] == [ILLEGAL_STATE]
        elif before == "handshake" and key == "versions":
            assert struct.unpack_from(">h", connection.receive_frame(), 4) == (ILLEGAL_STATE,)  # kafka-python expects another version
        assert connection.is_ended()


def test_sasl_requests_after_the_login(secured: Server) -> None:
    with RawConnection(address(secured)) as connection:
        log_in(connection, "PLAIN")
        answer = handshake(connection, "PLAIN")
        assert (answer.error_code, answer.mechanisms) == (ILLEGAL_STATE, [])
        answer = authenticate(connection, b"\0alice\0x")
        assert (answer.error_code, answer.error_message) == (
            ILLEGAL_STATE, "SaslAuthenticate request received after successful authentication"
        )  # fmt: skip
        assert serves(connection)
    with RawConnection(secured.address) as connection:
        assert authenticate(connection, b"x").error_code == ILLEGAL_STATE
        assert serves(connection)


def alter(
    server: Server, *upsertions: tuple[str, int, int], deletions: tuple[tuple[str, int], ...] = ()
) -> dict[str, tuple[int, str | None]]:
    kind = AlterUserScramCredentialsRequest
    request = kind(
        deletions=[kind.ScramCredentialDeletion(name=user, mechanism=mechanism) for user, mechanism in deletions],
        upsertions=[
            kind.ScramCredentialUpsertion(name=user, mechanism=mechanism, iterations=count, salt=SALT, salted_password=b"x" * 32)
            for user, mechanism, count in upsertions
        ],
    )
    with RawConnection(server.address) as connection:
        return {result.user: (result.error_code, result.error_message) for result in connection.call(request, 0).results}


def credentials(server: Server, *users: str) -> dict[str, tuple[int, dict[int, int]]]:
    """Of each user the error and the iterations by mechanism."""
    request = DescribeUserScramCredentialsRequest(users=[DescribeUserScramCredentialsRequest.UserName(name=user) for user in users] or None)
    with RawConnection(server.address) as connection:
        results = connection.call(request, 0).results
    return {one.user: (one.error_code, {each.mechanism: each.iterations for each in one.credential_infos}) for one in results}


def test_credentials_are_altered_user_by_user(secured: Server) -> None:
    """KIP-554, with the limits, codes and texts of Kafka 3.9."""
    answers = alter(
        secured, ("few", 1, 4095), ("many", 2, 16385), ("", 1, 4096), ("other", 7, 4096), ("twice", 1, 4096), ("twice", 1, 8192),
        ("fine", 1, 4096), ("J\u00fcrgen/=,%", 1, 4096), deletions=(("absent", 1),),
    )  # fmt: skip
    assert {user: (code, message or "") for user, (code, message) in answers.items()} == {
        "few": (93, "Too few iterations"), "many": (93, "Too many iterations"), "": (93, "Username must not be empty"),
        "other": (33, "Unknown SCRAM mechanism"), "twice": (92, "A user credential cannot be altered twice in the same request"),
        "absent": (91, "Attempt to delete a user credential that does not exist"), "fine": (0, ""), "J\u00fcrgen/=,%": (0, ""),
    }  # fmt: skip
    if secured.kind == "kafka":
        return  # Kafka 4 takes one mechanism of a user in a request
    assert alter(secured, ("fine", 1, 4096), ("fine", 2, 16384)) == {"fine": (0, "")}
    until(lambda: credentials(secured, "fine", "J\u00fcrgen/=,%", "few") == {
        "fine": (0, {1: 4096, 2: 16384}), "J\u00fcrgen/=,%": (0, {1: 4096}), "few": (91, {}),
    }, "the credentials are described")  # fmt: skip
    assert {"fine", "alice"} <= credentials(secured).keys()
    assert alter(secured, deletions=(("fine", 1),)) == {"fine": (0, "")}
    until(lambda: credentials(secured, "fine")["fine"] == (0, {2: 16384}), "one is deleted")
    assert alter(secured, deletions=(("fine", 2), ("J\u00fcrgen/=,%", 1))) == {"fine": (0, ""), "J\u00fcrgen/=,%": (0, "")}
    until(lambda: credentials(secured, "fine")["fine"][0] == 91, "both are deleted")


def test_a_new_password_counts_for_the_next_login(secured: Server) -> None:
    with RawConnection(address(secured)) as before:
        assert set_password(secured.address, "carol", "one") == [("carol", 0)]
        until(lambda: may_log_in(secured, "carol", "one"), "carol can log in")
        log_in(before, "SCRAM-SHA-256", "carol", "one")
        set_password(secured.address, "carol", "two")
        until(lambda: may_log_in(secured, "carol", "two") and not may_log_in(secured, "carol", "one"), "the new password counts")
        alter(secured, deletions=(("carol", 1),))
        until(lambda: not may_log_in(secured, "carol", "two"), "carol cannot log in any more")
        assert serves(before), "connections stay"


def may_log_in(server: Server, user: str, password: str) -> bool:
    with RawConnection(address(server)) as connection:
        return not log_in(connection, "SCRAM-SHA-256", user, password).error_code


def salt_of(address: str, user: str, mechanism: str = "SCRAM-SHA-256") -> str:
    """The salt and the iterations that a broker sends for a user."""
    with RawConnection(address) as connection:
        assert handshake(connection, mechanism).error_code == 0
        answer = authenticate(connection, f"n,,n={user},r=client".encode())
        assert answer.error_code == 0
        return bytes(answer.auth_bytes).decode().split(",", 1)[1]


def test_the_salt_of_a_missing_user_survives_a_restart(server_directory: Path) -> None:
    """Other salts after a restart would show which users exist."""
    server, _ = sasl_server(BrokerProcess.kind, server_directory / "restarted")
    try:
        server.start()
        before = [salt_of(address(server), "ghost", mechanism) for mechanism in MECHANISMS[1:]]
        assert len({*before, salt_of(address(server), "other")}) == 3
        server.stop()
        server.start()
        assert [salt_of(address(server), "ghost", mechanism) for mechanism in MECHANISMS[1:]] == before
    finally:
        server.close()


# --- real clients ---


def python_settings(server: Server, mechanism: str, user: str, password: str) -> dict[str, Any]:
    return {"bootstrap_servers": address(server), "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism,
            "sasl_plain_username": user, "sasl_plain_password": password}  # fmt: skip


@pytest.mark.parametrize("user", PASSWORDS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python(secured: Server, mechanism: str, user: str) -> None:
    produce_and_consume(TOPIC, f"{mechanism} {user}".encode(), python_settings(secured, mechanism, user, PASSWORDS[user]))


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("user", ["alice", "ghost"])
def test_kafka_python_with_a_wrong_password(secured: Server, mechanism: str, user: str) -> None:
    with pytest.raises((kafka_errors.SaslAuthenticationFailedError, kafka_errors.KafkaTimeoutError)):
        KafkaProducer(**python_settings(secured, mechanism, user, "guess"), bootstrap_timeout_ms=1_000).close()


def polled(producer: Producer, errors: list[Any]) -> bool:
    """Whether the client has reported an error."""
    producer.poll(0.1)
    return bool(errors)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka(secured: Server, mechanism: str) -> None:
    settings = {"bootstrap.servers": address(secured), "security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": mechanism,
                "sasl.username": "bob"}  # fmt: skip
    delivered: list[Any] = []
    producer = Producer({**settings, "sasl.password": PASSWORDS["bob"]})
    producer.produce(TOPIC, b"librdkafka", on_delivery=lambda error, _: delivered.append(error))
    producer.flush(PATIENCE_S)
    assert delivered == [None]
    for user in ("bob", "ghost"):
        errors: list[Any] = []
        producer = Producer({**settings, "sasl.username": user, "sasl.password": "guess", "error_cb": errors.append})
        until(partial(polled, producer, errors), "the client reports the error")
        assert errors[0].name() == "_AUTHENTICATION" and not errors[0].fatal()
        reason = "Invalid username or password" if mechanism == "PLAIN" else f"invalid credentials with SASL mechanism {mechanism}"
        assert reason in errors[0].str()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafkas_console_clients(secured: Server, mechanism: str, tmp_path: Path, name: str) -> None:
    create_topic(secured, name)
    record = f"from the console with {mechanism}"
    file = properties_file(tmp_path / "bob", client_properties(mechanism, "bob", PASSWORDS["bob"]))
    place = ("--bootstrap-server", address(secured))
    java.run("kafka-console-producer", *place, "--topic", name, "--producer.config", file, stdin=record + "\n")
    options = ("--topic", name, "--from-beginning", "--max-messages", "1", "--consumer.config", file)
    assert record in java.run("kafka-console-consumer", *place, *options).splitlines()
    wrong = properties_file(tmp_path / "wrong", client_properties(mechanism, "bob", "guess"))
    with pytest.raises(java.ToolFailed) as failed:
        java.run("kafka-topics", *place, "--list", "--command-config", wrong)
    assert "SaslAuthenticationException: Authentication failed" in str(failed.value)
    reason = "Invalid username or password" if mechanism == "PLAIN" else "due to invalid credentials with SASL mechanism"
    assert reason in str(failed.value)


def test_kafka_configs_creates_a_user(secured: Server, name: str) -> None:
    place = ("--bootstrap-server", secured.address, "--entity-type", "users", "--entity-name", name)
    for mechanism in ("SCRAM-SHA-256=[iterations=8192,password=first]", "SCRAM-SHA-512=[password=first]"):
        java.run("kafka-configs", *place, "--alter", "--add-config", mechanism)
    until(lambda: may_log_in(secured, name, "first"), "the user can log in")
    described = java.run("kafka-configs", *place, "--describe")
    assert "SCRAM-SHA-256=iterations=8192" in described and "SCRAM-SHA-512=iterations=4096" in described
    java.run("kafka-configs", *place, "--alter", "--delete-config", "SCRAM-SHA-256")
    until(lambda: not may_log_in(secured, name, "first"), "the user cannot log in any more")
