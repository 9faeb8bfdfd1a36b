"""A session with the ZooKeeper of a Kafka cluster. What goes wrong is CommandFailed; kazoo is imported here and nowhere else."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoAuthError, NoNodeError, RolledBackError
from kazoo.handlers.threading import KazooTimeoutError

from txbroker.cli.failures import BadUsage, CommandFailed
from txbroker.cluster import node_paths

CONNECT_S = 15.0
ANSWER_S = 30.0
AT_ONCE = 500  # requests in flight, and operations in a transaction
BYTES_AT_ONCE = 256 * 1024  # of a transaction: ZooKeeper takes a megabyte

_ADDRESS = re.compile(r"[^\s,/:]+:\d{1,5}(,[^\s,/:]+:\d{1,5})*(/[^\s]*[^\s/])?")

Told = Callable[[int, int], None]


def checked_address(text: str) -> str:
    """The value of --zookeeper; BadUsage."""
    if _ADDRESS.fullmatch(text) is None:
        raise BadUsage(f"--zookeeper wants HOST:PORT,HOST:PORT/CHROOT (the chroot where the cluster has one), not {text!r}")
    return text


class ZooKeeper:
    """One session. `address` is what the user called it; all paths are below its chroot."""

    def __init__(self, client: Any, address: str) -> None:
        self.address = address
        _, slash, chroot = address.partition("/")
        self._client = client
        self._root = slash + chroot

    def get(self, path: str) -> bytes | None:
        """A node's data; None where there is no node, or no data."""
        return self.get_all([path], _quietly).get(path)

    def get_all(self, wanted: Sequence[str], told: Told) -> dict[str, bytes | None]:
        """The data of those of these nodes that are there."""
        found: dict[str, bytes | None] = {}
        for start in range(0, len(wanted), AT_ONCE):
            told(start, len(wanted))
            asked = [(path, self._client.get_async(self._root + path)) for path in wanted[start : start + AT_ONCE]]
            for path, answer in asked:
                with suppress(NoNodeError):
                    found[path] = answer.get(timeout=ANSWER_S)[0]
        return found

    def children(self, path: str) -> list[str]:
        """The names under a node, sorted; none where there is no node."""
        try:
            return sorted(self._client.get_children(self._root + path))
        except NoNodeError:
            return []

    def exists(self, path: str) -> bool:
        """Whether there is a node."""
        return self._client.exists(self._root + path) is not None

    def make_root(self) -> None:
        """Make the chroot, where it is missing."""
        if self._root:
            self._client.ensure_path(self._root)

    def write(self, nodes: Mapping[str, bytes | None], told: Told) -> None:
        """Make these nodes have these data (None: empty); parents come before their children."""
        there = self.get_all(list(nodes), _quietly)
        written = 0
        for some in _chunks([(path, data or b"") for path, data in nodes.items()]):
            told(written, len(nodes))
            written += len(some)
            transaction = self._client.transaction()
            for path, data in some:
                if path not in there:
                    transaction.create(self._root + path, data)
                elif (there[path] or b"") != data:
                    transaction.set_data(self._root + path, data)
            problems = [result for result in transaction.commit() if isinstance(result, Exception)]
            for problem in problems:
                if not isinstance(problem, RolledBackError):
                    raise problem

    def delete(self, path: str) -> None:
        """Remove a node with all that is under it; nothing where there is none."""
        with suppress(NoNodeError):
            self._client.delete(self._root + path, recursive=True)


@contextmanager
def session(address: str) -> Iterator[ZooKeeper]:
    """A session with the ZooKeeper at `HOST:PORT,…[/CHROOT]`."""
    quiet = logging.getLogger("txbroker.cli.zookeeper")
    quiet.setLevel(logging.CRITICAL)  # what it would say comes as an exception
    client = KazooClient(hosts=checked_address(address).partition("/")[0], timeout=10.0, logger=quiet)
    try:
        client.start(timeout=CONNECT_S)
    except KazooTimeoutError as error:
        raise CommandFailed(f"no ZooKeeper answers at {address}: correct --zookeeper, or start it") from error
    except KazooException as error:
        raise CommandFailed(f"the ZooKeeper at {address} cannot be used: {error or type(error).__name__}") from error
    try:
        yield ZooKeeper(client, address)
    except NoAuthError as error:
        raise CommandFailed(f"the ZooKeeper at {address} does not allow it (zookeeper.set.acl): {error}") from error
    except (KazooException, KazooTimeoutError) as error:
        raise CommandFailed(f"the ZooKeeper at {address} failed: {type(error).__name__} {error}; try again") from error
    finally:
        with suppress(KazooException, KazooTimeoutError):
            client.stop()
            client.close()


def check_is_kafkas(zookeeper: ZooKeeper) -> None:
    """CommandFailed unless a Kafka cluster keeps its metadata there."""
    if not zookeeper.exists(node_paths.TOPICS):
        raise CommandFailed(f"there is no Kafka cluster at {zookeeper.address} ({node_paths.TOPICS} is missing): is the chroot right?")


def _quietly(done: int, total: int) -> None:
    """Nobody is told."""


def _chunks(nodes: Iterable[tuple[str, bytes]]) -> Iterator[list[tuple[str, bytes]]]:
    chunk: list[tuple[str, bytes]] = []
    size = 0
    for path, data in nodes:
        size += len(path) + len(data)
        if chunk and (len(chunk) == AT_ONCE or size > BYTES_AT_ONCE):
            yield chunk
            chunk, size = [], len(path) + len(data)
        chunk.append((path, data))
    if chunk:
        yield chunk
