"""Keys and certificates in the three types of stores, as Java's keytool makes them, and what is refused with which key."""

from __future__ import annotations

import builtins
import contextlib
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.certificates import PASSWORD, Authority, Issued
from txbroker.tls.contexts import client_context, server_context
from txbroker.tls.settings import TlsProblem, read_settings


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="module")
def server(authority: Authority) -> Issued:
    return authority.issue("server")


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str = "localhost") -> bytes | None:
    """The client's certificate after a handshake in memory; ssl.SSLError."""
    ends = []
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends.append(client.wrap_bio(to_client, to_server, server_hostname=host))
    ends.append(server.wrap_bio(to_server, to_client, server_side=True))
    for _ in range(6):
        for end in ends:
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    ends[1].write(b"answer")
    assert ends[0].read() == b"answer"
    return ends[1].getpeercert(binary_form=True)


def contexts(**keys: str) -> tuple[Any, ssl.SSLContext]:
    """A listener and a client with the same keys."""
    settings = read_settings({f"ssl.{key.replace('_', '.')}": value for key, value in keys.items()}.get)
    return server_context(settings), client_context(settings)


def files(kind: str, key: Path, trusted: Path, **more: str) -> dict[str, str]:
    passwords = {} if kind == "PEM" else {"keystore_password": PASSWORD, "truststore_password": PASSWORD}
    return {"keystore_type": kind, "truststore_type": kind, "keystore_location": str(key), "truststore_location": str(trusted),
            "client_auth": "required", **passwords, **more}  # fmt: skip


KINDS: dict[str, Callable[[Authority, Issued], dict[str, str]]] = {
    "pem": lambda authority, server: files("PEM", server.pem(), authority.pem()),
    "encrypted pem": lambda authority, server: files("PEM", server.pem(PASSWORD), authority.pem(), key_password=PASSWORD),
    "inline": lambda authority, server: {
        "keystore_type": "PEM", "truststore_type": "PEM", "client_auth": "required", "keystore_key": server.key_pem(),
        "keystore_certificate_chain": "text before it\n" + server.chain_pem(), "truststore_certificates": authority.text(),
    },
    "inline, in one line": lambda authority, server: {
        "keystore_type": "PEM", "truststore_type": "PEM", "client_auth": "required", "key_password": PASSWORD,
        "keystore_key": server.key_pem(PASSWORD).replace("\n", " "), "truststore_certificates": authority.text().replace("\n", " "),
        "keystore_certificate_chain": server.chain_pem().replace("\n", " "),
    },
    "pkcs12": lambda authority, server: files("PKCS12", server.pkcs12(), authority.truststore("PKCS12")),
    "jks": lambda authority, server: files("JKS", server.jks(), authority.truststore("JKS")),
    "pkcs12 as jks, as in Java": lambda authority, server: files("JKS", server.pkcs12(), authority.truststore("PKCS12")),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_rsa", [False, True], ids=["ec", "rsa"])
def test_a_store_of_each_type_serves_a_listener_and_a_client(authority: Authority, kind: str, is_rsa: bool) -> None:
    issued = authority.issue(f"both-{kind}-{is_rsa}".translate({32: "_", 44: "_"}), is_rsa=is_rsa)
    server, client = contexts(**KINDS[kind](authority, issued))
    assert handshake(server.context, client) == issued.der
    assert server.own.subject == f"CN={issued.name},O=Test"


def test_only_the_configured_versions_and_suites_are_used(authority: Authority, server: Issued) -> None:
    pem = files("PEM", server.pem(), authority.pem())
    all_of_1_3 = "TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256,TLS_AES_128_GCM_SHA256"
    one = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
    for suites, low, high in ((one, 2, 2), (all_of_1_3, 3, 3), (f"{all_of_1_3},{one}", 2, 3), ("", 2, 3)):
        made, client = contexts(**pem, cipher_suites=suites)
        for context in (made.context, client):
            assert (context.minimum_version.name[-1], context.maximum_version.name[-1]) == (str(low), str(high))
    made, _ = contexts(**pem, cipher_suites="TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA")
    names = {suite["name"] for suite in made.context.get_ciphers()}
    assert {name for name in names if not name.startswith("TLS_")} == {"ECDHE-ECDSA-CHACHA20-POLY1305", "ECDHE-ECDSA-AES256-SHA"}


def test_every_suite_with_a_known_name_is_one_of_openssl() -> None:
    from txbroker.tls.cipher_suites import cipher_suites

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for exchange in ("ECDHE_ECDSA", "ECDHE_RSA", "DHE_RSA", "RSA"):
        for cipher in ("AES_128_GCM_SHA256", "AES_256_GCM_SHA384", "AES_128_CBC_SHA256", "AES_128_CBC_SHA", "AES_256_CBC_SHA"):
            found = cipher_suites([f"TLS_{exchange}_WITH_{cipher}"])
            assert found is not None
            context.set_ciphers(found.tls_1_2)


def test_a_wrong_host_name_is_refused_unless_it_is_not_checked(authority: Authority, server: Issued) -> None:
    pem = files("PEM", server.pem(), authority.pem())
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(contexts(**pem)[0].context, contexts(**pem)[1], "other.example")
    made, client = contexts(**pem, endpoint_identification_algorithm="")
    assert handshake(made.context, client, "other.example") == server.der


def test_a_certificate_is_trusted_that_is_itself_in_the_trust_store(authority: Authority, server: Issued) -> None:
    made, client = contexts(**files("PEM", server.pem(), server.chain_file()))
    assert handshake(made.context, client) == server.der


MUST_BE_SET = "must be set, or ssl.keystore.key and ssl.keystore.certificate.chain: a listener with TLS needs a certificate and its key"


@pytest.mark.parametrize(
    ("keys", "key", "problem"),
    [
        ({}, "ssl.keystore.location", MUST_BE_SET),
        ({"keystore_location": "/x", "keystore_password": "x", "client_auth": "required"}, "ssl.client.auth",
         "is required, so ssl.truststore.location must be set: with the certificates of the system every public certificate would be "
         "accepted"),
        ({"keystore_type": "BKS"}, "ssl.keystore.type", "is BKS; it must be one of JKS, PKCS12, PEM"),
        ({"keystore_type": "PEM", "keystore_location": "/x", "keystore_password": "x"}, "ssl.keystore.password",
         "is not used by the type PEM; set only ssl.key.password"),
        ({"keystore_location": "/x"}, "ssl.keystore.password", "must be set for a key store of the type JKS"),
        ({"keystore_password": "x"}, "ssl.keystore.password", "is set without ssl.keystore.location; set both, or neither"),
        ({"keystore_key": "x"}, "ssl.keystore.key", "needs ssl.keystore.type=PEM, which is JKS"),
        ({"keystore_type": "PEM", "keystore_key": "x"}, "ssl.keystore.key",
         "is set alone; ssl.keystore.key and ssl.keystore.certificate.chain need each other"),
        ({"keystore_type": "PEM", "keystore_key": "x", "keystore_certificate_chain": "x", "keystore_location": "/x"}, "ssl.keystore.key",
         "and ssl.keystore.location are both set; remove one of them"),
        ({"truststore_certificates": "x"}, "ssl.truststore.certificates", "needs ssl.truststore.type=PEM, which is JKS"),
        ({"truststore_type": "PEM", "truststore_certificates": "x", "truststore_location": "/x"}, "ssl.truststore.certificates",
         "and ssl.truststore.location are both set; remove one of them"),
        ({"truststore_type": "PEM", "truststore_location": "/x", "truststore_password": "x"}, "ssl.truststore.password",
         "is not used by the type PEM; remove it"),
        ({"enabled_protocols": "TLSv1.1,TLSv1.2"}, "ssl.enabled.protocols", "has TLSv1.1; supported are TLSv1.2 and TLSv1.3"),
        ({"cipher_suites": "TLS_AES_256_GCM_SHA384"}, "ssl.cipher.suites",
         "has some suites of TLS 1.3, of which only all or none can be enabled: add TLS_AES_128_GCM_SHA256, TLS_CHACHA20_POLY1305_SHA256"),
        ({"cipher_suites": "ECDHE-RSA-AES128-GCM-SHA256"}, "ssl.cipher.suites",
         "has ECDHE-RSA-AES128-GCM-SHA256, which is not supported; use suites such as TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"),
        ({"cipher_suites": "TLS_RSA_WITH_AES_128_GCM_SHA256", "enabled_protocols": "TLSv1.3"}, "ssl.cipher.suites",
         "has no suite of TLSv1.3, which ssl.enabled.protocols requires"),
        ({"client_auth": "maybe"}, "ssl.client.auth", "is maybe; it must be one of none, requested, required"),
        ({"engine_factory_class": "a.B"}, "ssl.engine.factory.class", "names code of Java, which cannot run here; remove the key"),
        ({"keystore_type": "PEM", "keystore_location": "/none.pem"}, "ssl.keystore.location",
         "is /none.pem, which cannot be read: No such file or directory"),
        ({"keystore_type": "PEM", "keystore_key": "x", "keystore_certificate_chain": "x"}, "ssl.keystore.certificate.chain",
         "cannot be used: it has no private key; a store of the type PEM is needed, see ssl.keystore.type"),
    ],
)
def test_keys_that_cannot_be_used_are_refused(keys: dict[str, str], key: str, problem: str) -> None:
    with pytest.raises(TlsProblem) as caught:
        contexts(**keys)
    assert (caught.value.key, caught.value.problem) == (key, problem)


def problem(**keys: str) -> str:
    with pytest.raises(TlsProblem) as caught:
        contexts(**keys)
    return str(caught.value)


def test_stores_that_cannot_be_used_are_refused_with_the_reason(authority: Authority, server: Issued, tmp_path: Path) -> None:
    p12, jks, pem = server.pkcs12(), server.jks(), server.pem(PASSWORD)
    wrong = {"keystore_password": "wrong"}
    opens_not = "ssl.keystore.password does not open {}: the password is wrong, or the store is damaged"
    assert problem(keystore_type="PKCS12", keystore_location=str(p12), **wrong) == opens_not.format(p12)
    assert problem(keystore_type="JKS", keystore_location=str(jks), **wrong) == opens_not.format(jks)
    assert problem(keystore_location=str(jks), keystore_password=PASSWORD, key_password="wrong") == (
        f"ssl.keystore.password does not open {jks}: the password of the key is wrong"
    )
    assert problem(keystore_type="PEM", keystore_location=str(pem), key_password="wrong").startswith(
        f"ssl.keystore.location is {pem}, which cannot be used: the password in ssl.key.password is wrong, or "
    )
    assert problem(keystore_type="PEM", keystore_location=str(jks)) == (
        f"ssl.keystore.location is {jks}, which cannot be used: it has no private key; "
        "a store of the type PEM is needed, see ssl.keystore.type"
    )
    assert problem(keystore_type="PKCS12", keystore_location=str(pem), keystore_password="x") == (
        f"ssl.keystore.location is {pem}, which cannot be used: it is neither JKS nor PKCS12; "
        "a store of the type PKCS12 is needed, see ssl.keystore.type"
    )
    other = tmp_path / "other.pem"
    other.write_text(authority.issue("another").key_pem() + server.chain_pem())
    assert problem(keystore_type="PEM", keystore_location=str(other)) == (
        f"ssl.keystore.location is {other}, whose private key is not that of its first certificate"
    )
    other.write_text("nothing")
    assert problem(**files("PEM", server.pem(), other)) == (
        f"ssl.truststore.location is {other}, which cannot be used: it has no certificates; "
        "a store of the type PEM is needed, see ssl.truststore.type"
    )
    with other.open("wb") as file:
        file.truncate(20 << 20)
    assert "it is larger than 16 MiB" in problem(keystore_type="PEM", keystore_location=str(other))


def test_damaged_java_stores_are_refused(server: Issued, tmp_path: Path) -> None:
    whole = server.jks().read_bytes()
    damaged = tmp_path / "damaged"
    for position in range(4, len(whole), 40):
        damaged.write_bytes(whole[:position])
        assert "damaged" in problem(keystore_location=str(damaged), keystore_password=PASSWORD)
        damaged.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        assert "damaged" in problem(keystore_location=str(damaged), keystore_password=PASSWORD)


def test_pkcs12_without_the_extra_names_what_to_install(server: Issued, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **named: Any) -> Any:
        if name.startswith("cryptography"):
            raise ImportError(name)
        return real(name, *arguments, **named)

    path = server.pkcs12()
    monkeypatch.setattr(builtins, "__import__", without)
    found = problem(keystore_type="PKCS12", keystore_location=str(path), keystore_password=PASSWORD)
    assert found == (
        f"ssl.keystore.location is {path}, a PKCS12 store; install txbroker[security], or convert it to PEM with "
        f"`openssl pkcs12 -in {path} -out store.pem -nodes`"
    )
