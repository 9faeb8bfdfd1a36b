"""A replica that lacks a committed batch is found, whether other replicas have shown that batch before or not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from simulation.clients.contents import record
from simulation.environment import Environment
from simulation.invariants.cluster_state import ClusterState
from simulation.invariants.truth import Replica, Seen, Truth
from simulation.plan import draw_plain
from txbroker.names import TopicPartition
from txbroker.wire.records import build

END = 5


class Log:
    """Batches of one record each."""

    def __init__(self, offsets: list[int]) -> None:
        self.config = SimpleNamespace(compact=False)
        self._batches = {}
        for offset in offsets:
            batch = build([record(0, 1000, b"value")], producer_id=-1, producer_epoch=-1, base_sequence=-1)
            self._batches[offset] = offset.to_bytes(8, "big") + batch[8:]

    def read(self, offset: int, size: int, *, offset_end: int, whole_first_batch: bool) -> Any:
        data = b"".join(batch for at, batch in self._batches.items() if offset <= at < offset_end)
        return SimpleNamespace(region=SimpleNamespace(read=lambda: data))


def compare(truth: Truth, *offsets: int) -> str | None:
    """Compare a replica that has these offsets with what is committed: the violation."""
    environment = Environment(draw_plain(1))
    partition: Any = SimpleNamespace(log=Log([*offsets]), topic_partition=TopicPartition("t0", 0))
    seen = Seen(is_leader=False, leader_epoch=0, high_watermark=END, end=END, start=0)
    ClusterState(environment, {})._compare(Replica(partition, seen, 0, END), truth, "replica", seen)
    return None if environment.violation is None else f"{environment.violation.invariant} {environment.violation.text}"


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize(("offsets", "missing"), [((0, 1, 3, 4), 2), ((2, 3, 4), 0), ((0, 3, 4), 1)])
def test_a_batch_that_is_missing(is_known: bool, offsets: tuple[int, ...], missing: int) -> None:
    truth = Truth()
    if is_known:
        assert compare(truth, *range(END)) is None
    found = compare(truth, *offsets)
    assert found is not None and f"I2 replica: no record has the offset {missing}" in found, found
