"""A session with the metadata tree whose connection is lost during one write."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from twisted.internet.defer import Deferred, fail

from txbroker.cluster.tree.interface import ConnectionLost, Tree


class Loss(Enum):
    """What is lost with the connection."""

    REQUEST = "request"
    ANSWER = "answer"


class LosingTree:
    """A `Tree`. The next write loses what `next_loss` says; then a `sync` must come before a read, as the next server may be behind."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._is_behind = False
        self.next_loss: Loss | None = None
        self.lost: Callable[[], object] = lambda: None  # called at the loss

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._tree, name)
        if name in ("create", "set", "delete", "multi"):
            return lambda *args, **kwargs: self._write(lambda: operation(*args, **kwargs))
        if name in ("get", "get_all", "exists", "children"):
            assert not self._is_behind, "a read without a sync may not find what was written"
        elif name == "sync":
            self._is_behind = False
        return operation

    def _write(self, write: Callable[[], Deferred[Any]]) -> Deferred[Any]:
        loss, self.next_loss = self.next_loss, None
        if loss is None:
            return write()
        self._is_behind = True
        self.lost()
        return fail(ConnectionLost("/")) if loss is Loss.REQUEST else write().addCallback(lambda _: fail(ConnectionLost("/")))
