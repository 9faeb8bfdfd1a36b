"""Checksums of records: one file of vectors for Spark's hash and for Python's, and sums that do not depend on the order."""

from __future__ import annotations

import json
import random
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from txbroker.spark.checksum import (
    BYTES_COLUMN,
    CONTENT,
    CONTENT_COLUMNS,
    Checksum,
    Headers,
    content,
    joined,
    sum_columns,
    xxh64,
)

Vector = tuple[bytes | None, bytes | None, int, Headers, tuple[int, int]]


def bytes_of(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


VECTORS: list[Vector] = [
    (bytes_of(one["key"]), bytes_of(one["value"]), one["timestamp_ms"], [(name, bytes_of(value)) for name, value in one["headers"]],
     (int(one["hash"][:16], 16), int(one["hash"][16:], 16)))
    for one in json.loads(Path(__file__).with_name("checksum_vectors.json").read_text())
]  # fmt: skip


@pytest.mark.parametrize(("data", "expected"), [
    (b"", 0xEF46DB3751D8E999),
    (b"abc", 0x44BC2CF5AD770999),
    (b"The quick brown fox jumps over the lazy dog", 0x0B242D361FDA71BC),
])  # fmt: skip
def test_xxh64_of_other_programs(data: bytes, expected: int) -> None:
    assert xxh64(data, 0) == expected


def test_vectors_in_python() -> None:
    assert [content(*vector[:4]) for vector in VECTORS] == [vector[4] for vector in VECTORS]
    for lane in range(2):
        assert len({vector[4][lane] for vector in VECTORS}) == len(VECTORS)


def test_sums_notice_what_counts_and_xor_do_not() -> None:
    hashes = [vector[4] for vector in VECTORS]
    total = Checksum.of(hashes)
    assert total == Checksum.of(random.Random(1).sample(hashes, len(hashes)))
    for one, other in combinations(hashes, 2):
        assert Checksum.of([each for each in hashes if each != one] + [other]) != total, "one is lost and another one doubled"
        assert Checksum.of([*hashes, one, one]) != total
    assert len(total.text) == 32


@pytest.mark.process
def test_vectors_in_spark(spark: Any) -> None:
    rows = [(i, key, value, ms, [*headers] if headers else None, i % 3) for i, (key, value, ms, headers, _) in enumerate(VECTORS)]
    schema = ("number INT, key BINARY, value BINARY, timestamp_ms BIGINT, headers ARRAY<STRUCT<key: STRING, value: BINARY>>, group INT")
    frame = spark.createDataFrame(rows, schema).selectExpr("*", *CONTENT_COLUMNS, BYTES_COLUMN)
    found = frame.orderBy("number").select("bytes", *CONTENT).collect()
    assert [(row[1] % 2**64, row[2] % 2**64) for row in found] == [vector[4] for vector in VECTORS]
    sizes = [len(key or b"") + len(value or b"") + sum(len(name.encode()) + len(each or b"") for name, each in headers)
             for key, value, _, headers, _ in VECTORS]  # fmt: skip
    assert [row[0] for row in found] == sizes

    from pyspark.sql import functions as f

    sums = frame.groupBy("group").agg(*map(f.expr, sum_columns(CONTENT, "sum"))).selectExpr("*", f"{joined('sum')} AS text")
    for row in sums.collect():
        expected = Checksum.of(vector[4] for i, vector in enumerate(VECTORS) if i % 3 == row.group)
        assert Checksum.of_halves(row[1:5]) == expected
        assert row.text == expected.text
