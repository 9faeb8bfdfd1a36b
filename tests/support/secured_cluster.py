"""Clusters whose brokers log in at each other over TLS (SASL_SSL), of txbroker and of Apache Kafka 3.9, and clients of that listener."""

from __future__ import annotations

import json
import secrets
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from kazoo.client import KazooClient

from tests.support.acls import AUTHORIZER
from tests.support.certificates import PASSWORD, Authority, Issued
from tests.support.cluster import Cluster
from tests.support.kafka import KafkaMember
from tests.support.raw import RawConnection
from tests.support.sasl import MODULES, client_jaas, quoted
from tests.support.server import HOST, free_port
from tests.support.waiting import PATIENCE_S
from txbroker.client.client_security import Sasl, Scram
from txbroker.security.scram import ScramCredential
from txbroker.wire import scram
from txbroker.wire.scram import HASHES

BROKER = "broker"  # the user of the brokers
PASSWORDS = {BROKER: "secret of brokers", "alice": "alice-secret", "bob": 'b"o=b'}
SCRAM = "SCRAM-SHA-512"
LISTENER = "BROKERS"


def put_scram_user(zookeeper: str, user: str, password: str, *mechanisms: str) -> None:
    """Store a user's credentials where brokers read them, without a broker. `zookeeper`: host:port/chroot."""
    config = {}
    for mechanism in mechanisms:
        salted = scram.salted_password(HASHES[mechanism], password, b"salt", 4096)
        config[mechanism] = ScramCredential.of_salted(mechanism, b"salt", salted, 4096).format()
    host, slash, chroot = zookeeper.partition("/")
    client = KazooClient(host)
    client.start(timeout=PATIENCE_S)
    try:
        data = json.dumps({"version": 1, "config": config}).encode()
        client.create(f"{slash}{chroot}/config/users/{user}", data, makepath=True)
    finally:
        client.stop()
        client.close()


class SaslSslCluster(Cluster):
    """Brokers with a listener of SASL_SSL, for each other and for clients, beside a plain one for the test, which may do everything.

    The users of PASSWORDS can log in with PLAIN; with SCRAM only the brokers' one can, until a test creates others.
    """

    def __init__(
        self, directory: Path, kinds: Sequence[str], folder: Path, mechanism: str = SCRAM, overrides: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(directory, kinds, overrides)
        self.authority = Authority(folder)
        self.mechanism = mechanism
        self.first_mechanisms = tuple(HASHES)  # those for which the user of the brokers has credentials before the start
        self.secure: dict[int, str] = {}  # the addresses of the listener with SASL_SSL
        for broker_id, server in self.brokers.items():
            self.secure[broker_id] = f"{HOST}:{free_port()}"
            server.overrides |= self.settings(broker_id, self.authority.issue(f"broker-{broker_id}"))

    def settings(self, broker_id: int, issued: Issued) -> dict[str, str]:
        """Those of one broker with this certificate."""
        server = self.brokers[broker_id]
        is_kafka = isinstance(server, KafkaMember)
        kind = "PKCS12" if is_kafka else "PEM"
        listeners = f"PLAINTEXT://{server.address},{LISTENER}://{self.secure[broker_id]}"
        users = " ".join(f"user_{user}={quoted(password)}" for user, password in PASSWORDS.items())
        plain = client_jaas("PLAIN", BROKER, PASSWORDS[BROKER]).removesuffix(";")
        found = {
            **AUTHORIZER, "super.users": f"User:{BROKER};User:ANONYMOUS",
            "listeners": listeners, "advertised.listeners": listeners,
            "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{LISTENER}:SASL_SSL", "inter.broker.listener.name": LISTENER,
            "sasl.enabled.mechanisms": ",".join(MODULES), "sasl.mechanism.inter.broker.protocol": self.mechanism,
            **{f"listener.name.brokers.{mechanism.lower()}.sasl.jaas.config": client_jaas(mechanism, BROKER, PASSWORDS[BROKER])
               for mechanism in HASHES},
            "listener.name.brokers.plain.sasl.jaas.config": f"{plain} {users};",
            "ssl.keystore.type": kind, "ssl.keystore.location": str(issued.pkcs12() if is_kafka else issued.pem()),
            "ssl.truststore.type": kind,
            "ssl.truststore.location": str(self.authority.truststore(kind) if is_kafka else self.authority.pem()),
        }  # fmt: skip
        if is_kafka:
            found |= {"ssl.keystore.password": PASSWORD, "ssl.truststore.password": PASSWORD}
            return {key: value.replace("\\", "\\\\") for key, value in found.items()}
        return {**found, "txbroker.metrics.port": "0"}

    def start_zookeeper(self) -> None:
        """Before the first broker starts, its user must be there."""
        super().start_zookeeper()
        put_scram_user(self.zookeeper_connect, BROKER, PASSWORDS[BROKER], *self.first_mechanisms)

    def client(self, user: str, mechanism: str = SCRAM) -> dict[str, Any]:
        """The settings of kafka-python for a user, but for the servers."""
        return {"security_protocol": "SASL_SSL", "ssl_cafile": str(self.authority.pem()), "sasl_mechanism": mechanism,
                "sasl_plain_username": user, "sasl_plain_password": PASSWORDS[user]}  # fmt: skip

    def librdkafka(self, user: str, mechanism: str = SCRAM) -> dict[str, str]:
        """The settings of librdkafka for a user."""
        return {"bootstrap.servers": ",".join(self.secure.values()), "security.protocol": "SASL_SSL",
                "ssl.ca.location": str(self.authority.pem()), "sasl.mechanism": mechanism, "sasl.username": user,
                "sasl.password": PASSWORDS[user]}  # fmt: skip

    def java(self, user: str, mechanism: str = SCRAM) -> dict[str, str]:
        """The properties of a Java client."""
        return {"security.protocol": "SASL_SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.authority.pem()),
                "sasl.mechanism": mechanism, "sasl.jaas.config": client_jaas(mechanism, user, PASSWORDS[user])}  # fmt: skip

    def connect(self, broker_id: int, user: str, mechanism: str = SCRAM) -> LoggedIn:
        """A raw connection of a user."""
        return LoggedIn(self.secure[broker_id], self.authority, Sasl(mechanism, user, PASSWORDS[user]))


class LoggedIn(RawConnection):
    """A raw connection with TLS, after its login; AssertionError with the broker's text if that fails."""

    def __init__(self, address: str, authority: Authority, sasl: Sasl) -> None:
        super().__init__(address)
        context = ssl.create_default_context(cadata=authority.text())
        self._socket = context.wrap_socket(self._socket, server_hostname=address.rpartition(":")[0])
        try:
            self._log_in(sasl)
        except BaseException:
            self.close()
            raise

    def _handshake(self, mechanism: str) -> None:
        assert self.call(SaslHandshakeRequest(mechanism=mechanism), 1).error_code == 0

    def _log_in(self, sasl: Sasl) -> None:
        self._handshake(sasl.mechanism)
        if sasl.mechanism == "PLAIN":
            self._message(f"\0{sasl.user}\0{sasl.password}")
            return
        messages = Scram(sasl, secrets.token_urlsafe())
        messages.check(self._message(messages.final(self._message(messages.first))))

    def _message(self, content: str) -> str:
        answer = self.call(SaslAuthenticateRequest(auth_bytes=content.encode()), 1)
        assert answer.error_code == 0, answer.error_message
        return bytes(answer.auth_bytes).decode()


