"""Nodes of which changes are reported by change nodes: read at the start, when they change, and all together again from time to time.

All are read again after each new session of the tree, because the nodes that report changes are deleted after a while, and every RELOAD_S
seconds if other brokers write to the tree, because a broker of Kafka writes a node and its report one after the other.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping
from typing import Generic, TypeVar

from twisted.internet.defer import CancelledError, Deferred, DeferredLock
from twisted.python.failure import Failure

from txbroker.backoff import Backoff
from txbroker.clock import Clock, DelayedCall
from txbroker.cluster.change_nodes import ChangeNodes
from txbroker.cluster.node_data import MalformedNode
from txbroker.cluster.tree.interface import NoNode, Refused, SessionExpired, Tree, TreeError, WatchEvent
from txbroker.retrying import retrying, warning

log = logging.getLogger("txbroker.security")

RELOAD_S = 5 * 60.0
RETRY_S, RETRY_S_MAX = 0.2, 10.0

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class ReportedNodes(Generic[K]):
    """Calls `load` to read all nodes, and `read` for those that have changed; never both at once, nor beside work that is `locked`.

    `what`: the nodes, for the log. `changes`: by parent of change nodes what decodes their data, which raises MalformedNode. `load` and
    `read` may raise TreeError: they are called again.
    """

    def __init__(
        self,
        what: str,
        tree: Tree,
        clock: Clock,
        chance: Callable[[], float],
        changes: Mapping[str, Callable[[bytes | None], K]],
        load: Callable[[], Awaitable[None]],
        read: Callable[[Collection[K]], Awaitable[None]],
        *,
        is_shared: bool,
    ) -> None:
        """`chance` returns numbers from 0 to 1. `is_shared`: other brokers write to the tree, too."""
        self._what = what
        self._tree = tree
        self._clock = clock
        self._chance = chance
        self._changes = [(ChangeNodes(tree, parent, clock), decode) for parent, decode in changes.items()]
        self._load = load
        self._read = read
        self._is_shared = is_shared
        self._lock = DeferredLock()  # what is read must be known before anything that is read later
        self._reading: Deferred[None] | None = None
        self._read_again = False
        self._read_all = False
        self._timer: DelayedCall | None = None

    async def start(self) -> None:
        """Begin to watch, and load; TreeError."""
        await self._list()
        for nodes, _ in self._changes:
            nodes.unread.clear()  # part of what is read next
        await self.locked(self._load)
        self._reload_later()

    def renew(self) -> None:
        """Watch in the next session of the tree, and read everything again: changes may have been missed."""
        self._read_all = True
        self._begin()

    def stop(self) -> None:
        """Read no more."""
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None
        if self._reading is not None:
            self._reading.cancel()

    def locked(self, work: Callable[[], Awaitable[T]]) -> Deferred[T]:
        """Work during which nothing is read here."""

        async def run() -> T:
            return await work()

        return self._lock.run(lambda: Deferred.fromCoroutine(run()))

    def _reload_later(self) -> None:
        if self._is_shared:
            self._timer = self._clock.callLater(RELOAD_S, self._reload)

    def _reload(self) -> None:
        self._reload_later()
        self.renew()

    def _changed(self, _: WatchEvent) -> None:
        self._begin()

    def _begin(self) -> None:
        self._read_again = True
        if self._reading is None:
            say = warning(log, f"cannot read changes of {self._what}, retrying: %s", TreeError)
            backoff = Backoff(self._chance, RETRY_S, RETRY_S_MAX)
            work = retrying(lambda: self.locked(self._read_changes), self._clock, backoff, say, final=(SessionExpired,))
            reading = self._reading = Deferred.fromCoroutine(work)
            reading.addErrback(_ended).addBoth(self._have_read)

    def _have_read(self, _: object) -> None:
        self._reading = None

    async def _list(self) -> None:
        """All lists, before any node is read: a change of several nodes is then read as a whole."""
        for nodes, _ in self._changes:
            await nodes.list(self._changed)

    async def _read_changes(self) -> None:
        self._read_again = True
        while self._read_again:
            self._read_again = False
            await self._list()
            changed: dict[K, None] = {}
            for nodes, decode in self._changes:
                for name in list(nodes.unread):
                    try:
                        changed[decode(await nodes.read(name))] = None
                    except NoNode:
                        continue
                    except (MalformedNode, Refused) as error:
                        log.error("reading all %s again, because %s cannot be read: %s", self._what, nodes.path(name), error)
                        self._read_all = True
            if self._read_all:
                await self._load_again()
            elif changed:
                await self._read(changed)
            for nodes, _ in self._changes:
                nodes.unread.clear()
                await nodes.purge()  # fires the watch: the changes are listed again

    async def _load_again(self) -> None:
        self._read_all = False  # it may be required again in the meantime, by the next session
        try:
            await self._tree.sync()
            await self._load()
        except BaseException:
            self._read_all = True
            raise


class NodeProblems(Generic[K]):
    """What cannot be read of nodes: `say(node, problem)` is called once for each problem, as long as it lasts."""

    def __init__(self, say: Callable[[K, str], None]) -> None:
        self._say = say
        self._known: dict[K, str] = {}

    def __len__(self) -> int:
        return len(self._known)

    def report(self, node: K, problem: str) -> None:
        """What is wrong with a node now; empty: nothing."""
        if problem and self._known.get(node) != problem:
            self._say(node, problem)
        if problem:
            self._known[node] = problem
        else:
            self._known.pop(node, None)

    def keep(self, nodes: Collection[K]) -> None:
        """Forget the nodes that do not exist any more: these are all."""
        self._known = {node: problem for node, problem in self._known.items() if node in nodes}


def _ended(failure: Failure) -> None:
    failure.trap(SessionExpired, CancelledError)  # `renew` follows, or the broker stops
