"""A connection to the server of the metadata tree, without sockets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.python.failure import Failure

from txbroker.cluster.tree.interface import Tree
from txbroker.cluster.tree.served_tree import ServedTree
from txbroker.cluster.tree.tree_server import TreeServer

CallSoon = Callable[[Callable[[], object]], object]


class Pipe:
    """The transport of one end. What is written arrives later, in order; both ends learn of the end of the connection."""

    def __init__(self, call_soon: CallSoon, own: Any) -> None:
        self._call_soon = call_soon
        self._own = own
        self.other: Pipe | None = None
        self._over = False

    def write(self, data: bytes) -> None:
        other = self.other
        assert other is not None
        if not self._over:
            self._call_soon(lambda: other.received(data))

    def received(self, data: bytes) -> None:
        if not self._over:
            self._own.dataReceived(data)

    def loseConnection(self) -> None:
        other = self.other
        assert other is not None
        for end in (self, other):
            self._call_soon(end.ended)

    abortConnection = loseConnection

    def ended(self) -> None:
        if not self._over:
            self._over = True
            self._own.connectionLost(Failure(ConnectionDone()))


def connected(server: TreeServer, call_soon: CallSoon) -> Deferred[Tree]:
    """A session."""
    tree, connection = ServedTree(), server.buildProtocol(None)
    pipe, other = Pipe(call_soon, tree), Pipe(call_soon, connection)
    pipe.other, other.other = other, pipe
    tree.makeConnection(pipe)  # type: ignore[no-untyped-call]
    connection.makeConnection(other)  # type: ignore[no-untyped-call]
    return tree.begun.addCallback(lambda _: tree)
