"""A session with the metadata tree in which access control lists forbid some operations, as ZooKeeper's do."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, fail

from txbroker.cluster.tree.interface import Create, Delete, Refused, Tree, parent_of

READS = ("get", "children")  # `exists` needs no permission


class RefusingTree:
    """A `Tree`. `unreadable` and `unwritable`: nodes without these permissions. As in ZooKeeper, those of a parent decide on a child's
    creation and deletion."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self.unreadable: set[str] = set()
        self.unwritable: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._tree, name)
        if name in READS:
            return lambda path, **options: self._refusal(path) if path in self.unreadable else operation(path, **options)
        if name in ("set", "create", "delete"):
            return lambda path, *rest, **options: self._write(name, operation, path, *rest, **options)
        return operation

    def get_all(self, paths: Any) -> Any:
        refused = next((path for path in paths if path in self.unreadable), None)
        return self._tree.get_all(paths) if refused is None else self._refusal(refused)

    def multi(self, ops: Any) -> Any:
        for index, op in enumerate(ops):
            decides = parent_of(op.path) if isinstance(op, Create | Delete) else op.path
            if decides in self.unwritable:
                return self._refusal(op.path, index)
        return self._tree.multi(ops)

    def _write(self, name: str, operation: Any, path: str, *rest: Any, **options: Any) -> Any:
        decides = path if name == "set" else parent_of(path)
        return self._refusal(path) if decides in self.unwritable else operation(path, *rest, **options)

    @staticmethod
    def _refusal(path: str, index: int | None = None) -> Deferred[Any]:
        return fail(Refused(path, index, f"node {path} is protected"))
