"""TLS and logins of a broker for tests: its certificate, its user, and what the broker and its clients need of them."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from txbroker.client.client_security import ClientSecurity
from txbroker.config.jaas import PLAIN_MODULE, SCRAM_MODULE
from txbroker.console.failures import CommandFailed
from txbroker.security import users_file
from txbroker.security.scram import SALT_BYTES, ScramCredential, salt_of
from txbroker.testing.errors import KitError
from txbroker.testing.settings import HOST, INTERNAL
from txbroker.wire.scram import HASHES, ITERATIONS_MIN, salted_password

PLAINTEXT = "PLAINTEXT"
MTLS = "MTLS"  # the protocol SSL with `ssl.client.auth=required`
VALUES = (PLAINTEXT, "SSL", MTLS, "SASL_PLAINTEXT", "SASL_SSL")
MECHANISM = "SCRAM-SHA-512"
MECHANISMS = ("PLAIN", *HASHES)
USER, PASSWORD = "test", "test-secret"
AUTHORITY, CERTIFICATE, OF_CLIENTS, USERS = "ca.pem", "broker.pem", "client.pem", "users"
DAYS = 365  # the broker warns of a certificate that ends within thirty days


class Security(NamedTuple):
    """`value`: one of `VALUES` with TLS, a login or both. `directory`: of its files."""

    value: str
    directory: str

    @property
    def protocol(self) -> str:
        """Kafka's security protocol."""
        return "SSL" if self.value == MTLS else self.value

    @property
    def has_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.protocol.endswith("SSL")

    @property
    def has_login(self) -> bool:
        """Whether clients log in."""
        return self.protocol.startswith("SASL")

    @property
    def has_client_certificate(self) -> bool:
        """Whether the broker refuses a client without a certificate."""
        return self.value == MTLS

    def path(self, name: str) -> str:
        """Of one of the files."""
        return os.path.join(self.directory, name)

    def write(self) -> None:
        """Write the files, unless they are there; KitError."""
        if os.path.exists(self.directory):
            return
        files = {USERS: _users()}
        if self.has_tls:
            try:
                files |= _certificates()
            except CommandFailed as error:
                raise KitError(f"security={self.value!r} needs certificates, and {error}") from None
        os.makedirs(self.directory, mode=0o700)
        for name, content in files.items():
            Path(self.path(name)).write_bytes(content)

    def settings(self) -> dict[str, str]:
        """Those of the broker, but for its listeners."""
        found = {
            "listener.security.protocol.map": f"{self.protocol}:{self.protocol},{INTERNAL}:{PLAINTEXT}",
            "inter.broker.listener.name": INTERNAL,
        }
        if self.has_tls:
            found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": self.path(CERTIFICATE)}
        if self.has_client_certificate:
            trusted = {"ssl.truststore.type": "PEM", "ssl.truststore.location": self.path(AUTHORITY)}
            found |= {"ssl.client.auth": "required", **trusted}
        if self.has_login:
            found |= {
                "sasl.enabled.mechanisms": ",".join(MECHANISMS),
                f"listener.name.{self.protocol.lower()}.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_{USER}="{PASSWORD}";',
                "txbroker.scram.users.file": self.path(USERS),
            }
        return found

    def of_java(self) -> dict[str, Any]:
        """The settings of a Java client."""
        found = {"security.protocol": self.protocol}
        if self.has_tls:
            found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": self.path(AUTHORITY)}
        if self.has_client_certificate:
            found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": self.path(OF_CLIENTS)}
        if self.has_login:
            login = f'{SCRAM_MODULE} required username="{USER}" password="{PASSWORD}";'
            found |= {"sasl.mechanism": MECHANISM, "sasl.jaas.config": login}
        return found

    def of_librdkafka(self) -> dict[str, Any]:
        """The settings of a client on librdkafka."""
        found = {"security.protocol": self.protocol}
        if self.has_tls:
            found["ssl.ca.location"] = self.path(AUTHORITY)
        if self.has_client_certificate:
            found |= {"ssl.certificate.location": self.path(OF_CLIENTS), "ssl.key.location": self.path(OF_CLIENTS)}
        if self.has_login:
            found |= {"sasl.mechanism": MECHANISM, "sasl.username": USER, "sasl.password": PASSWORD}
        return found

    def of_kafka_python(self) -> dict[str, Any]:
        """The arguments of a client of kafka-python."""
        found = self._arguments()
        if self.has_tls:
            found["ssl_cafile"] = self.path(AUTHORITY)
        if self.has_client_certificate:
            found |= {"ssl_certfile": self.path(OF_CLIENTS), "ssl_keyfile": self.path(OF_CLIENTS)}
        return found

    def of_aiokafka(self) -> dict[str, Any]:
        """The arguments of a client of aiokafka."""
        found = self._arguments()
        if self.has_tls:
            found["ssl_context"] = context = ssl.create_default_context(cafile=self.path(AUTHORITY))
            if self.has_client_certificate:
                context.load_cert_chain(self.path(OF_CLIENTS))
        return found

    def _arguments(self) -> dict[str, Any]:
        login = {"sasl_mechanism": MECHANISM, "sasl_plain_username": USER, "sasl_plain_password": PASSWORD}
        return {"security_protocol": self.protocol, **(login if self.has_login else {})}

    def own(self) -> ClientSecurity | None:
        """For the test kit's own client."""
        return ClientSecurity.of(self.of_java())


def security_of(value: str, directory: Path) -> Security | None:
    """That of a broker in this directory; None for PLAINTEXT. KitError."""
    check_security(value)
    return None if value == PLAINTEXT else Security(value, str(directory / "security"))


def check_security(value: str) -> None:
    """KitError unless it is one of `VALUES`."""
    if value not in VALUES:
        raise KitError(f"security is {value!r}; it must be one of {', '.join(VALUES)}")


def _users() -> bytes:
    credentials = {}
    for mechanism, hash_name in HASHES.items():
        salt = salt_of(os.urandom(SALT_BYTES))
        salted = salted_password(hash_name, PASSWORD, salt, ITERATIONS_MIN)
        credentials[mechanism] = ScramCredential.of_salted(mechanism, salt, salted, ITERATIONS_MIN)
    return users_file.changed(b"", USER, credentials)


def _certificates() -> dict[str, bytes]:
    """An authority and the certificates of the broker and of its clients, as `txbroker secure init` makes them; CommandFailed."""
    from txbroker.security import certificate_maker

    authority = certificate_maker.Authority.new("txbroker authority for tests", datetime.now(UTC), DAYS)
    issued = {CERTIFICATE: authority.issue((HOST, "localhost"), DAYS), OF_CLIENTS: authority.issue((USER,), DAYS)}
    files = {name: (pair.key + pair.certificate).encode() for name, pair in issued.items()}
    return {AUTHORITY: authority.pair.certificate.encode(), **files}


OF_LIBRARY: Mapping[str, Callable[[Security], dict[str, Any]]] = {
    "confluent": Security.of_librdkafka,
    "librdkafka": Security.of_librdkafka,
    "java": Security.of_java,
    "kafka-python": Security.of_kafka_python,
    "aiokafka": Security.of_aiokafka,
}
