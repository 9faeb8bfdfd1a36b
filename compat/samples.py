"""The sample records, and their comparison with what was read. Standard library only, like all code that Python drivers share: each driver
runs in an environment that has its client only."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

PARTITIONS = 3
COUNT = 330
BASE_TIMESTAMP = 1_700_000_000_000
STEP_MS = 100
ANY_TIME = -1  # in an expected record: the client cannot set it

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """A record as it is sent and as it is read, with partition and offset; timestamp in milliseconds."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def sample_records(count: int = COUNT, partitions: int = PARTITIONS) -> list[Record]:
    """The sample records in the order in which they are sent, each with the offset that it must get."""
    entries = json.loads((Path(__file__).parent / "records.json").read_text())
    made = []
    for i in range(count):
        entry = entries[i % len(entries)]
        value = _decoded(entry["value"])
        headers = tuple((name, base64.b64decode(data)) for name, data in entry["headers"])
        made.append(Record(i % partitions, i // partitions, BASE_TIMESTAMP + STEP_MS * i, _decoded(entry["key"]),
                           value and value * entry["repeat"], headers))
    return made


def check_records(read: Iterable[Record], expected: Sequence[Record]) -> None:
    """AssertionError with the first difference from the expected records, in the order of each partition."""
    wanted = {(record.partition, record.offset): record for record in expected}
    last: dict[int, int] = {}
    for record in read:
        where = (record.partition, record.offset)
        assert record.offset > last.get(record.partition, -1), f"{where} came after offset {last[record.partition]}"
        last[record.partition] = record.offset
        assert where in wanted, f"{where} is unexpected"
        want = wanted.pop(where)
        if want.timestamp == ANY_TIME:
            want = want._replace(timestamp=record.timestamp)
        for name, one, other in zip(Record._fields, record, want, strict=True):
            equal(one, other, f"{name} of {where}")
    assert not wanted, f"{len(wanted)} records were not read, the first is {min(wanted)}"


def equal(got: object, want: object, what: str) -> None:
    """AssertionError with the difference."""
    assert got == want, f"{what}: {_short(got)} instead of {_short(want)}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
