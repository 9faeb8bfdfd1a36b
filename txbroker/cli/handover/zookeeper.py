"""A session with the ZooKeeper of a Kafka cluster, through kazoo. Errors are CommandFailed."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, KazooException, NoAuthError, NoNodeError, RolledBackError, SessionClosedRequireSaslError
from kazoo.handlers.threading import KazooTimeoutError

from txbroker.cli.step_progress import OnProgress
from txbroker.cluster import node_paths
from txbroker.cluster.tree.kazoo_session import TlsHandler, report_refused_logins
from txbroker.cluster.tree.node_acls import acls_of
from txbroker.cluster.tree.zookeeper_security import read_security
from txbroker.config.resolve import BrokerConfig
from txbroker.config.zookeeper_address import FORM, ZooKeeperAddress, parse_zookeeper_address
from txbroker.config.zookeeper_login import CONFIG_KEY
from txbroker.console.failures import BadUsage, CommandFailed
from txbroker.errors import StartError

CONNECT_S = 15.0
ANSWER_S = 30.0
BATCH_MAX = 500  # requests in flight, and operations of a transaction
BATCH_SIZE_MAX = 256 * 1024  # data of a transaction; ZooKeeper's limit for a request (jute.maxbuffer) is 1 MiB


def checked_address(text: str) -> ZooKeeperAddress:
    """The value of --zookeeper; BadUsage."""
    try:
        return parse_zookeeper_address(text)
    except ValueError as error:
        raise BadUsage(f"--zookeeper must be {FORM}, not {text!r}: {error}") from None


class ZooKeeper:
    """One session. `address`: as the user specified it. Paths are relative to its chroot."""

    def __init__(self, client: Any, address: str, *, has_acls: bool = False) -> None:
        """`has_acls`: nodes are created with Kafka's access control lists."""
        self.address = address
        self._has_acls = has_acls
        self._client = client
        self._root = parse_zookeeper_address(address).chroot

    def get(self, path: str) -> bytes | None:
        """The data of a node; None if it does not exist or has no data."""
        return self.get_all([path], _ignore_progress).get(path)

    def get_all(self, paths: Sequence[str], on_progress: OnProgress) -> dict[str, bytes | None]:
        """The data of the nodes that exist, by path."""
        found: dict[str, bytes | None] = {}
        for start in range(0, len(paths), BATCH_MAX):
            on_progress(start, len(paths))
            requests = [(path, self._client.get_async(self._root + path)) for path in paths[start : start + BATCH_MAX]]
            for path, response in requests:
                with suppress(NoNodeError):
                    found[path] = response.get(timeout=ANSWER_S)[0]
        return found

    def children(self, path: str) -> list[str]:
        """The names of a node's children, sorted; none if it does not exist."""
        try:
            return sorted(self._client.get_children(self._root + path))
        except NoNodeError:
            return []

    def exists(self, path: str) -> bool:
        """Whether the node exists."""
        return self._client.exists(self._root + path) is not None

    def make_root(self) -> None:
        """Create the chroot if it does not exist."""
        if self._root:
            self._client.ensure_path(self._root, acl=acls_of("", are_set=self._has_acls))

    def write(self, nodes: Mapping[str, bytes | None], on_progress: OnProgress) -> None:
        """Create these nodes or set their data (None: empty), in this order: parents before their children."""
        existing = self.get_all(list(nodes), _ignore_progress)
        written = 0
        for batch in _batches([(path, data or b"") for path, data in nodes.items()]):
            on_progress(written, len(nodes))
            written += len(batch)
            transaction = self._client.transaction()
            for path, data in batch:
                if path not in existing:
                    transaction.create(self._root + path, data, acl=acls_of(path, are_set=self._has_acls))
                elif (existing[path] or b"") != data:
                    transaction.set_data(self._root + path, data)
            problems = [result for result in transaction.commit() if isinstance(result, Exception)]
            for problem in problems:
                if not isinstance(problem, RolledBackError):
                    raise problem

    def delete(self, path: str) -> None:
        """Delete a node and its children, if it exists."""
        with suppress(NoNodeError):
            self._client.delete(self._root + path, recursive=True)


@contextmanager
def session(address: str, config: BrokerConfig) -> Iterator[ZooKeeper]:
    """A session with the ZooKeeper at this address (see `checked_address`), with TLS and the login of a broker's configuration."""
    try:
        security = read_security(config)
        options = security.sasl_options()
        handler = TlsHandler(security.context(), CONNECT_S)
    except StartError as error:
        raise CommandFailed(str(error)) from error
    quiet = logging.getLogger("txbroker.cli.zookeeper")
    quiet.setLevel(logging.CRITICAL)  # errors are raised too
    client = KazooClient(hosts=",".join(checked_address(address).servers), timeout=10.0, logger=quiet, sasl_options=options,
                         handler=handler)  # fmt: skip
    report_refused_logins(client)
    try:
        client.start(timeout=CONNECT_S)
    except KazooTimeoutError as error:
        advice = "start it, or correct --zookeeper, or zookeeper.ssl.* in the file of --config"
        raise CommandFailed(f"no ZooKeeper responds at {address}: {advice}") from error
    except KazooException as error:
        raise CommandFailed(f"the ZooKeeper at {address} cannot be used: {error or type(error).__name__}") from error
    try:
        yield ZooKeeper(client, address, has_acls=config.boolean("zookeeper.set.acl"))
    except AuthFailedError as error:
        user = "" if security.login is None else f" of {security.login.user!r}"
        raise CommandFailed(f"the ZooKeeper at {address} refuses the login{user}: correct the user or the password") from error
    except SessionClosedRequireSaslError as error:
        raise CommandFailed(f"the ZooKeeper at {address} requires a login: set {CONFIG_KEY} in the file of --config") from error
    except NoAuthError as error:
        advice = "log in as its brokers do, by txbroker.zookeeper.jaas.config or zookeeper.ssl.keystore.location of --config"
        raise CommandFailed(f"the ZooKeeper at {address} denies access (its nodes have ACLs, see zookeeper.set.acl): {advice}") from error
    except (KazooException, KazooTimeoutError) as error:
        raise CommandFailed(f"the ZooKeeper at {address} failed: {type(error).__name__} {error}; try again") from error
    finally:
        with suppress(KazooException, KazooTimeoutError):
            client.stop()
            client.close()


def check_is_kafkas(zookeeper: ZooKeeper) -> None:
    """CommandFailed unless this is the chroot of a Kafka cluster."""
    if not zookeeper.exists(node_paths.TOPICS):
        raise CommandFailed(f"no Kafka cluster at {zookeeper.address}, as {node_paths.TOPICS} does not exist: check the chroot")


def _ignore_progress(done: int, total: int) -> None:
    pass


def _batches(nodes: Iterable[tuple[str, bytes]]) -> Iterator[list[tuple[str, bytes]]]:
    batch: list[tuple[str, bytes]] = []
    size = 0
    for path, data in nodes:
        size += len(path) + len(data)
        if batch and (len(batch) == BATCH_MAX or size > BATCH_SIZE_MAX):
            yield batch
            batch, size = [], len(path) + len(data)
        batch.append((path, data))
    if batch:
        yield batch
