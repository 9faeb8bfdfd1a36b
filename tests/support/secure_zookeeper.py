"""A ZooKeeper at which clients log in by SASL, and which has a second port with TLS."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient

from tests.support.kafka import ZooKeeperProcess
from tests.support.sasl import quoted
from tests.support.server import free_port
from tests.support.waiting import PATIENCE_S
from txbroker.config.zookeeper_login import DIGEST_MODULE

USERS = {"kafka": 'zk"secret', "other": "other-secret"}


def login(user: str, password: str | None = None) -> str:
    """A client's login configuration for ZooKeeper."""
    secret = USERS[user] if password is None else password
    return f"{DIGEST_MODULE} required username={quoted(user)} password={quoted(secret)};"


class SecureZooKeeper(ZooKeeperProcess):
    """Its users are USERS. With `requires_login` other clients may do nothing."""

    def __init__(self, directory: Path, store: Path | None = None, trusted: Path | None = None, *, requires_login: bool = False) -> None:
        """`store`: key and certificate in PEM, for the port with TLS; `trusted`: those of clients, in PEM."""
        super().__init__(directory)
        users = " ".join(f"user_{user}={quoted(password)}" for user, password in USERS.items())
        jaas = directory / "server.jaas"
        jaas.write_text(f"Server {{ {DIGEST_MODULE} required {users}; }};\n")
        self.java_options = (*self.java_options, f"-Djava.security.auth.login.config={jaas}")
        self._store, self._trusted = store, trusted
        self._requires_login = requires_login
        self.secure_port = free_port()

    def _properties(self) -> dict[str, str]:
        found = {**super()._properties(), "authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"}
        if self._requires_login:
            found |= {"enforce.auth.enabled": "true", "enforce.auth.schemes": "sasl"}
        if self._store is None:
            return found
        return {**found, "secureClientPort": str(self.secure_port), "secureClientPortAddress": self.host,
                "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory", "ssl.clientAuth": "need",
                "ssl.keyStore.location": str(self._store), "ssl.keyStore.type": "PEM",
                "ssl.trustStore.location": str(self._trusted), "ssl.trustStore.type": "PEM"}  # fmt: skip


@contextmanager
def client(address: str, user: str) -> Iterator[Any]:
    """kazoo's client, logged in."""
    options = {"mechanism": "DIGEST-MD5", "username": user, "password": USERS[user]}
    found = KazooClient(address, sasl_options=options)
    found.start(timeout=PATIENCE_S)
    try:
        yield found
    finally:
        found.stop()
        found.close()


def access(zookeeper: Any, path: str = "/") -> dict[str, set[str]]:
    """The access control lists of all nodes below one, but for those of ZooKeeper itself: scheme:id:permissions."""
    found = {}
    for name in zookeeper.get_children(path):
        below = f"{path.rstrip('/')}/{name}"
        if below == "/zookeeper":
            continue
        found[below] = {f"{acl.id.scheme}:{acl.id.id}:{acl.perms}" for acl in zookeeper.get_acls(below)[0]}
        found |= access(zookeeper, below)
    return found
