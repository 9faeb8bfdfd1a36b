"""The rows of segment files: every format and codec, what a consumer sees of transactions, damage, and the size of batches."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from tests.cleaner.logs import NOW, LogMaker
from txbroker.console.failures import CommandFailed
from txbroker.log.os_disk import OsDisk
from txbroker.spark.segment_rows import BATCH_BYTES, COLUMNS, SegmentFile, Wanted, read_segment
from txbroker.wire.compression import Codec
from txbroker.wire.entries import Scan

Keyed = tuple[bytes | None, bytes | None, int]


def records(count: int, first: int = 0) -> list[Keyed]:
    return [(b"key %d" % i, b"value %d" % i, NOW + i) for i in range(first, first + count)]


def written(log: LogMaker, tmp_path: Path) -> Path:
    directory = tmp_path / "t-0"
    log.write(directory)
    return directory


def read(directory: Path, base: int = 0, limit: int | None = None, *, live: bool = False, **wanted: Any) -> list[dict[str, Any]]:
    segment = SegmentFile("broker-1", str(directory), "t", 0, base, limit, live)
    return [row for batch in read_segment(OsDisk(), segment, Wanted(**wanted)) for row in batch.to_pylist()]


def offsets(rows: list[dict[str, Any]]) -> list[int]:
    return [row["offset"] for row in rows]


def test_everything_of_a_record_and_its_batch(tmp_path: Path) -> None:
    log = LogMaker()
    log.data(records(2))
    log.data([(None, None, -1), (b"", b"", 10**18)], headers=(("a", b"1"), ("a", None)), producer_id=7, codec=Codec.GZIP)
    log.data(records(1), producer_id=7, log_append_time=NOW + 500)
    rows = read(written(log, tmp_path))
    assert offsets(rows) == [0, 1, 2, 3, 4] and rows[0].keys() == COLUMNS.keys()
    same = ("topic", "partition", "replica", "magic", "leader_epoch")
    assert {tuple(row[column] for column in same) for row in rows} == {("t", 0, "broker-1", 2, 7)}
    assert [(row["key"], row["value"]) for row in rows[1:4]] == [(b"key 1", b"value 1"), (None, None), (b"", b"")]
    assert [row["timestamp_ms"] for row in rows] == [NOW, NOW + 1, -1, 10**18, NOW + 500]
    assert [row["timestamp_type"] for row in rows] == [0, 0, 0, 0, 1]
    assert rows[3]["timestamp"] is None and rows[1]["timestamp"].timestamp() * 1000 == NOW + 1
    assert rows[0]["headers"] is None and rows[2]["headers"] == [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]
    assert [(row["producer_id"], row["producer_epoch"], row["sequence"]) for row in rows[1:]] == [
        (None, None, None), (7, 0, 0), (7, 0, 1), (7, 0, 2)]
    positions = [row["position"] for row in rows]
    assert positions[0] == positions[1] == 0 < positions[2] == positions[3] < positions[4]
    assert all(row["problem"] is None and row["delete_horizon"] is None for row in rows)


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_formats_and_codecs(tmp_path: Path, magic: int, codec: Codec) -> None:
    log = LogMaker()
    if magic == 2:
        log.data(records(5), codec=codec)
    elif codec is Codec.ZSTD or (magic == 0 and codec is Codec.LZ4):
        pytest.skip("the format has no such codec")
    else:
        log.old(records(5), magic=magic, codec=codec)
    rows = read(written(log, tmp_path))
    assert [(row["offset"], row["key"], row["value"], row["magic"]) for row in rows] == [
        (i, b"key %d" % i, b"value %d" % i, magic) for i in range(5)]
    assert [row["timestamp_ms"] for row in rows] == [NOW + i if magic else -1 for i in range(5)]
    assert {row["timestamp_type"] for row in rows} == {0 if magic else -1}


def test_transactions_across_segments(tmp_path: Path) -> None:
    """Producer 1 aborts in the second segment, 2 commits, 3 is open from offset 10 on."""
    log = LogMaker()
    log.data(records(2), producer_id=1, transactional=True)  # 0, 1
    log.data(records(2), producer_id=2, transactional=True)  # 2, 3
    log.roll()
    log.data(records(2), producer_id=1, transactional=True)  # 4, 5
    log.end(1, committed=False)  # 6
    log.end(2, committed=True)  # 7
    log.data(records(2))  # 8, 9
    log.data(records(2), producer_id=3, transactional=True)  # 10, 11
    log.data(records(2))  # 12, 13
    directory = written(log, tmp_path)
    both = [(0, 4), (4, None)]
    assert [offsets(read(directory, *where)) for where in both] == [[2, 3], [8, 9]]
    assert [offsets(read(directory, *where, committed_only=False)) for where in both] == [[0, 1, 2, 3], [4, 5, 8, 9, 10, 11, 12, 13]]
    control = [row for row in read(directory, 4, control=True) if row["control"]]
    assert offsets(control) == [7], "the marker of a hidden transaction is hidden too"
    assert offsets([row for row in read(directory, 4, committed_only=False, control=True) if row["control"]]) == [6, 7]


def test_ranges(tmp_path: Path) -> None:
    log = LogMaker()
    for first in range(0, 20, 5):
        log.data(records(5, first))
    directory = written(log, tmp_path)
    assert offsets(read(directory, start=3, end=12)) == list(range(3, 12))
    assert offsets(read(directory, time_start=NOW + 8, time_end=NOW + 11)) == [8, 9, 10]
    (row,) = read(directory, columns=["offset", "key"], start=7, end=8)
    assert row == {"offset": 7, "key": b"key 7"}


def test_batches_are_of_a_bounded_size(tmp_path: Path) -> None:
    log = LogMaker()
    log.data([(b"k", bytes(3 << 20), NOW)] * 7)
    log.data([(b"k", bytes(BATCH_BYTES + 1), NOW)])
    segment = SegmentFile("", str(written(log, tmp_path)), "t", 0, 0, None, False)
    batches = list(read_segment(OsDisk(), segment, Wanted()))
    assert [batch.num_rows for batch in batches] == [2, 2, 2, 1, 1]
    assert all(batch.nbytes < BATCH_BYTES for batch in batches[:-1])
    assert [row["offset"] for batch in batches for row in batch.to_pylist()] == list(range(8))


def test_damage_is_reported_with_its_position(tmp_path: Path) -> None:
    log = LogMaker()
    for first in range(0, 20, 5):
        log.data(records(5, first))
    directory = written(log, tmp_path)
    (path,) = directory.glob("*.log")
    content = bytearray(path.read_bytes())
    places = [(at, header.size) for at, header in Scan(bytes(content))]
    content[places[1][0] + 70] ^= 1  # a record of the second batch
    struct.pack_into(">i", content, places[3][0] + 8, 2**31 - 1)  # the length of the fourth batch
    path.write_bytes(content)
    with pytest.raises(CommandFailed, match=rf"damaged at position {places[1][0]}: .*CRC.*log verify"):
        read(directory)
    rows = read(directory, report_damage=True)
    assert [(row["offset"], row["problem"] is None) for row in rows] == [
        *((i, True) for i in range(5)), (5, False), *((i, True) for i in range(10, 15)), (15, False)]
    damages = [row for row in rows if row["problem"]]
    assert [row["position"] for row in damages] == [places[1][0], places[3][0]]
    assert all(row["segment"] == str(path) and row["key"] is None and row["timestamp_ms"] is None for row in damages)
    assert offsets(read(directory, live=True, report_damage=True)) == [*range(6), *range(10, 15)], "a broker may be writing at the end"
    path.unlink()
    with pytest.raises(CommandFailed, match="deleted or replaced"):
        read(directory)


def test_records_that_do_not_ascend_are_damage(tmp_path: Path) -> None:
    """A batch whose records have offsets 0, 2, 1, and one whose CRC is right and whose records are not."""
    from txbroker.wire.batch import HEADER_SIZE, seal
    from txbroker.wire.records import Record, build

    content = bytearray(build([Record(i, NOW, b"k", b"v") for i in range(3)]))
    record = (len(content) - HEADER_SIZE) // 3
    second, third = HEADER_SIZE + record, HEADER_SIZE + 2 * record
    content[second:third], content[third:] = content[third:], content[second:third]
    seal(content, 0, len(content))
    broken = bytearray(build([Record(i, NOW, b"k", b"v") for i in range(3, 5)]))
    broken[HEADER_SIZE] = 0x7E  # a record of 63 bytes
    seal(broken, 0, len(broken))
    directory = tmp_path / "t-0"
    directory.mkdir()
    (directory / f"{0:020d}.log").write_bytes(content + broken + build([Record(5, NOW, b"k", b"v")]))
    rows = read(directory, report_damage=True)
    assert [(row["offset"], row["problem"] is None) for row in rows] == [(0, False), (3, False), (5, True)]
    assert rows[0]["problem"] == "offset 1 comes after offset 2 in one batch"
