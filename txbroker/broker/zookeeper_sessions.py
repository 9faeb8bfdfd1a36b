"""The ZooKeeper sessions of this broker. The credentials of the last one are kept in a file in a log directory.

A broker that is killed leaves a session, whose ephemeral nodes would hold its id until the session expires. The next start ends that
session with the saved credentials. The lock of the log directory shows that the process of that session is gone. Where
`txbroker.failover.on.process.end` is set, a guard process ends the session at once.
"""

from __future__ import annotations

import json
import logging
from functools import partial

from txbroker.broker.environment import Environment
from txbroker.cluster import node_paths
from txbroker.cluster.tree.interface import Refused
from txbroker.cluster.tree.kazoo_session import Credentials, KazooSession, Outage
from txbroker.cluster.tree.session_tree import SessionCounts, SessionTree
from txbroker.cluster.tree.zookeeper import ZooKeeperTree, open_zookeeper_tree
from txbroker.cluster.tree.zookeeper_security import read_security
from txbroker.cluster.tree.zookeeper_session import OpenSession, end_session
from txbroker.config.resolve import BrokerConfig
from txbroker.config.zookeeper_address import parse_zookeeper_address
from txbroker.errors import StorageError
from txbroker.log.directories import LogDirectories

FILE_NAME = "txbroker-zookeeper-session"
PASSWORD_BYTES_MAX = 100

log = logging.getLogger("txbroker.zookeeper")


async def open_zookeeper(environment: Environment, config: BrokerConfig, directories: LogDirectories) -> SessionTree:
    """The tree of `zookeeper.connect`; StartError. The log directories are locked."""
    counts = SessionCounts()
    sessions = ZooKeeperSessions(environment, config, directories, counts)
    return SessionTree(await sessions.open(), sessions.open, sessions.forget, environment.reactor, counts, environment.random.random)


class ZooKeeperSessions:
    """Opens sessions one after the other."""

    def __init__(self, environment: Environment, config: BrokerConfig, directories: LogDirectories, counts: SessionCounts) -> None:
        self._environment = environment
        self._counts = counts
        self._directories = directories
        address = parse_zookeeper_address(config.text("zookeeper.connect"))
        shuffled = list(address.servers)
        environment.random.shuffle(shuffled)  # not all brokers to the same server
        self._connect = ",".join(shuffled) + address.chroot
        self._timeout_ms = config.int("zookeeper.session.timeout.ms")
        limit = config.value("zookeeper.connection.timeout.ms")
        self._guard = environment.session_guard if config.boolean("txbroker.failover.on.process.end") else None
        self._security = read_security(config)
        self._has_acls = config.boolean("zookeeper.set.acl")
        self._open_session: OpenSession = environment.sessions or partial(
            KazooSession, tls=self._security.context(), sasl=self._security.sasl_options(), outage=Outage()
        )
        self._connection_timeout_ms = limit if isinstance(limit, int) else self._timeout_ms

    async def open(self) -> ZooKeeperTree:
        """A new session, after the end of the one before it; StartError if no server answers."""
        threads, open_session = self._environment.threads, self._open_session
        assert threads is not None
        for path, credentials in self._saved().items():
            if await end_session(
                self._connect, credentials, timeout_ms=self._connection_timeout_ms, threads=threads, open_session=open_session
            ):
                log.info("ended the ZooKeeper session %#x, which %s names", credentials[0], path)
        tree = await open_zookeeper_tree(
            self._connect,
            session_timeout_ms=self._timeout_ms,
            connection_timeout_ms=self._connection_timeout_ms,
            threads=threads,
            counts=self._counts,
            open_session=open_session,
            has_acls=self._has_acls,
        )
        self._save(tree.credentials)
        if self._security.authenticates:
            await self._protect(tree)
        if self._guard is not None:
            self._guard.guard(self._connect.partition("/")[0], self._timeout_ms, *tree.credentials, self._security)
        return tree

    async def _protect(self, tree: ZooKeeperTree) -> None:
        """Kafka's tool (zookeeper-security-migration) changes the nodes that Kafka knows, and not those of txbroker."""
        for path in node_paths.OWN_NODES:
            try:
                await tree.protect(path)
            except Refused as error:
                log.warning("the access control list of %s stays as it is: %s", path, error)

    def forget(self) -> None:
        """The last session has been closed."""
        if self._guard is not None:
            self._guard.release()
        for path in self._paths():
            try:
                self._environment.disk.remove(path)
            except StorageError as error:
                log.warning("%s stays: %s", path, error)

    def _paths(self) -> list[str]:
        return [f"{directory}/{FILE_NAME}" for directory in self._directories.online()]

    def _saved(self) -> dict[str, Credentials]:
        saved: dict[str, Credentials] = {}
        for path in self._paths():
            try:
                data = self._environment.disk.read(path)
            except StorageError as error:
                log.warning("%s is ignored: %s", path, error)
                continue
            if data is not None:
                credentials = _parsed(data)
                if credentials is None:
                    log.warning("%s is ignored: it does not name a ZooKeeper session", path)
                else:
                    saved[path] = credentials
        return saved

    def _save(self, credentials: Credentials) -> None:
        """Keep the credentials before the first ephemeral node exists. They are of no use after a crash of the machine: no sync."""
        data = json.dumps({"session": credentials[0], "password": credentials[1].hex()}).encode()
        for path in self._paths():
            try:
                self._environment.disk.replace(path, data, sync=False, private=True)
            except StorageError as error:
                log.warning("the ZooKeeper session is not saved, so that a start after a crash must wait for its end: %s", error)
            else:
                return


def _parsed(data: bytes) -> Credentials | None:
    try:
        saved = json.loads(data)
        session, password = saved["session"], bytes.fromhex(saved["password"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    is_session = type(session) is int and -(2**63) <= session < 2**63
    return (session, password) if is_session and len(password) <= PASSWORD_BYTES_MAX else None
