"""Appending: fields that the log sets, refusals and their errors, recompression; a refusal changes nothing."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Any

import pytest

from tests.log.support import NOW, append, batch, entries, headers, marker, names, open_log, rows, values
from tests.support.fakes.disk_path import DiskPath
from tests.support.fakes.faulty_disk import FaultyDisk
from tests.support.fakes.worker import Worker
from txbroker.errors import BrokerError, ErrorCode, StorageError
from txbroker.log.cleaner.cleaning_job import Strategy
from txbroker.log.log import Log
from txbroker.log.log_results import Origin, RejectedRecords
from txbroker.log.open_segments import OpenSegments
from txbroker.wire import legacy
from txbroker.wire.batch import read_header, seal
from txbroker.wire.compression import Codec
from txbroker.wire.record_loops import RECORDS_MAX
from txbroker.wire.records import Record, build

HOUR = 3_600_000


def changed(records: memoryview, at: int, new: bytes, *, sealed: bool = True) -> memoryview:
    """The batch with some bytes replaced and a new CRC."""
    records[at : at + len(new)] = new
    if sealed:
        seal(records, 0, len(records))
    return records


def refused(log: Log, records: memoryview, code: ErrorCode, *, now_ms: int = NOW, origin: Origin = Origin.CLIENT) -> BrokerError:
    before = (log.log_end_offset, log.size, [bytes(data) for _, data in entries(log)], len(log.producers))
    with pytest.raises(BrokerError) as caught:
        log.append(records, leader_epoch=7, now_ms=now_ms, origin=origin)
    assert caught.value.code is code, caught.value
    assert before == (log.log_end_offset, log.size, [bytes(data) for _, data in entries(log)], len(log.producers))
    return caught.value


def test_only_offset_and_epoch_of_a_batch_are_changed(directory: DiskPath) -> None:
    log = open_log(directory)
    sent = [batch(b"a", b"b", codec=Codec.LZ4), batch(b"c"), batch(b"d", None, b"", codec=Codec.GZIP)]
    originals = [bytes(records) for records in sent]
    appended = [log.append(records, leader_epoch=7, now_ms=NOW) for records in sent]
    assert [(found.first_offset, found.last_offset) for found in appended] == [(0, 1), (2, 2), (3, 5)]
    assert all(found.append_time_ms == -1 and not found.duplicate for found in appended)
    for (header, data), original, found in zip(entries(log), originals, appended, strict=True):
        assert data[16:] == original[16:]
        assert read_header(data).base_offset == found.first_offset
        assert header.leader_epoch == 7
    assert (directory / "00000000000000000000.log").read_bytes() == b"".join(data for _, data in entries(log))
    assert list(log.leader_epochs) == [(7, 0)]


REFUSED: list[tuple[str, Callable[[], memoryview], ErrorCode, dict[str, Any]]] = [
    ("a wrong CRC", lambda: changed(batch(b"abc"), 70, b"X", sealed=False), ErrorCode.CORRUPT_MESSAGE, {}),
    ("nothing", lambda: memoryview(bytearray()), ErrorCode.INVALID_RECORD, {}),
    ("a torn batch", lambda: batch(b"abc")[:-1], ErrorCode.INVALID_RECORD, {}),
    ("an unknown codec", lambda: changed(batch(b"abc"), 22, b"\x07"), ErrorCode.INVALID_RECORD, {}),
    ("an unknown codec and a wrong CRC", lambda: changed(batch(b"abc"), 22, b"\x07", sealed=False), ErrorCode.CORRUPT_MESSAGE, {}),
    ("an unknown magic", lambda: changed(batch(b"abc"), 16, b"\x03"), ErrorCode.CORRUPT_MESSAGE, {}),
    ("too many bytes", lambda: batch(b"x" * 1000), ErrorCode.MESSAGE_TOO_LARGE, {"max_message_bytes": 1000}),
    ("more than a segment", lambda: batch(b"x" * 1000), ErrorCode.RECORD_LIST_TOO_LARGE, {"segment_bytes": 1000}),
    ("a count that is not the offsets'", lambda: changed(batch(b"a", b"b"), 57, b"\0\0\0\1"), ErrorCode.INVALID_RECORD, {}),
    ("no records", lambda: changed(batch(b"a"), 57, b"\0\0\0\0"), ErrorCode.INVALID_RECORD, {}),
    ("a base offset", lambda: changed(batch(b"a"), 7, b"\5"), ErrorCode.INVALID_RECORD, {}),
    ("a control batch", lambda: marker(5, committed=True), ErrorCode.INVALID_RECORD, {}),
    ("a producer without sequence", lambda: batch(b"a", producer_id=5, producer_epoch=0), ErrorCode.INVALID_RECORD, {}),
    ("two batches", lambda: memoryview(bytearray(bytes(batch(b"a")) + bytes(batch(b"b")))), ErrorCode.INVALID_RECORD, {}),
    ("the future", lambda: batch(b"a", b"b", step_ms=HOUR + 1), ErrorCode.INVALID_TIMESTAMP, {"message_timestamp_after_max_ms": HOUR}),
    ("the past", lambda: batch(b"a", b"b", step_ms=-HOUR - 1), ErrorCode.INVALID_TIMESTAMP, {"message_timestamp_before_max_ms": HOUR}),
    ("no key", lambda: batch(b"a", key=None), ErrorCode.INVALID_RECORD, {"cleanup_policy": frozenset({"compact"})}),
    ("no key, compressed", lambda: batch(b"a", key=None, codec=Codec.ZSTD), ErrorCode.INVALID_RECORD,
     {"cleanup_policy": frozenset({"compact", "delete"})}),
]  # fmt: skip


@pytest.mark.parametrize(("make", "code", "config"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_a_refused_batch_changes_nothing(
    directory: DiskPath, make: Callable[[], memoryview], code: ErrorCode, config: dict[str, Any]
) -> None:
    log = open_log(directory, **config)
    append(log, b"before")
    refused(log, make(), code)
    append(log, b"after")
    assert values(log) == [b"before", b"after"]


@pytest.mark.parametrize(
    ("config", "records", "indexes"),
    [
        ({"cleanup_policy": frozenset({"compact"})}, [(b"k", NOW), (None, NOW), (b"", NOW), (None, NOW)], [1, 3]),
        ({"message_timestamp_after_max_ms": 10}, [(b"k", NOW + 11), (b"k", NOW + 10), (b"k", NOW - 10**9)], [0]),
        ({"message_timestamp_before_max_ms": 10}, [(b"k", NOW - 10), (b"k", NOW - 11), (b"k", -1), (b"k", NOW)], [1]),
    ],
)
def test_a_refusal_lists_the_invalid_records(
    directory: DiskPath, config: dict[str, Any], records: list[tuple[bytes | None, int]], indexes: list[int]
) -> None:
    made = build([Record(index, timestamp, key, b"v") for index, (key, timestamp) in enumerate(records)])
    code = ErrorCode.INVALID_RECORD if "cleanup_policy" in config else ErrorCode.INVALID_TIMESTAMP
    error = refused(open_log(directory, **config), memoryview(bytearray(made)), code)
    assert isinstance(error, RejectedRecords)
    assert [found.batch_index for found in error.record_errors] == indexes


def test_a_header_that_claims_a_later_time_than_its_records_have_is_corrected(directory: DiskPath) -> None:
    log = open_log(directory, message_timestamp_after_max_ms=10)
    log.append(changed(batch(b"a"), 35, (NOW + 11).to_bytes(8, "big")), leader_epoch=0, now_ms=NOW)
    assert log.segments[0].max_timestamp == (NOW, 0)
    append(log, b"a", timestamp=NOW + 10)
    append(log, b"a", timestamp=-1)


def test_an_incomplete_last_batch_is_ignored(directory: DiskPath) -> None:
    log = open_log(directory)
    whole = bytes(batch(b"a"))
    log.append(memoryview(bytearray(whole + whole[:-1])), leader_epoch=0, now_ms=NOW)
    log.append(memoryview(bytearray(whole + b"\0")), leader_epoch=0, now_ms=NOW)
    assert log.size == 2 * len(whole)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_log_append_time(directory: DiskPath, codec: Codec) -> None:
    log = open_log(directory, message_timestamp_log_append=True, message_timestamp_after_max_ms=0)
    appended = append(log, b"a", b"b", now_ms=NOW, timestamp=5, codec=codec)
    assert appended.append_time_ms == NOW
    appended = append(log, b"c", now_ms=NOW + 1, timestamp=NOW + HOUR, codec=codec)
    assert [(offset, timestamp) for offset, timestamp, _, _ in rows(log)] == [(0, NOW), (1, NOW), (2, NOW + 1)]
    assert log.offset_for_timestamp(NOW + 1) == (NOW + 1, 2, 0)
    assert log.segments[0].max_timestamp == (NOW + 1, 2)


@pytest.mark.parametrize("wanted", list(Codec))
@pytest.mark.parametrize("sent", [Codec.NONE, Codec.SNAPPY])
def test_compression_type(directory: DiskPath, wanted: Codec, sent: Codec) -> None:
    log = open_log(directory, compression_type=wanted)
    content = [b"the same words again and again" * 10] * 5
    append(log, *content, codec=sent, producer_id=9, producer_epoch=1, base_sequence=0)
    append(log, b"x", codec=sent)
    assert values(log) == [*content, b"x"]
    assert [header.codec for header in headers(log)] == [wanted, wanted]
    assert headers(log)[0].producer_id == 9


def test_compression_that_makes_a_batch_too_large_is_refused(directory: DiskPath) -> None:
    log = open_log(directory, compression_type=Codec.NONE, max_message_bytes=1000)
    refused(log, batch(b"x" * 5000, codec=Codec.GZIP), ErrorCode.MESSAGE_TOO_LARGE)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("log_append_time", [False, True])
def test_old_message_sets_become_one_batch(directory: DiskPath, magic: int, codec: Codec, log_append_time: bool) -> None:
    log = open_log(directory, message_timestamp_log_append=log_append_time)
    append(log, b"first")
    records = [Record(index, NOW + index, b"k", f"v{index}".encode()) for index in range(5)]
    old = memoryview(bytearray(legacy.build(records, magic=magic, codec=codec)))
    appended = log.append(old, leader_epoch=3, now_ms=NOW + HOUR)
    assert (appended.first_offset, appended.last_offset) == (1, 5)
    assert len(headers(log)) == 2
    assert values(log, 1) == [record.value for record in records]
    expected = [NOW + HOUR if log_append_time else NOW + index if magic else -1 for index in range(5)]
    assert [timestamp for _, timestamp, _, _ in rows(log, 1)] == expected


def test_old_message_sets_are_validated(directory: DiskPath) -> None:
    log = open_log(directory, cleanup_policy=frozenset({"compact"}), max_message_bytes=2000)
    old = bytearray(legacy.build([Record(0, NOW, b"k", b"v")], magic=1))
    old[-1] ^= 1
    refused(log, memoryview(old), ErrorCode.CORRUPT_MESSAGE)
    keyless = legacy.build([Record(0, NOW, None, b"v")], magic=1)
    refused(log, memoryview(bytearray(keyless)), ErrorCode.INVALID_RECORD)
    refused(log, memoryview(bytearray(legacy.build([Record(0, NOW, b"k", b"v" * 2000)], magic=0))), ErrorCode.MESSAGE_TOO_LARGE)
    refused(log, memoryview(bytearray(keyless[:20])), ErrorCode.INVALID_RECORD)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_an_impossible_record_count_is_refused(directory: DiskPath, codec: Codec) -> None:
    log = open_log(directory, max_message_bytes=1 << 20)

    def claiming(count: int, size: int) -> memoryview:
        records = changed(batch(random.Random(1).randbytes(size), codec=codec), 23, struct.pack(">i", count - 1))
        return changed(records, 57, struct.pack(">i", count))

    refused(log, claiming(RECORDS_MAX + 1, 200_000), ErrorCode.MESSAGE_TOO_LARGE)  # Java's producer splits the batch after this error
    refused(log, claiming(2**31 - 1, 10), ErrorCode.MESSAGE_TOO_LARGE)
    refused(log, claiming(2000, 100), ErrorCode.INVALID_RECORD)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
def test_the_densest_batch_of_a_client_is_accepted(directory: DiskPath, codec: Codec) -> None:
    log = open_log(directory)
    assert log.append(batch(*[b""] * 20_000, key=None, codec=codec), leader_epoch=0, now_ms=NOW).last_offset == 19_999


def test_a_failed_write_changes_nothing(directory: DiskPath) -> None:
    disk = FaultyDisk(directory.disk)
    log = open_log(directory, disk=disk, segment_bytes=300)
    append(log, b"a" * 100, producer_id=1, producer_epoch=0, base_sequence=0)
    content = (directory / "00000000000000000000.log").read_bytes()
    disk.fail("append", torn=True)
    refused(log, batch(b"b" * 50, producer_id=1, producer_epoch=0, base_sequence=1), ErrorCode.KAFKA_STORAGE_ERROR)
    assert (directory / "00000000000000000000.log").read_bytes() == content
    refused(log, batch(b"b" * 200), ErrorCode.KAFKA_STORAGE_ERROR)  # the log rolled before the write failed
    disk.repair()
    append(log, b"c", producer_id=1, producer_epoch=0, base_sequence=1)
    assert values(log) == [b"a" * 100, b"c"]
    log.close()
    assert values(open_log(directory)) == [b"a" * 100, b"c"]


def test_flush_messages_decides_when_a_flush_is_due_and_what_is_settled(directory: DiskPath) -> None:
    disk = FaultyDisk(directory.disk)
    log = open_log(directory, disk=disk, flush_messages=3)
    append(log, b"a", b"b")
    assert not log.flush_due and log.settled_end == 2
    append(log, b"c")
    assert log.flush_due and log.settled_end == 0
    assert disk.paths("sync") == [], "an append does not sync"
    log.flush()
    assert not log.flush_due and log.settled_end == 3
    append(log, b"d", b"e")
    append(log, b"f", b"g")
    assert log.flush_due and log.settled_end == 3
    log.append_replicated(batch(b"h", base_offset=7), now_ms=NOW)
    assert log.recovery_point == 3


def test_a_flush_includes_names_that_an_earlier_plan_has_not_synced(directory: DiskPath) -> None:
    worker, disk = Worker(), FaultyDisk(directory.disk)
    log = open_log(directory, disk=disk, later=worker)
    append(log, b"a")
    log.flush()
    disk.done.clear()
    log.roll(NOW)
    append(log, b"b")
    assert disk.paths("sync") == []
    log.flush()
    assert log.recovery_point == 2
    assert str(directory) in disk.paths("sync"), "the directory is synced, because the plan of the roll that contains it has not run"
    worker.run()
    assert log.recovery_point == 2 and log.flush_plan() is None


def test_rolls_by_size_time_index_and_distance(directory: DiskPath) -> None:
    log = open_log(directory / "size", segment_bytes=200)
    size = append_size(log, b"x" * 30)
    for _ in range(10):
        append(log, b"x" * 30)
    assert [segment.base_offset for segment in log.segments] == list(range(0, 11, 200 // size))

    log = open_log(directory / "time", segment_ms=1000, now_ms=NOW)
    for after in (0, 1000, 1001, 1500, 2001, 2002):
        append(log, b"x", timestamp=NOW + after)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 5]

    log = open_log(directory / "no timestamps", segment_ms=1000, now_ms=NOW)
    for after in (0, 1000, 1001, 1500, 2002):
        append(log, b"x", timestamp=-1, now_ms=NOW + after)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4]

    log = open_log(directory / "jitter", segment_ms=1000, segment_jitter_ms=500, random_below=lambda below: below - 100, now_ms=NOW)
    log.roll(NOW)
    append(log, b"x")
    log.roll(NOW)
    for after in (0, 600, 601):
        append(log, b"x", timestamp=NOW + after)
    assert [segment.base_offset for segment in log.segments] == [0, 1, 3]

    log = open_log(directory / "index", segment_index_bytes=24, index_interval_bytes=0)
    for after in range(12):
        append(log, b"x", timestamp=NOW + after)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4, 6, 8, 10]


def append_size(log: Log, value: bytes) -> int:
    append(log, value)
    return log.size


def test_a_roll_syncs_what_it_closed_in_a_worker(directory: DiskPath) -> None:
    worker, disk = Worker(), FaultyDisk(directory.disk)
    log = open_log(directory, disk=disk, later=worker, index_interval_bytes=0)
    log.use(OpenSegments())
    append(log, b"0")
    log.flush()
    disk.done.clear()
    append(log, b"a", leader_epoch=5)
    append(log, b"b", leader_epoch=5)
    log.roll(NOW)
    append(log, b"c")
    assert log.recovery_point == 1
    assert disk.paths("sync") == []
    worker.run()
    assert log.recovery_point == 3
    closed = [f"{directory}/{0:020d}{suffix}" for suffix in (".log", ".index", ".timeindex")]
    others = [f"{directory}/{3:020d}.snapshot", f"{directory}/leader-epoch-checkpoint", str(directory)]
    assert set(disk.paths("sync")) == {*closed, *others}
    log.roll(NOW)
    log.roll(NOW)
    assert [segment.base_offset for segment in log.segments] == [0, 3, 4]
    assert names(directory, ".snapshot") == [f"{offset:020d}.snapshot" for offset in (3, 4)]


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_full_segment_is_closed_at_once(directory: DiskPath, policy: str) -> None:
    """In a burst of appends, before a worker has synced anything. Where a gap would not show that a loss of power has taken a segment from
    between two others, its name is synced before the next one begins."""
    disk = FaultyDisk(directory.disk)
    log = open_log(directory, disk=disk, later=Worker(), segment_bytes=150, cleanup_policy=frozenset({policy}))
    log.use(OpenSegments())
    for _ in range(4):
        append(log, b"x" * 50)
    assert [segment.base_offset for segment in log.segments] == [0, 1, 2, 3]
    assert disk.paths("sync").count(str(directory)) == (3 if policy == "compact" else 0)


def test_a_flush_plan_from_before_a_truncation_is_ignored(directory: DiskPath) -> None:
    log = open_log(directory)
    for _ in range(4):
        append(log, b"x")
    plan = log.flush_plan()
    assert plan is not None
    log.truncate_to(2)
    append(log, b"y")
    append(log, b"z")
    plan.sync()
    log.flushed(plan)
    assert log.recovery_point == 0
    log.flush()
    assert log.recovery_point == 4
    assert log.flush_plan() is None


def test_a_followers_append_keeps_offsets_and_epochs(directory: DiskPath) -> None:
    leader = open_log(directory / "leader")
    for number in range(30):
        append(leader, b"x" * number, b"y", leader_epoch=number // 10, timestamp=NOW + number)
    follower = open_log(directory / "follower", segment_bytes=700)
    while follower.log_end_offset < leader.log_end_offset:
        region = leader.read(follower.log_end_offset, 1000, offset_end=leader.log_end_offset, whole_first_batch=True).region
        follower.append_replicated(memoryview(bytearray(region.read())), now_ms=NOW)
    assert [data for _, data in entries(follower)] == [data for _, data in entries(leader)]
    assert list(follower.leader_epochs) == list(leader.leader_epochs) == [(0, 0), (1, 20), (2, 40)]
    assert len(follower.segments) > 3
    assert max(segment.size for segment in follower.segments) <= 700
    follower.close()
    assert rows(open_log(directory / "follower")) == rows(leader)


def test_a_follower_accepts_a_batch_that_is_larger_than_its_segments(directory: DiskPath) -> None:
    log = open_log(directory, segment_bytes=200)
    content = bytes(batch(b"a", base_offset=0)) + bytes(batch(b"b" * 500, base_offset=1)) + bytes(batch(b"c", base_offset=2))
    log.append_replicated(memoryview(bytearray(content)), now_ms=NOW)
    assert [segment.base_offset for segment in log.segments] == [0, 1, 2]
    assert values(log) == [b"a", b"b" * 500, b"c"]


def test_a_followers_append_refuses_offsets_that_go_back(directory: DiskPath) -> None:
    log = open_log(directory)
    good = bytes(batch(b"a", base_offset=5))
    assert log.append_replicated(memoryview(bytearray(good)), now_ms=NOW).last_offset == 5
    # The leader's log is compacted, so gaps are allowed
    for bad in (good, bytes(batch(b"a", base_offset=7))[:-1] + b"X"):
        with pytest.raises(BrokerError):
            log.append_replicated(memoryview(bytearray(bad)), now_ms=NOW)
    with pytest.raises(BrokerError):
        log.append_replicated(memoryview(bytearray(bytes(batch(b"a", base_offset=6)) * 2)), now_ms=NOW)
    assert log.log_end_offset == 6
    log.append_replicated(memoryview(bytearray(good[:-1])), now_ms=NOW)  # incomplete: no whole batch
    assert log.log_end_offset == 6


def test_storage_errors_name_the_file(directory: DiskPath) -> None:
    log = open_log(directory / "gone")
    append(log, b"a")
    (directory / "gone").remove_tree()
    with pytest.raises(StorageError, match="gone"):
        log.roll(NOW)


def _varint(value: int) -> bytes:
    value = value << 1 ^ value >> 63
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _of_one_record(body: bytes) -> memoryview:
    records = bytearray(batch(b"v"))[:61] + _varint(len(body)) + body
    struct.pack_into(">i", records, 8, len(records) - 12)
    return changed(memoryview(records), 0, b"")


@pytest.mark.parametrize(("body", "strategy"), [
    (b"\0" + _varint(0) + _varint(0) + _varint(1000) + b"kkkk" + _varint(1) + b"v" + _varint(0), Strategy.OFFSET),
    (b"\0" + _varint(0) + _varint(5) + _varint(1) + b"k" + _varint(1) + b"v" + _varint(0), Strategy.OFFSET),
    (b"\0" + _varint(0) + _varint(0) + _varint(1) + b"k" + _varint(1) + b"v" + _varint(100), Strategy.HEADER),
    (b"\0" + _varint(0) + _varint(0) + _varint(1) + b"k" + _varint(1000) + b"v" + _varint(0), Strategy.HEADER),
], ids=["key", "delta", "headers", "value"])  # fmt: skip
def test_a_compacted_log_refuses_records_that_its_cleaner_rejects(directory: DiskPath, body: bytes, strategy: Strategy) -> None:
    log = open_log(directory, cleanup_policy=frozenset({"compact"}), compaction_strategy=strategy, compaction_strategy_header="v")
    refused(log, _of_one_record(body), ErrorCode.INVALID_RECORD)
    well = b"\0" + _varint(0) + _varint(0) + _varint(1) + b"k" + _varint(1) + b"v" + _varint(0)
    log.append(_of_one_record(well), leader_epoch=7, now_ms=NOW)
    assert log.log_end_offset == 1
