"""The rule that decides which record of a key is the latest (KIP-280), for single records and for columns."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txbroker.log.cleaner.cleaning_job import Strategy
from txbroker.log.cleaner.compaction_order import NO_VERSION, CompactionOrder
from txbroker.log.cleaner.compaction_strategy import sort_keys
from txbroker.wire.records import Record


def record(offset: int, timestamp: int = 0, *versions: bytes | None) -> Record:
    return Record(offset, timestamp, b"key", b"value", tuple(("v", version) for version in versions))


@pytest.mark.parametrize(("strategy", "records"), [
    (Strategy.OFFSET, [record(1, 9, bytes(7) + b"\x05"), record(2, 3), record(3, 1, bytes(8))]),
    (Strategy.TIMESTAMP, [record(3, -1), record(1, 5), record(2, 5), record(0, 6)]),
    (Strategy.HEADER, [
        record(3), record(4, 9, b"short"), record(5, 0, None), record(6, 0, bytes(8), b""),  # no version: by offset
        record(2, 0, b"\x80" + bytes(7)), record(1, 0, b"\xff" * 8), record(0, 0, bytes(8)), record(9, 0, b"x", bytes(8)),
    ]),
])  # fmt: skip
def test_records_from_the_earliest_to_the_latest(strategy: Strategy, records: list[Record]) -> None:
    assert all(sorted(mixed, key=CompactionOrder(strategy, "v").rank) == records for mixed in (records, records[::-1]))


def test_the_strategy_of_a_topic() -> None:
    assert CompactionOrder.of_topic("", "v").strategy is Strategy.OFFSET
    assert CompactionOrder.of_topic("header", "") == CompactionOrder()
    assert CompactionOrder.of_topic("header", "v") == CompactionOrder(Strategy.HEADER, "v")
    assert CompactionOrder.of_topic("timestamp", "") == CompactionOrder(Strategy.TIMESTAMP)
    with pytest.raises(ValueError, match="newest"):
        CompactionOrder.of_topic("newest", "")


VERSIONS = [None, NO_VERSION, -1, 0, 2**63 - 1]


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(VERSIONS)), max_size=20), st.sampled_from(Strategy))
def test_columns_have_the_same_order(rows: list[tuple[int, int | None]], strategy: Strategy) -> None:
    order = CompactionOrder(strategy, "v")
    records = [
        record(offset, timestamp, *([] if version is None else [version.to_bytes(8, "big", signed=True)]))
        for offset, (timestamp, version) in enumerate(rows)
    ]
    has_version = np.array([version is not None for _, version in rows], np.bool_)
    version = np.array([version or 0 for _, version in rows], np.int64)
    timestamp = np.array([timestamp for timestamp, _ in rows], np.int64)
    found = np.lexsort(sort_keys(order, np.arange(len(rows)), timestamp, version, has_version)).tolist() if rows else []
    assert [records[index] for index in found] == sorted(records, key=order.rank)
