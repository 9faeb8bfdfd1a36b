"""Records of one key from the earliest to the latest, for the tests of the log cleaner and of the jobs on Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from txbroker.log.cleaner.compaction_order import CompactionOrder
from txbroker.wire.records import Record

KEY = b"key"


class LatestOfKey(NamedTuple):
    """`order`: by the strategy. `records`: by that order, so that of the first n the n-th is the latest."""

    name: str
    order: CompactionOrder
    records: list[Record]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def _record(row: dict[str, Any]) -> Record:
    headers = tuple((name, _bytes(value)) for name, value in row["headers"])
    return Record(row["offset"], row["timestamp"], KEY, _bytes(row["value"]), headers)


CASES = [
    LatestOfKey(case["case"], CompactionOrder.of_topic(case["strategy"], case["header"]), [_record(row) for row in case["records"]])
    for case in json.loads(Path(__file__).with_suffix(".json").read_text())
]
