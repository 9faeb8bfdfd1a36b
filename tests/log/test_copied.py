"""Batches of a mirror that keep their offsets: gaps, refusals, and what a refusal or a failed write leaves."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from tests.log.support import NOW, batch, open_log, rows, values
from tests.log.test_append import changed, refused
from tests.support.compressed_forms import READ_BY_OTHERS, Form, forms
from tests.support.fakes.disk_path import DiskPath
from tests.support.fakes.faulty_disk import FaultyDisk
from txbroker.errors import ErrorCode
from txbroker.log.log import Log
from txbroker.log.log_results import Appended, Origin
from txbroker.wire.batch import read_header, stamp, stamp_max_timestamp
from txbroker.wire.compression import Codec
from txbroker.wire.records import Record, build

THINNED = [Record(50, NOW, b"k", b"a"), Record(53, NOW + 1, b"k", b"b")]


def copy(log: Log, records: memoryview) -> Appended:
    return log.append(records, leader_epoch=7, now_ms=NOW, origin=Origin.MIRROR)


def thinned(records: list[Record] = THINNED) -> memoryview:
    return memoryview(bytearray(build(records, base_offset=48)))


def test_offsets_stay_and_gaps_are_kept(directory: DiskPath) -> None:
    log = open_log(directory, message_timestamp_log_append=True, compression_type=Codec.GZIP)
    assert copy(log, batch(b"x", b"y", base_offset=20)).first_offset == 20
    assert (log.log_start_offset, log.log_end_offset) == (20, 22), "an empty log begins at its first batch"
    found = copy(log, thinned())
    assert (found.first_offset, found.last_offset, found.append_time_ms) == (48, 53, -1)
    copy(log, batch(b"z", base_offset=54))
    expected = [(20, b"x"), (21, b"y"), (50, b"a"), (53, b"b"), (54, b"z")]
    assert [(row[0], row[3]) for row in rows(log)] == expected and rows(log, 30) == rows(log)[2:]
    assert list(log.leader_epochs) == [(7, 20)]
    log.close()
    again = open_log(directory, clean=False, log_start_offset=20)
    assert [(row[0], row[3]) for row in rows(again)] == expected and again.log_end_offset == 55


def test_a_batch_after_one_that_was_refused(directory: DiskPath) -> None:
    """A batch that says how many offsets before it have no record is appended only where the log ends so many offsets before it."""
    log = open_log(directory)
    for offset, gap, missed in ((20, 20, 19), (25, 3, 2), (28, 1, 0)):
        refused(log, _after_gap(missed, offset), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, origin=Origin.MIRROR)
        assert copy(log, _after_gap(gap, offset)).last_offset == offset + 1
    assert [row[0] for row in rows(log)] == [20, 21, 25, 26, 28, 29] and list(log.leader_epochs) == [(7, 20)]


@pytest.mark.parametrize("form", list(forms()), ids=lambda form: form.name)
def test_compressed_records_that_some_client_reads_are_copied(directory: DiskPath, form: Form) -> None:
    log = open_log(directory, max_message_bytes=1 << 20)
    records = memoryview(bytearray(form.batch(NOW)))
    if form.read or form.name in READ_BY_OTHERS:
        assert copy(log, records).last_offset == form.records - 1
        assert len(rows(log)) == form.records
    else:
        refused(log, records, ErrorCode.INVALID_RECORD, origin=Origin.MIRROR)


@pytest.mark.parametrize("shift_ms", [-NOW, -3_600_000, 3_600_000])
def test_a_header_with_another_largest_timestamp_is_refused(directory: DiskPath, shift_ms: int) -> None:
    """Retention would delete the records at once, or never."""
    log = open_log(directory)
    for records in (batch(b"x", b"y", base_offset=20), batch(b"x", base_offset=20, codec=Codec.LZ4), thinned()):
        stamp_max_timestamp(records, 0, NOW + shift_ms, log_append_time=False)
        refused(log, records, ErrorCode.INVALID_RECORD, origin=Origin.MIRROR)
        stamp_max_timestamp(records, 0, NOW + shift_ms, log_append_time=True)  # the time of the source's append, for all records
    assert copy(log, records).last_offset == 53
    assert {row[1] for row in rows(log)} == {NOW + shift_ms}


def _after_gap(gap: int, offset: int) -> memoryview:
    made = batch(b"x", b"y", base_offset=offset)
    stamp(made, 0, offset, gap)
    return made


def test_a_gap_that_no_index_can_have(directory: DiskPath) -> None:
    log = open_log(directory)
    copy(log, batch(b"x", base_offset=5))
    copy(log, batch(b"y", base_offset=2**40))
    assert [segment.base_offset for segment in log.segments] == [5, 2**40]
    assert [row[0] for row in rows(log)] == [5, 2**40]


REFUSED: list[tuple[str, Callable[[], memoryview], ErrorCode]] = [
    ("below the end", lambda: batch(b"x", base_offset=9), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ("the same again", lambda: batch(b"x", b"y", base_offset=8), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ("a producer", lambda: batch(b"x", base_offset=10, producer_id=1, producer_epoch=0, base_sequence=0), ErrorCode.INVALID_RECORD),
    ("a transaction", lambda: batch(b"x", base_offset=10, transactional=True), ErrorCode.INVALID_RECORD),
    ("a marker", lambda: batch(b"x", base_offset=10, control=True), ErrorCode.INVALID_RECORD),
    ("more records than offsets", lambda: changed(batch(b"x", b"y", base_offset=10), 23, bytes(4)), ErrorCode.INVALID_RECORD),
    ("no records", lambda: changed(batch(b"x", base_offset=10), 57, bytes(4)), ErrorCode.INVALID_RECORD),
    ("a count that its records do not have", lambda: changed(batch(b"x", b"y", base_offset=10), 57, b"\0\0\0\1"), ErrorCode.INVALID_RECORD),
    ("a wrong CRC", lambda: changed(batch(b"x", base_offset=10), 65, b"?", sealed=False), ErrorCode.CORRUPT_MESSAGE),
    ("more bytes", lambda: memoryview(bytearray(bytes(batch(b"x", base_offset=10)) + b"more")), ErrorCode.INVALID_RECORD),
    ("too large", lambda: batch(b"x" * 2000, base_offset=10), ErrorCode.MESSAGE_TOO_LARGE),
    ("the last offset", lambda: batch(b"x", base_offset=2**63 - 1), ErrorCode.INVALID_RECORD),
    ("offsets that do not ascend", lambda: _descending(), ErrorCode.INVALID_RECORD),
]


def _descending() -> memoryview:
    """Two records with the offset deltas 2 and 2 of 5."""
    made = thinned()
    header = read_header(made)
    first, second = (bytes(build([each], base_offset=48))[61:] for each in THINNED)
    body = first + second.replace(b"\x0a", b"\x04", 1)
    assert len(made) == 61 + len(body) and header.count == 2
    return changed(made, 61, body)


@pytest.mark.parametrize(("made", "code"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_refused(directory: DiskPath, made: Callable[[], memoryview], code: ErrorCode) -> None:
    log = open_log(directory, max_message_bytes=1000)
    copy(log, batch(b"x", b"y", base_offset=8))
    refused(log, made(), code, origin=Origin.MIRROR)
    copy(log, batch(b"z", base_offset=10))
    assert values(log) == [b"x", b"y", b"z"]


def test_a_failed_write_changes_nothing(directory: DiskPath) -> None:
    disk = FaultyDisk(directory.disk)
    log = open_log(directory, disk=disk)
    copy(log, batch(b"x", base_offset=8))
    for error, code in ((errno.EIO, ErrorCode.KAFKA_STORAGE_ERROR), (errno.ENOSPC, ErrorCode.KAFKA_STORAGE_ERROR)):
        disk.fail("append", error=error, torn=True)
        refused(log, batch(b"y", base_offset=100), code, origin=Origin.MIRROR)
        disk.repair()
    copy(log, batch(b"z", base_offset=9))
    assert [row[0] for row in rows(log)] == [8, 9]
