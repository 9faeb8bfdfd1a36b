"""The rule that decides which record of a key is the latest (KIP-280), for single records and for columns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cleaner.latest_of_key import CASES, KEY, LatestOfKey
from tests.cleaner.logs import LogMaker, run
from tests.cleaner.reference import parse
from txbroker.log.cleaner.cleaning_job import Strategy
from txbroker.log.cleaner.compaction_order import NO_VERSION, CompactionOrder
from txbroker.log.cleaner.compaction_strategy import sort_keys
from txbroker.wire.records import Record


def record(offset: int, timestamp: int, *versions: bytes) -> Record:
    return Record(offset, timestamp, KEY, b"value", tuple(("v", version) for version in versions))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_records_from_the_earliest_to_the_latest(case: LatestOfKey, tmp_path: Path) -> None:
    assert all(sorted(mixed, key=case.order.rank) == case.records for mixed in (case.records, case.records[::-1]))
    for count in range(1, len(case.records) + 1):
        directory = tmp_path / str(count)
        assert compacted(directory, case.order, sorted(case.records[:count])) == [case.records[count - 1]]


def compacted(directory: Path, order: CompactionOrder, records: list[Record]) -> list[Record]:
    """What a pass of the cleaner leaves of records of one key."""
    log = LogMaker()
    for one in records:
        log.data([(one.key, one.value, one.timestamp)], headers=one.headers, gap=one.offset - log.next_offset)
    log.data([(b"another key", b"", 0)])  # the last record of a log always remains
    log.write(directory)
    content = run(log.job(directory, strategy=order.strategy, header=order.header)).contents[0]
    return [record for _, batch, _ in parse(content) for record in batch if record.key == KEY]


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
