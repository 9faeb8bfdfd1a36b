"""Shared by the tests of moves: a log that moves in small steps."""

from __future__ import annotations

from tests.log_directories.support import T0, TOPIC_ID, DirectoryHarness, append, content
from txbroker.log.log import Log
from txbroker.log.replica_move_recovery import CURRENT_COPY


def filled(broker: DirectoryHarness, batches: int = 20) -> Log:
    log = broker.create(T0)
    for number in range(batches):
        append(log, b"%d" % number, b"x" * 20)
        broker.worker.run()
    return log


def finish(broker: DirectoryHarness) -> Log:
    """Finish the move; the log that is in use afterwards."""
    broker.worker.run()
    moved = broker.directories.get(T0)
    assert moved is not None
    return moved


def check_arrived(broker: DirectoryHarness, expected: bytes) -> Log:
    moved = finish(broker)
    assert moved.directory == f"{broker.paths[1]}/t-0"
    assert content(moved) == expected
    assert broker.watcher.moved == {T0: moved}
    assert moved.topic_id == TOPIC_ID
    assert [name.split(".")[0] for name in broker.partitions("a")] == ["t-0"]  # the old copy, to be removed
    assert broker.partitions("a")[0].endswith("-delete")
    broker.worker.wait(60_000)
    assert (broker.partitions("a"), broker.partitions("b")) == ([], ["t-0"])
    assert not (broker.root / "b" / "t-0" / CURRENT_COPY).exists()
    return moved
