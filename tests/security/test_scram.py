"""SCRAM of the broker: the example of RFC 7677, other clients' side of it, and what is refused."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.net.sasl.scram import ScramClient

from txbroker.client.client_errors import ConnectionFailed
from txbroker.client.client_security import Sasl, Scram
from txbroker.security.sasl_exchange import LoginFailed
from txbroker.security.scram import InvalidCredential, ScramCredential, ScramExchange, fake_credential
from txbroker.wire import scram
from txbroker.wire.scram import HASHES

SECRET = b"of this test"
MECHANISMS = tuple(HASHES)
# Kafka's regular expressions take these characters; a comma and an equals sign are escaped.
NAMES = st.text(st.characters(min_codepoint=1, max_codepoint=0x7F), min_size=1, max_size=20)


def credential(mechanism: str, password: str, *, salt: bytes = b"salt", iterations: int = 4096) -> ScramCredential:
    return ScramCredential.of_salted(mechanism, salt, scram.salted_password(HASHES[mechanism], password, salt, iterations), iterations)


def exchange(known: ScramCredential | None, mechanism: str = "SCRAM-SHA-256", nonce: str = "server") -> ScramExchange:
    return ScramExchange(mechanism, lambda user: known, nonce, SECRET)


def refused(server: ScramExchange, message: str) -> LoginFailed:
    with pytest.raises(LoginFailed) as failed:
        server.respond(message.encode())
    assert not server.is_complete
    return failed.value


def test_the_example_of_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    server = exchange(credential("SCRAM-SHA-256", "pencil", salt=salt), nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    assert server.respond(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert not server.is_complete and server.user == "user"
    final = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert server.respond(final.encode()) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert server.is_complete


@pytest.mark.parametrize("mechanism", MECHANISMS)
@given(user=NAMES, password=st.text(max_size=20), salt=st.binary(max_size=30), wrong=st.text(max_size=20))
def test_our_client_logs_in_with_the_right_password_only(mechanism: str, user: str, password: str, salt: bytes, wrong: str) -> None:
    known = credential(mechanism, password, salt=salt)
    server = exchange(known, mechanism)
    client = Scram(Sasl(mechanism, user, password), "client")
    first = server.respond(client.first.encode()).decode()
    client.check(server.respond(client.final(first).encode()).decode())
    assert server.is_complete and server.user == user
    if wrong != password:
        server, client = exchange(known, mechanism), Scram(Sasl(mechanism, user, wrong), "client")
        final = client.final(server.respond(client.first.encode()).decode())
        assert refused(server, final).reason == "wrong password"


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("password", ["secret", "", "p\u00e4ss,=w\u00f6rd"])
def test_kafka_pythons_client_logs_in(mechanism: str, password: str) -> None:
    server = exchange(credential(mechanism, password, salt=b"1a2b3c"), mechanism)
    client = ScramClient("alice", password, mechanism)
    client.process_server_first_message(server.respond(client.first_message()))
    client.process_server_final_message(server.respond(client.final_message()))
    assert server.is_complete and server.user == "alice"


def test_a_missing_user_is_answered_as_one_with_a_wrong_password() -> None:
    for mechanism in MECHANISMS:
        size = len(credential(mechanism, "x").stored_key)
        fake = fake_credential(SECRET, mechanism, "ghost")
        assert fake == fake_credential(SECRET, mechanism, "ghost") and len(fake.stored_key) == size
        assert fake.salt != fake_credential(SECRET, mechanism, "ghost2").salt != fake_credential(b"other", mechanism, "ghost2").salt
        assert 20 <= len(fake.salt) <= 26 and fake.salt.isalnum(), "as those of Kafka's tools"
        server, client = exchange(None, mechanism), Scram(Sasl(mechanism, "ghost", "x"), "client")
        final = client.final(server.respond(client.first.encode()).decode())
        failed = refused(server, final)
        assert failed.message is None, "the same text for the client"
        assert failed.reason == f"no such user for {mechanism}"
        server = exchange(None, mechanism)
        server.respond(client.first.encode())
        assert refused(server, final.split(",p=")[0] + ",p=AAAA").reason == f"no such user for {mechanism}"


def test_no_proof_fits_a_missing_user() -> None:
    """The stored key can be computed from the secret, but no client key that belongs to it."""
    server = exchange(None)
    first = server.respond(b"n,,n=ghost,r=client").decode()
    fake = fake_credential(SECRET, "SCRAM-SHA-256", "ghost")
    signed = f"n=ghost,r=client,{first},c=biws,r=clientserver".encode()
    proof = scram.exclusive_or(fake.stored_key, scram.signature("sha256", fake.stored_key, signed))
    assert refused(server, f"c=biws,r=clientserver,p={base64.b64encode(proof).decode()}").reason == "no such user for SCRAM-SHA-256"


@pytest.mark.parametrize("first", [
    "", "n", "n,,", "n,,n=,r=x", "n,,n=user,r=", "y,,n=user,r=x", "p=tls-unique,,n=user,r=x", "n,,n=us=er,r=x", "n,,n=user,r=a b",
    "n,,n=us\xe9r,r=x", "n,,n=user", "n,b,n=user,r=x", "n,,n=user,r=x,extension", "n,,r=x,n=user", "n,,n=user,r=x,1=y", "\0user\0secret",
])  # fmt: skip
def test_malformed_first_messages(first: str) -> None:
    assert refused(exchange(credential("SCRAM-SHA-256", "secret")), first).reason == "the first message is malformed"


def test_messages_that_are_no_text() -> None:
    with pytest.raises(LoginFailed):
        exchange(None).respond(b"n,,n=\xff\xfe,r=x")


@pytest.mark.parametrize("first", [
    "n,,n=user,r=client", "n,a=user,n=user,r=client", "n,,m=ignored,n=user,r=client", "n,,n=user,r=client,a=b,c=d=e",
    "n,,n=user,r=client,tokenauth=false",
])  # fmt: skip
def test_what_kafka_takes_too(first: str) -> None:
    """Reserved attributes and extensions are ignored, and so is a wrong field of channel binding. librdkafka before 2.6.1 has the client's
    nonce twice in its final message."""
    known = credential("SCRAM-SHA-256", "secret")
    server = exchange(known)
    answer = server.respond(first.encode()).decode()
    bare = first.split(",", 2)[2]
    salted = scram.salted_password("sha256", "secret", known.salt, known.iterations)
    for without in ("c=biws,r=clientserver", "c=eSws,r=clientserver", "c=biws,r=clientclientserver"):
        key = scram.client_key("sha256", salted)
        signed = f"{bare},{answer},{without}".encode()
        proof = scram.exclusive_or(key, scram.signature("sha256", scram.stored_key("sha256", key), signed))
        assert server.respond(f"{without},p={base64.b64encode(proof).decode()}".encode()).startswith(b"v=")


@pytest.mark.parametrize(("final", "reason"), [
    ("", "the final message is malformed"), ("c=biws,r=clientserver", "the final message is malformed"),
    ("c=biws,r=client,p=AAAA", "the final message has another nonce"),  # CVE-2024-56128
    ("c=biws,r=xclientserver,p=AAAA", "the final message has another nonce"),
    ("c=biws,r=clientclient,p=AAAA", "the final message has another nonce"),
    ("c=biws,r=clientserver,p=A", "the final message is malformed"),
    ("c=biws,r=clientserver,p=", "the proof has another length"),
    ("c=biws,r=clientserver,p=AAAA", "the proof has another length"),
    ("c=biws,r=clientserver,p=" + base64.b64encode(bytes(32)).decode(), "wrong password"),
])  # fmt: skip
def test_final_messages_that_prove_nothing(final: str, reason: str) -> None:
    server = exchange(credential("SCRAM-SHA-256", "secret"))
    server.respond(b"n,,n=user,r=client")
    assert refused(server, final).reason == reason


def test_an_old_final_message_does_not_fit_a_new_login() -> None:
    known = credential("SCRAM-SHA-256", "secret")
    server, client = exchange(known, nonce="one"), Scram(Sasl("SCRAM-SHA-256", "user", "secret"), "client")
    final = client.final(server.respond(client.first.encode()).decode())
    server.respond(final.encode())
    again = exchange(known, nonce="two")
    again.respond(client.first.encode())
    assert refused(again, final).reason == "the final message has another nonce"


def test_what_a_user_may_not_do() -> None:
    known = credential("SCRAM-SHA-256", "secret")
    assert refused(exchange(known), "n,a=root,n=user,r=x").message == (
        "Authentication failed: Client requested an authorization id that is different from username"
    )
    assert "delegation token" in refused(exchange(known), "n,,n=user,r=x,tokenauth=TRUE").reason
    server = exchange(credential("SCRAM-SHA-256", "secret", iterations=4095))
    client = Scram(Sasl("SCRAM-SHA-256", "user", "secret"), "client")
    answer = server.respond(client.first.encode()).decode()
    assert answer.endswith(",i=4096")
    assert "4095 iterations, and 4096 is the minimum" in refused(server, client.final(answer)).reason


def test_a_name_with_a_comma_and_an_equals_sign() -> None:
    server = exchange(None)
    server.respond(b"n,,n=a=3Db=2Cc=3D2C,r=x")
    assert server.user == "a=b,c=2C"


@given(st.binary(), st.binary(), st.binary(), st.integers(0, 999_999_999))
def test_credentials_are_read_back(salt: bytes, stored: bytes, server: bytes, iterations: int) -> None:
    made = ScramCredential(salt, stored, server, iterations)
    assert ScramCredential.parse(made.format()) == made


def test_the_form_of_credentials_is_kafkas() -> None:
    """A credential that Apache Kafka 3.9 has stored."""
    text = ("salt=c2FsdHNhbHRzYWx0c2FsdA==,stored_key=5fFUxV0AD26xWkoJJg7bXVrfsC18oO/9teoJx9PJtT0=,"
            "server_key=HEtYAvOwTubW02jJL+5MEEljbbOmsXhQuGr9eFqJSO0=,iterations=4096")  # fmt: skip
    found = ScramCredential.parse(text)
    assert (found.salt, len(found.stored_key), found.iterations) == (b"saltsaltsaltsalt", 32, 4096)
    assert found.format() == text


@pytest.mark.parametrize(("text", "problem"), [
    ("", "must have the fields salt"), ("salt=,stored_key=,server_key=", "must have the fields"),
    ("salt=,stored_key=,server_key=,iterations=1,more=2", "must have the fields"),
    ("salt=x,stored_key=,server_key=,iterations=1", "must be in base64"),
    ("salt=,stored_key=,server_key=,iterations=x", "iterations must be a number"),
    ("salt=,stored_key=,server_key=,iterations=-5", "iterations must be a number"),
    ("salt=,stored_key=,server_key=,iterations=9999999999", "iterations must be a number"),
])  # fmt: skip
def test_invalid_credentials(text: str, problem: str) -> None:
    with pytest.raises(InvalidCredential, match=problem):
        ScramCredential.parse(text)


def test_a_client_finds_a_broker_that_does_not_know_the_password() -> None:
    server, client = exchange(None), Scram(Sasl("SCRAM-SHA-256", "ghost", "x"), "client")
    client.final(server.respond(client.first.encode()).decode())
    with pytest.raises(ConnectionFailed):
        client.check("v=AAAA")
