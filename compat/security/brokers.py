"""A broker with a listener for each kind of certificate and one for logins: txbroker, and Apache Kafka with the same settings."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from kafka.protocol.admin import AlterUserScramCredentialsRequest

from compat.brokers import BROKERS
from compat.security import cases
from compat.security.cases import CASES, Case, Secured
from tests.support.acls import ALLOW, AUTHORIZER, GROUP, LITERAL, PREFIXED, READ, TOPIC, WRITE, Acl, create_acls, listed_acls
from tests.support.certificates import Authority, Issued
from tests.support.kafka import KafkaProcess
from tests.support.oauth import MODULE as OAUTH_MODULE
from tests.support.oauth import VALIDATOR, SigningKey, allowed, jwks
from tests.support.raw import RawConnection
from tests.support.raw_admin import create_topic, find_coordinator
from tests.support.sasl import MODULES, client_jaas, quoted
from tests.support.server import HOST, free_port
from tests.support.waiting import until
from txbroker.client.blocking_connection import BlockingConnection
from txbroker.client.client_errors import LoginRefused
from txbroker.client.client_machine import ClientSettings
from txbroker.client.client_security import ClientSecurity

NAME = "localhost"  # of the broker, for clients
TOPIC_NAME, GROUP_PREFIX = "secured", "group-"
MECHANISMS = (cases.PLAIN, cases.SCRAM_256, cases.SCRAM_512)
USERS = (cases.ALICE, cases.WRITE_MISSING, cases.READ_MISSING, cases.GROUP_MISSING)  # each knows cases.PASSWORD
ADMIN = "admin"  # who may do everything, with PLAIN only
_SCRAM = {cases.SCRAM_256: (1, "sha256"), cases.SCRAM_512: (2, "sha512")}
_STANDARD = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
_SALT, _ITERATIONS = b"salt of the users", 4096


class SecuredBroker:
    """A broker of a kind of `compat.brokers.BROKERS`, in a folder, and the certificates of both sides. Started by `start`."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        authority, foreign = Authority(folder), Authority(folder, "foreign-authority")
        self.authorities = {True: authority.pem(), False: foreign.pem()}
        self.own = {cases.OWN: authority.issue("client", []), cases.OLD: authority.issue("old", [], days=(-20, -10)),
                    cases.FOREIGN: foreign.issue("foreign", [])}  # fmt: skip
        served = {
            cases.TLS: authority.issue("server", [NAME]), cases.EXPIRED: authority.issue("expired", [NAME], days=(-20, -10)),
            cases.FUTURE: authority.issue("future", [NAME], days=(10, 20)), cases.OTHER_NAME: authority.issue("other", ["other.example"]),
        }  # fmt: skip
        served |= dict.fromkeys((cases.MUTUAL, cases.LOGIN), served[cases.TLS])
        self.addresses = {listener: f"{NAME}:{free_port()}" for listener in served}
        self.server = BROKERS[kind](folder / "broker")
        self._numbers = itertools.count()
        self._tokens = {cases.PASSWORD: SigningKey("key"), cases.WRONG_PASSWORD: SigningKey("key")}
        self._configure(served, authority)

    def _configure(self, served: dict[str, Issued], authority: Authority) -> None:
        server = self.server
        server.port = free_port()
        listeners = {"PLAINTEXT": server.address, **self.addresses}
        protocols = {"PLAINTEXT": "PLAINTEXT", **{name: "SASL_SSL" if name == cases.LOGIN else "SSL" for name in self.addresses}}
        server.overrides["advertised.listeners"] = ",".join(f"{name}://{address}" for name, address in listeners.items())
        if isinstance(server, KafkaProcess):
            listeners["CONTROLLER"] = f"{HOST}:{server.controller_port}"
            protocols["CONTROLLER"] = "PLAINTEXT"
            server.overrides |= _STANDARD
        else:
            server.overrides |= {"broker.id": "1", **AUTHORIZER}
        server.overrides |= {
            "listeners": ",".join(f"{name}://{address}" for name, address in listeners.items()),
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
            "super.users": f"User:ANONYMOUS;User:{ADMIN}",  # ANONYMOUS: the clients of TLS, and who makes users and rights
            "sasl.enabled.mechanisms": ",".join((*MECHANISMS, cases.OAUTH)),
        }
        for name, issued in served.items():
            prefix = f"listener.name.{name.lower()}"
            server.overrides |= {f"{prefix}.ssl.keystore.type": "PEM", f"{prefix}.ssl.keystore.location": str(issued.pem())}
        mutual, login = (f"listener.name.{name.lower()}" for name in (cases.MUTUAL, cases.LOGIN))
        server.overrides |= {
            f"{mutual}.ssl.client.auth": "required", f"{mutual}.ssl.truststore.type": "PEM",
            f"{mutual}.ssl.truststore.location": str(authority.pem()),
        }  # fmt: skip
        self._configure_tokens(f"{login}.{cases.OAUTH.lower()}.sasl")
        users = " ".join(f"user_{user}={quoted(cases.PASSWORD)}" for user in (*USERS, ADMIN))
        for mechanism in MECHANISMS:
            given = f" {users}" if mechanism == cases.PLAIN else ""
            server.overrides[f"{login}.{mechanism.lower()}.sasl.jaas.config"] = f"{MODULES[mechanism]} required{given};"

    def _configure_tokens(self, prefix: str) -> None:
        keys = self.folder / "keys.json"
        keys.write_bytes(jwks(self._tokens[cases.PASSWORD]))
        self.server.overrides |= {
            f"{prefix}.jaas.config": f"{OAUTH_MODULE} required;", f"{prefix}.server.callback.handler.class": VALIDATOR,
            f"{prefix}.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        }  # fmt: skip
        if isinstance(self.server, KafkaProcess):
            self.server.java_options = (*self.server.java_options, allowed(keys.as_uri()))

    def start(self) -> None:
        """Also make the users, their rights and the topic."""
        self.server.start()
        create_topic(self.server, TOPIC_NAME)
        find_coordinator(self.server, GROUP_PREFIX)  # the first request makes the topic of offsets
        acls = _acls(self.own[cases.OWN].certificate.subject.rfc4514_string())
        create_acls(self.server.address, acls)
        for mechanism in _SCRAM:
            _set_password(self.server.address, mechanism)
        until(lambda: set(acls) <= listed_acls(self.server.address), "the rights exist")
        for mechanism in MECHANISMS:
            until(partial(self.may_log_in, mechanism), f"the user can log in with {mechanism}")

    def may_log_in(self, mechanism: str, user: str = cases.ALICE) -> bool:
        """Whether a user can log in now."""
        host, _, port = self.addresses[cases.LOGIN].rpartition(":")
        security = ClientSecurity.of(self.java(mechanism, user))
        try:
            BlockingConnection(host, int(port), ClientSettings(security=security)).close()
        except LoginRefused:
            return False
        return True

    def java(self, mechanism: str, user: str) -> dict[str, str]:
        """The properties of a Java client."""
        return {
            "security.protocol": "SASL_SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.authorities[True]),
            "sasl.mechanism": mechanism, "sasl.jaas.config": client_jaas(mechanism, user, cases.PASSWORD),
        }  # fmt: skip

    def file_of(self, names: Sequence[str]) -> Path:
        """A file of cases for a driver, each with a group that no case had before."""
        path = self.folder / "cases.json"
        cases.write(path, [self._secured(name, CASES[name]) for name in names])
        return path

    def _secured(self, name: str, case: Case) -> Secured:
        own = self.own.get(case.certificate)
        by_token = case.mechanism == cases.OAUTH
        by_password = bool(case.mechanism) and not by_token
        return Secured(
            name, self.addresses[case.listener], TOPIC_NAME, f"{GROUP_PREFIX}{next(self._numbers)}", case.mechanism,
            case.user if by_password else "", case.password if by_password else "", str(self.authorities[case.trusts]),
            str(own.chain_file()) if own else "", str(own.key_file()) if own else "",
            self._tokens[case.password].token(case.user) if by_token else "",
        )  # fmt: skip

    def close(self) -> None:
        """End the broker."""
        self.server.close()


@contextmanager
def secured_broker(folder: Path, kind: str) -> Iterator[SecuredBroker]:
    """A started one."""
    broker = SecuredBroker(folder, kind)
    try:
        broker.start()
        yield broker
    finally:
        broker.close()


def _acls(certificate: str) -> list[Acl]:
    missing = {cases.WRITE_MISSING: (TOPIC, WRITE), cases.READ_MISSING: (TOPIC, READ), cases.GROUP_MISSING: (GROUP, READ)}
    places = {TOPIC: (TOPIC_NAME, LITERAL), GROUP: (GROUP_PREFIX, PREFIXED)}
    rights = ((TOPIC, WRITE), (TOPIC, READ), (GROUP, READ))
    return [Acl(kind, *places[kind], f"User:{user}", "*", operation, ALLOW)
            for user in (*USERS, certificate) for kind, operation in rights if (kind, operation) != missing.get(user)]


def _set_password(address: str, mechanism: str) -> None:
    """Of each user. Kafka 4 does not take two mechanisms of a user in a request."""
    number, digest = _SCRAM[mechanism]
    salted = hashlib.pbkdf2_hmac(digest, cases.PASSWORD.encode(), _SALT, _ITERATIONS)
    upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
    upsertions = [upsertion(name=user, mechanism=number, iterations=_ITERATIONS, salt=_SALT, salted_password=salted) for user in USERS]
    with RawConnection(address) as connection:
        answer = connection.call(AlterUserScramCredentialsRequest(deletions=[], upsertions=upsertions), 0)
    assert {result.error_code for result in answer.results} == {0}, answer
