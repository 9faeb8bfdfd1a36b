from __future__ import annotations

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, fail

from tests.support.fakes.turns import Turns
from txbroker.cluster import node_paths
from txbroker.cluster.broker_ids import create_structure
from txbroker.cluster.node_data import ProducerIdBlock
from txbroker.cluster.producer_ids import PRODUCER_ID_MAX, ProducerIds, allocate_block
from txbroker.cluster.tree.interface import ConnectionLost, NoNode, NoSpaceInStore, SessionExpired, TreeError
from txbroker.cluster.tree.memory import MemoryTrees
from txbroker.cluster.tree.sqlite import open_sqlite_tree
from txbroker.errors import BrokerError, ErrorCode


def test_blocks_follow_each_other() -> None:
    turns = Turns()
    tree = MemoryTrees(turns.call_soon).session()
    turns.result(create_structure(tree))
    assert turns.result(allocate_block(tree, 2)) == ProducerIdBlock(2, 0, 999)
    assert turns.result(tree.get(node_paths.PRODUCER_ID_BLOCK))[0] == b'{"version":1,"broker":2,"block_start":"0","block_end":"999"}'
    one, two = allocate_block(tree, 1), allocate_block(tree, 3)
    assert {turns.result(one).start, turns.result(two).start} == {1000, 2000}


def test_the_ids_can_run_out() -> None:
    turns = Turns()
    tree = MemoryTrees(turns.call_soon).session()
    turns.result(create_structure(tree))
    turns.result(tree.set(node_paths.PRODUCER_ID_BLOCK, ProducerIdBlock(1, 0, PRODUCER_ID_MAX - 500).encode()))
    with pytest.raises(BrokerError, match="All producer ids"):
        turns.result(allocate_block(tree, 1))


def test_ids_never_repeat_over_restarts(tmp_path: Path) -> None:
    turns = Turns()
    seen: set[int] = set()
    for count in (3, 1500, 1, 2000):
        tree = open_sqlite_tree(str(tmp_path / "tree"), worker=turns.worker)
        turns.result(create_structure(tree))
        ids = ProducerIds(lambda: allocate_block(tree, 1))  # noqa: B023 the tree of this turn of the loop
        given_out = [ids.next_id() for _ in range(count)]
        for result in given_out:
            producer_id = turns.result(result)
            assert producer_id not in seen
            seen.add(producer_id)
        turns.result(tree.close())
    assert len(seen) == 3504


@pytest.mark.parametrize(
    ("error", "level"), [(ConnectionLost, logging.WARNING), (SessionExpired, logging.WARNING), (NoNode, logging.ERROR)]
)
def test_a_lost_connection_is_no_error_of_the_broker(error: type[TreeError], level: int, caplog: pytest.LogCaptureFixture) -> None:
    ids = ProducerIds(lambda: fail(error("/latest_producer_id_block")))
    with pytest.raises(BrokerError) as caught:
        Turns().result(ids.next_id())
    assert caught.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert [record.levelno for record in caplog.records] == [level]


def test_a_full_disk_is_named() -> None:
    ids = ProducerIds(lambda: fail(NoSpaceInStore("/x", "cannot write /d/f: No space left on device")))
    with pytest.raises(BrokerError, match="No space left on device") as caught:
        Turns().result(ids.next_id())
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


@given(st.lists(st.sampled_from(["ask", "block", "fail"]), max_size=60))
def test_every_request_gets_an_unused_id_in_any_order_of_events(steps: list[str]) -> None:
    waiting: list[Deferred[ProducerIdBlock]] = []
    starts = iter(range(0, 10_000, 3))

    def allocate() -> Deferred[ProducerIdBlock]:
        waiting.append(Deferred())
        assert len(waiting) == 1  # one at a time
        return waiting[0]

    ids = ProducerIds(allocate)
    given_out: list[int] = []
    refused: list[ErrorCode] = []
    asked = 0

    def answer(fail: bool) -> None:
        start = next(starts)
        block = waiting.pop()
        if fail:
            block.errback(OSError("no"))
        else:
            block.callback(ProducerIdBlock(1, start, start + 2))

    for step in steps:
        if step == "ask":
            asked += 1
            ids.next_id().addCallbacks(given_out.append, lambda failure: refused.append(failure.value.code))
        elif waiting:
            answer(step == "fail")
    while waiting:
        answer(False)
    assert len(given_out) + len(refused) == asked
    assert given_out == sorted(set(given_out))
    assert set(refused) <= {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
