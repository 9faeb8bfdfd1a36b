"""The texts of what `txbroker secure init` writes: configurations of brokers, their users, and settings of clients."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from typing import NamedTuple

from txbroker.config.jaas import SCRAM_MODULE
from txbroker.security import users_file
from txbroker.security.scram import SALT_BYTES, ScramCredential, salt_of
from txbroker.security.users_file import parse_users
from txbroker.wire.scram import HASHES, ITERATIONS_MIN, salted_password

MECHANISM = "SCRAM-SHA-512"
ADMIN, CLIENT, BROKER = "admin", "client", "broker"
PASSWORD_BYTES = 24

_BROKER_NOTE = """\
# Written by `txbroker secure init`. This file has passwords: only the user of the broker may read it.
# To start the broker: txbroker run --config {path}
"""
_CLIENT_NOTE = """\
# Written by `txbroker secure init`: the user {user}. {path} must be readable at the client.
"""


class Place(NamedTuple):
    """A broker: where it listens, and the directory on its machine that has its files. `names`: of its certificate."""

    broker_id: int
    names: tuple[str, ...]
    port: int
    directory: str

    @property
    def address(self) -> str:
        """host:port for clients."""
        host = self.names[0]
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


def random_passwords() -> dict[str, str]:
    """A password of each user, in characters that need no quotation in any configuration."""
    return {user: secrets.token_urlsafe(PASSWORD_BYTES) for user in (ADMIN, CLIENT, BROKER)}


def users_text(passwords: Mapping[str, str]) -> str:
    """The file of users, with salted keys of these passwords."""
    data = b"# Users of this broker: `txbroker users --file` changes them.\n"
    for user, password in passwords.items():
        salt = salt_of(os.urandom(SALT_BYTES))
        salted = salted_password(HASHES[MECHANISM], password, salt, ITERATIONS_MIN)
        data = users_file.changed(data, user, {MECHANISM: ScramCredential.of_salted(MECHANISM, salt, salted, ITERATIONS_MIN)})
    parse_users(data)
    return data.decode()


def broker_properties(
    place: Place, passwords: Mapping[str, str], overrides: Mapping[str, str], *, zookeeper: str | None, brokers: int
) -> str:
    """server.properties of a broker: one listener, on which every client logs in, encrypted, and may do what ACLs allow."""
    replicas = min(brokers, 3)
    files = place.directory
    bound = place.address if _is_loopback(place.names[0]) else f":{place.port}"
    values = {
        "broker.id": str(place.broker_id),
        "listeners": f"SASL_SSL://{bound}",
        "advertised.listeners": f"SASL_SSL://{place.address}",
        "security.inter.broker.protocol": "SASL_SSL",
        "log.dirs": os.path.join(files, "data"),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": os.path.join(files, "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": os.path.join(files, "ca.pem"),
        "sasl.enabled.mechanisms": MECHANISM,
        "sasl.mechanism.inter.broker.protocol": MECHANISM,
        f"listener.name.sasl_ssl.{MECHANISM.lower()}.sasl.jaas.config": _jaas(BROKER, passwords[BROKER]),
        "password.encoder.secret": secrets.token_urlsafe(PASSWORD_BYTES),
        "txbroker.scram.users.file": os.path.join(files, "users"),
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": f"User:{ADMIN};User:{BROKER}",
        "default.replication.factor": str(replicas),
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(min(replicas, 2)),
        "min.insync.replicas": str(min(replicas, 2)),
        **({} if zookeeper is None else {"zookeeper.connect": zookeeper}),
        **overrides,
    }
    if not values["authorizer.class.name"] and "super.users" not in overrides:
        del values["super.users"]  # it would have no effect
    return _BROKER_NOTE.format(path=os.path.join(files, "broker.properties")) + _properties(values)


def client_files(user: str, password: str, bootstrap: str, authority: str) -> dict[str, str]:
    """The settings of a client by file name. `authority`: the path of its certificate."""
    return {
        f"{user}.properties": _CLIENT_NOTE.format(user=user, path=authority) + _properties({
            "bootstrap.servers": bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": authority,
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": _jaas(user, password),
        }),
        f"{user}-librdkafka.conf": _CLIENT_NOTE.format(user=user, path=authority) + "".join(f"{key}={value}\n" for key, value in {
            "bootstrap.servers": bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": authority,
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "sasl.password": password,
        }.items()),
        f"{user}-kafka-python.json": json.dumps({
            "bootstrap_servers": bootstrap.split(","),
            "security_protocol": "SASL_SSL",
            "ssl_cafile": authority,
            "sasl_mechanism": MECHANISM,
            "sasl_plain_username": user,
            "sasl_plain_password": password,
        }, indent=2) + "\n",
    }  # fmt: skip


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def _jaas(user: str, password: str) -> str:
    return f'{SCRAM_MODULE} required username="{user}" password="{password}";'


def _properties(values: Mapping[str, str]) -> str:
    return "".join(f"{key}={escaped(value)}\n" for key, value in values.items())


def escaped(value: str) -> str:
    """A value in a file of properties, which Java reads in Latin-1."""
    text = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t").replace("\f", "\\f")
    if text.startswith(" "):
        text = f"\\{text}"
    units = text.encode("utf-16-be", "surrogatepass")
    codes = (int.from_bytes(units[i : i + 2], "big") for i in range(0, len(units), 2))
    return "".join(chr(code) if 0x20 <= code < 0x7F else f"\\u{code:04x}" for code in codes)
