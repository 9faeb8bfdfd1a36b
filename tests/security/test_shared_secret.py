"""The secret that all brokers of a cluster share, and what an unusable node leads to."""

from __future__ import annotations

from itertools import count

import pytest
from twisted.internet.defer import Deferred, fail

from tests.support.fakes.turns import Turns
from txbroker.cluster.node_paths import SHARED_SECRET
from txbroker.cluster.tree.interface import Refused, Stat, Tree, Watcher
from txbroker.cluster.tree.memory import MemoryTrees
from txbroker.security.shared_secret import SECRET_BYTES, shared_secret


class Cluster:
    def __init__(self) -> None:
        self.turns = Turns()
        self.trees = MemoryTrees(self.turns.call_soon)
        self._numbers = count(1)

    def random_bytes(self, size: int) -> bytes:
        return bytes([next(self._numbers)]) * size

    def begin(self, tree: Tree | None = None) -> Deferred[bytes]:
        return Deferred.fromCoroutine(shared_secret(tree or self.trees.session(), self.random_bytes))

    def secret(self, tree: Tree | None = None) -> bytes:
        return self.turns.result(self.begin(tree))


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_all_brokers_have_the_same_secret(cluster: Cluster) -> None:
    first = cluster.secret()
    assert first == b"\1" * SECRET_BYTES
    assert [cluster.secret() for _ in range(3)] == [first] * 3


def test_brokers_that_start_together_have_the_same_secret(cluster: Cluster) -> None:
    begun = [cluster.begin() for _ in range(5)]
    assert len({cluster.turns.result(each) for each in begun}) == 1


@pytest.mark.parametrize("data", [None, b"", b"zz", b"00", b"\xff", b"00" * (SECRET_BYTES + 1)])
def test_a_damaged_node_is_named_and_stays(cluster: Cluster, data: bytes | None, caplog: pytest.LogCaptureFixture) -> None:
    tree = cluster.trees.session()
    cluster.turns.result(tree.create(SHARED_SECRET, data))
    assert len(cluster.secret()) == SECRET_BYTES
    assert f"the secret in {SHARED_SECRET} cannot be used" in caplog.text and "delete the node" in caplog.text
    assert cluster.turns.result(tree.get(SHARED_SECRET))[0] == data


def test_a_node_that_may_not_be_read(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    tree = cluster.trees.session()

    def get(path: str, *, watch: Watcher | None = None) -> Deferred[tuple[bytes | None, Stat]]:
        return fail(Refused(path, problem="ZooKeeper refuses the operation"))

    monkeypatch.setattr(tree, "get", get)
    assert len(cluster.secret(tree)) == SECRET_BYTES
    assert "ZooKeeper refuses the operation" in caplog.text
