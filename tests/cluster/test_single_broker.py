"""One broker on the SQLite tree, as it runs embedded: what was created is there after a stop and after a kill."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from tests.cluster.brokers import FakeCluster
from txbroker.cluster.broker_ids import create_structure
from txbroker.cluster.topics import NewTopic
from txbroker.cluster.tree.local_session import Session
from txbroker.cluster.tree.sqlite import FILE_NAME, open_sqlite_tree


class SingleBroker(FakeCluster):
    """The cluster's own tree is the one in the file."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        tree = open_sqlite_tree(str(path), worker=self.turns.worker)
        assert isinstance(tree, Session)
        self.tree = self.observer = tree
        self.admin._tree = tree
        self.result(create_structure(tree))
        self.start_on(1, tree)


@pytest.mark.parametrize("killed", [False, True])
def test_topics_survive(tmp_path: Path, killed: bool) -> None:
    first = SingleBroker(tmp_path / FILE_NAME)
    first.create_topic("a", *[(1,)] * 1200, retention_ms="7")
    first.create_topic("b", (1,))
    first.create_topic("gone", (1,))
    first.result(first.admin.delete("gone"))
    after = tmp_path / "after"
    after.mkdir()
    if not killed:
        first.result(first.tree.close())
    for file in tmp_path.glob(f"{FILE_NAME}*"):
        shutil.copy(file, after)
    second = SingleBroker(after / FILE_NAME)
    assert second.controller.epoch == 2
    before, image = first.brokers[1].image, second.brokers[1].image
    assert image.topics == before.topics
    assert len(image.topics["a"].partitions) == 1200
    assert second.brokers[1].epoch is not None and first.brokers[1].epoch is not None
    assert second.brokers[1].epoch > first.brokers[1].epoch
    taken = second.taken()[1]
    assert taken[0] == "UM a-0 leader 1 epoch 0"  # clients never see that a topic does not exist
    assert len(taken) == 2 * 1201  # metadata and roles
    assert second.result(second.observer.get("/config/topics/a"))[0] == b'{"version":1,"config":{"retention.ms":"7"}}'


def test_a_failed_write_starts_another_election(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = SingleBroker(tmp_path / FILE_NAME)
    cluster.create_topic("a", (1,))
    nodes = cluster.tree._store._nodes  # type: ignore[attr-defined]
    write = nodes.write
    failing = [True]

    def fail_once(changes: dict[str, object], zxid: int) -> None:
        if failing and any(path.endswith("/state") for path in changes):
            failing.clear()
            raise sqlite3.OperationalError("disk I/O error")
        write(changes, zxid)

    monkeypatch.setattr(nodes, "write", fail_once)
    cluster.result(cluster.admin.create(NewTopic(name="b")))
    assert not cluster.brokers[1].controller.active
    (delay_s,) = cluster.run_later()
    assert delay_s > 0
    assert cluster.controller.epoch == 2
    assert cluster.state("b").leader == 1
    assert cluster.brokers[1].image.topic("b") is not None
