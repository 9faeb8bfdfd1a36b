"""One pass: its files, its reports and its failures; and passes on files of Apache Kafka."""

from __future__ import annotations

import errno
import os
import shutil
import struct
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from tests.cleaner.logs import NOW, RETENTION, LogMaker, run, swap
from tests.cleaner.reference import Reference, content_of, parse
from tests.support.compressed_forms import READ_BY_OTHERS, forms
from tests.support.fakes.faulty_disk import FaultyDisk
from tests.support.fakes.unsynced_disk import UnsyncedDisk
from txbroker.log.cleaner.cleaning_job import Done, Failed, FailureKind, Removable, SegmentSpan, Strategy
from txbroker.log.log_results import AbortedTransaction
from txbroker.log.offset_index import OffsetIndex
from txbroker.log.time_index import TimeIndex
from txbroker.log.txn_index import ENTRY
from txbroker.wire.batch import stamp
from txbroker.wire.compression import Codec

GOLDEN = Path(__file__).parent.parent / "golden"


def number(value: int) -> bytes:
    return value.to_bytes(8, "big", signed=True)


def small_log() -> LogMaker:
    log = LogMaker()
    for round_ in range(6):
        log.data([(b"k%d" % key, b"v%d" % round_, NOW - 9000 + round_) for key in range(5)], codec=list(Codec)[round_ % 5])
        if round_ % 2:
            log.roll()
    return log


def cleaned_files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*.cleaned"))


def rows(content: bytes) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for _, records, _ in parse(content) for record in records]


def test_the_latest_record_of_each_key_stays_at_its_offset(tmp_path: Path) -> None:
    log = small_log()
    log.write(tmp_path)
    result = run(log.job(tmp_path))
    assert isinstance(result.end, Done) and result.end.end_offset == 30
    assert (result.mapped.keys, result.mapped.records, result.mapped.missed_keys) == (5, 30, 0)
    assert [group.old_base_offsets for group in result.groups] == [(0, 10, 20)]
    assert rows(result.contents[0]) == [(25 + key, b"k%d" % key, b"v5") for key in range(5)]
    assert cleaned_files(tmp_path) == [f"{0:020d}.{suffix}.cleaned" for suffix in ("index", "log", "timeindex")]
    assert [(one.base_offset, one.records_before, one.records_after, one.obsolete) for one in result.groups[0].yields] == [
        (0, 10, 0, 10), (10, 10, 0, 10), (20, 10, 5, 5)]


def test_unusual_compressed_records_do_not_end_a_pass(tmp_path: Path) -> None:
    """Members, frames and bytes after the data, as Kafka stores them: no damage. All records of these forms have one key."""
    log = LogMaker()
    kept = [form for form in forms() if form.read or form.name in READ_BY_OTHERS]
    for form in kept:
        content = bytearray(form.batch(NOW - 9000))
        stamp(content, 0, log.next_offset, 7)
        log.segments[-1].content += content
        log.next_offset += form.records
    log.write(tmp_path)
    result = run(log.job(tmp_path))
    assert isinstance(result.end, Done) and result.mapped.records == log.next_offset == sum(form.records for form in kept)
    assert [row[:2] for row in rows(result.contents[0])] == [(log.next_offset - 1, b"k")]


def test_the_modification_time_is_that_of_the_last_old_segment(tmp_path: Path) -> None:
    log = small_log()
    for made in log.segments:
        made.modified_ms = NOW - 10_000 + made.base_offset
    log.write(tmp_path)
    run(log.job(tmp_path))
    assert UnsyncedDisk().modified_ms(f"{tmp_path}/{0:020d}.log.cleaned") == NOW - 10_000 + 20


def test_the_indexes_find_every_batch(tmp_path: Path) -> None:
    log = LogMaker()
    for group in range(300):
        log.data([(b"%d" % (group * 10 + n), b"x" * 20, NOW - 5000 + (group * 7919) % 1000) for n in range(3)], gap=group % 3)
    log.write(tmp_path)
    result = run(log.job(tmp_path, index_interval_bytes=500))
    content, path = result.contents[0], f"{tmp_path}/{0:020d}"
    offsets = OffsetIndex(UnsyncedDisk(), f"{path}.index.cleaned", 0)
    times = TimeIndex(UnsyncedDisk(), f"{path}.timeindex.cleaned", 0)
    batches = []
    position = 0
    for header, _, raw in parse(content):
        batches.append((position, header))
        position += len(raw)
    assert (offsets.count > len(content) // 1000 and offsets.count == times.count) or times.count <= offsets.count + 1
    entries = [struct.unpack(">II", offsets.entry(n)) for n in range(offsets.count)]
    starts = {at: header.last_offset for at, header in batches}
    assert all(starts[at] == last for last, at in entries)
    assert all(500 < later[1] - earlier[1] < 500 + 200 for earlier, later in pairwise(entries))
    assert times.last == (max(header.max_timestamp for _, header in batches), next(
        header.last_offset for _, header in batches if header.max_timestamp == max(h.max_timestamp for _, h in batches)))
    for n in range(times.count):
        stamp, last = struct.unpack(">qI", times.entry(n))
        assert max(header.max_timestamp for _, header in batches if header.last_offset <= last) == stamp


def test_segments_are_joined_if_they_fit(tmp_path: Path) -> None:
    log = LogMaker()
    for segment in range(6):
        log.data([(b"%d" % segment, b"x" * 500, NOW - 9000)])
        log.roll()
    log.write(tmp_path)
    size = len(log.segments[0].content)
    result = run(log.job(tmp_path, segment_bytes=2 * size + 10))
    assert [group.old_base_offsets for group in result.groups] == [(0, 1), (2, 3), (4, 5)]
    result = run(log.job(tmp_path, segment_index_bytes=1))
    assert len(result.groups) == 6, "the time indexes exceed the limit of one byte"


def test_a_segment_does_not_span_more_offsets_than_its_index_can(tmp_path: Path) -> None:
    log = LogMaker()
    log.data([(b"a", b"1", NOW)])
    log.roll()
    log.data([(b"b", b"1", NOW)], gap=2**31)
    log.segments[-1].base_offset = log.next_offset - 1
    log.write(tmp_path)
    assert [group.old_base_offsets for group in run(log.job(tmp_path)).groups] == [(0,), (2**31 + 1,)]


def test_a_tombstone_is_removed_after_its_delete_horizon(tmp_path: Path) -> None:
    log = LogMaker()
    log.data([(b"a", b"1", NOW - 9000), (b"b", b"1", NOW - 9000)])
    log.data([(b"a", None, NOW - 8000), (b"c", b"1", NOW - 8000)])
    log.data([(b"d", b"1", NOW - 7000)])
    log.write(tmp_path)
    job = log.job(tmp_path)
    first = run(job)
    header, records, _ = parse(first.contents[0])[1]
    assert header.delete_horizon == NOW + RETENTION
    assert [(record.key, record.value, record.timestamp) for record in records] == [(b"a", None, NOW - 8000), (b"c", b"1", NOW - 8000)]
    swap(tmp_path, first)
    spans = (SegmentSpan(0, 5, first.groups[0].size, NOW),)
    again = replace(job, segments=spans, first_dirty_offset=5, now_ms=NOW + RETENTION - 1)
    assert run(again).contents == first.contents
    gone = run(replace(again, now_ms=NOW + RETENTION))
    assert [key for _, key, _ in rows(gone.contents[0])] == [b"b", b"c", b"d"]
    assert gone.groups[0].yields[0].deleted == 1


def test_a_damaged_batch_ends_the_pass_with_its_position(tmp_path: Path) -> None:
    for dirty in (0, 30):
        log = small_log()
        log.write(tmp_path)
        at = len(log.segments[1].content) - 3
        path = tmp_path / f"{10:020d}.log"
        damaged = bytearray(path.read_bytes())
        damaged[at] ^= 1
        path.write_bytes(damaged)
        job = log.job(tmp_path, segment_bytes=1, first_dirty_offset=dirty)
        result = run(job)
        assert isinstance(result.end, Failed) and result.end.kind is FailureKind.CORRUPT
        assert str(path) in result.end.reason and "position" in result.end.reason
        assert {name[:20] for name in cleaned_files(tmp_path)} == {f"{group.new_base_offset:020d}" for group in result.groups}


@pytest.mark.parametrize("offset", [3, 2, 1, 0, 8, 2**62])
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_an_old_message_at_a_wrong_offset_ends_the_pass(tmp_path: Path, codec: Codec, magic: int, offset: int) -> None:
    """Its CRC does not cover the offset. A pass that went on would write offsets out of order, or those of the next segment."""
    log = LogMaker()
    log.old([(b"a", b"1", NOW), (b"b", b"2", NOW), (b"c", b"3", NOW), (b"d", b"4", NOW)], magic=magic, codec=codec)
    second = len(log.segments[0].content)
    log.old([(b"a", b"5", NOW), (b"e", b"6", NOW)], magic=magic, codec=codec)
    log.old([(b"f", b"7", NOW), (b"g", b"8", NOW)], magic=magic, codec=codec)
    log.roll()
    log.old([(b"h", b"9", NOW)], magic=magic)
    log.write(tmp_path)
    assert isinstance(run(log.job(tmp_path)).end, Done)
    path = tmp_path / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[second : second + 8] = offset.to_bytes(8, "big")
    path.write_bytes(content)
    for name in cleaned_files(tmp_path):
        (tmp_path / name).unlink()
    end = run(log.job(tmp_path)).end
    assert isinstance(end, Failed) and end.kind is FailureKind.CORRUPT
    assert f"{path}, position {second}: " in end.reason


@pytest.mark.parametrize("cut", [1, 12, 30, 61])
def test_every_truncation_is_refused(tmp_path: Path, cut: int) -> None:
    log = small_log()
    log.write(tmp_path)
    path = tmp_path / f"{20:020d}.log"
    path.write_bytes(path.read_bytes()[:-cut])
    end = run(log.job(tmp_path)).end
    assert isinstance(end, Failed) and end.kind is FailureKind.STALE, "the file was truncated"
    job = log.job(tmp_path)
    short_spans = tuple(span._replace(size=path.stat().st_size) if span.base_offset == 20 else span for span in job.segments)
    end = run(replace(job, segments=short_spans)).end
    assert isinstance(end, Failed) and end.kind is FailureKind.CORRUPT
    assert cleaned_files(tmp_path) == []


def test_a_deleted_segment_is_stale_and_not_created(tmp_path: Path) -> None:
    log = small_log()
    log.write(tmp_path)
    (tmp_path / f"{10:020d}.log").unlink()
    end = run(log.job(tmp_path)).end
    assert isinstance(end, Failed) and end.kind is FailureKind.STALE
    assert not (tmp_path / f"{10:020d}.log").exists()
    assert cleaned_files(tmp_path) == []


def test_a_stop_ends_the_pass_between_two_chunks(tmp_path: Path) -> None:
    log = small_log()
    log.write(tmp_path)
    asked = 0

    def stopped() -> bool:
        nonlocal asked
        asked += 1
        return asked > until

    until = 10**9
    run(log.job(tmp_path, segment_bytes=1), stopped=stopped)
    for path in tmp_path.glob("*.cleaned"):
        path.unlink()
    for until in range(asked):  # noqa: B007
        asked = 0
        result = run(log.job(tmp_path, segment_bytes=1), stopped=stopped)
        assert isinstance(result.end, Failed) and result.end.kind is FailureKind.STOPPED
        reported = {f"{group.new_base_offset:020d}" for group in result.groups}
        assert {name[:20] for name in cleaned_files(tmp_path)} == reported
        for path in tmp_path.glob("*.cleaned"):
            path.unlink()


@pytest.mark.parametrize(("error", "kind"), [(errno.EIO, FailureKind.STORAGE), (errno.EMFILE, FailureKind.RESOURCES)])
def test_a_failing_disk_and_missing_descriptors_are_different_failures(
    tmp_path: Path, error: int, kind: FailureKind
) -> None:
    log = small_log()
    log.write(tmp_path)
    disk, path = FaultyDisk(UnsyncedDisk()), f"{tmp_path}/{0:020d}.log.cleaned"
    disk.fail("create", path, error=error)
    end = run(log.job(tmp_path), disk=disk).end
    assert isinstance(end, Failed) and (end.kind, end.reason) == (kind, f"cannot create {path}: {os.strerror(error)}")
    assert cleaned_files(tmp_path) == []


def test_records_above_the_decompression_limit_are_corrupt(tmp_path: Path) -> None:
    log = LogMaker()
    log.data([(b"a", bytes(70 << 20), NOW)], codec=Codec.ZSTD)
    log.write(tmp_path)
    end = run(log.job(tmp_path)).end
    assert isinstance(end, Failed) and end.kind is FailureKind.CORRUPT
    assert "uncompressed" in end.reason


def test_a_pass_is_throttled(tmp_path: Path) -> None:
    log = small_log()
    log.write(tmp_path)
    now, slept = 0.0, []

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        slept.append(seconds)

    result = run(log.job(tmp_path, io_bytes_per_second=1000.0), monotonic=lambda: now, sleep=sleep)
    assert isinstance(result.end, Done)
    assert result.end.seconds == pytest.approx((result.end.bytes_read + result.end.bytes_written) / 1000, abs=0.01)
    assert max(slept) <= 1, "so that a stop is noticed"


def test_a_dry_run_reports_removable_records_and_writes_nothing(tmp_path: Path) -> None:
    log = LogMaker()
    log.data([(b"a", b"1", NOW - 9), (None, b"x", NOW - 8), (b"b", b"1", NOW - 7)])
    log.data([(b"t", b"1", NOW - 6)], producer_id=1, transactional=True)
    log.end(1, committed=False)
    log.data([(b"a", b"2", NOW - 5), (b"c", b"1", NOW - 4)], codec=Codec.ZSTD)
    log.write(tmp_path)
    result = run(log.job(tmp_path, dry=True, producers=()))
    assert [(event.offset, event.key, event.reason, event.kept_offset, event.timestamp)
            for event in result.events if isinstance(event, Removable)] == [
        (0, b"a", "obsolete", 5, NOW - 9), (1, None, "invalid", -1, NOW - 8), (3, b"t", "aborted", -1, NOW - 6)]
    assert isinstance(result.end, Done) and result.groups == []
    assert cleaned_files(tmp_path) == []


def test_strategies_with_records_out_of_order(tmp_path: Path) -> None:
    kept = {}
    for strategy in Strategy:
        directory = tmp_path / strategy.value
        log = LogMaker()
        log.data([(b"k", b"first", NOW - 1)], headers=(("v", number(5)),))
        log.data([(b"k", b"late", NOW - 5)], headers=(("v", number(9)),))
        log.data([(b"k", b"old", NOW - 9)], headers=(("v", number(-3)),))
        log.data([(b"k", b"bad", NOW - 9)], headers=(("v", b"12"),))
        log.data([(b"end", b"", NOW)])
        log.write(directory)
        result = run(log.job(directory, strategy=strategy, header="v"))
        kept[strategy] = [value for _, key, value in rows(result.contents[0]) if key == b"k"]
        assert result.mapped.invalid_headers == (strategy is Strategy.HEADER)
    assert kept == {Strategy.OFFSET: [b"bad"], Strategy.TIMESTAMP: [b"first"], Strategy.HEADER: [b"late"]}


def test_the_last_record_of_the_log_stays_even_if_it_is_obsolete(tmp_path: Path) -> None:
    log = LogMaker()
    log.data([(b"k", b"new", NOW)])
    log.data([(b"k", b"old", NOW - 5)])
    log.write(tmp_path)
    job = log.job(tmp_path, strategy=Strategy.TIMESTAMP)
    result = run(job)
    assert [value for _, _, value in rows(result.contents[0])] == [b"new", b"old"]
    assert result.end == Done(end_offset=1, bytes_read=result.end.bytes_read, bytes_written=result.groups[0].size, seconds=0)
    log.data([(b"other", b"", NOW)])
    log.write(tmp_path)
    result = run(log.job(tmp_path, strategy=Strategy.TIMESTAMP, first_dirty_offset=1))
    assert [value for _, _, value in rows(result.contents[0])] == [b"new", b""]


def test_a_clean_record_may_make_a_dirty_one_obsolete(tmp_path: Path) -> None:
    log = LogMaker()
    log.data([(b"k", b"new", NOW)])
    log.roll()
    log.data([(b"k", b"old", NOW - 5)])
    log.data([(b"end", b"", NOW)])
    log.write(tmp_path)
    result = run(log.job(tmp_path, strategy=Strategy.TIMESTAMP, first_dirty_offset=1))
    assert [value for _, _, value in rows(result.contents[0])] == [b"new", b""]


# Passes that rewrite some segments only


def with_clean_ends(log: LogMaker, directory: Path, clean_ends: dict[int, int], **options: object):
    job = log.job(directory, **options)
    return replace(job, segments=tuple(span._replace(clean_end=clean_ends.get(span.base_offset, 0)) for span in job.segments))


def test_segments_that_are_not_rewritten_stay_and_are_not_joined(tmp_path: Path) -> None:
    log = small_log()
    log.write(tmp_path)
    job = with_clean_ends(log, tmp_path, {0: 20, 10: 20}, first_dirty_offset=20, rewrite=(0,))
    assert [group.old_base_offsets for group in run(job).groups] == [(0,), (20,)]


def test_a_tombstone_stays_while_records_that_it_deletes_may_be_in_other_segments(tmp_path: Path) -> None:
    log = LogMaker()
    log.data([(b"a", b"1", NOW - 9000)])
    log.roll()
    log.data([(b"a", None, NOW - 8000), (b"b", b"1", NOW - 8000)])
    log.roll()
    log.data([(b"c", b"1", NOW - 8000)])
    log.write(tmp_path)
    swap(tmp_path, run(with_clean_ends(log, tmp_path, {0: 1}, rewrite=(), first_dirty_offset=1)))
    sizes = {int(path.stem): path.stat().st_size for path in tmp_path.glob("*.log")}
    assert set(sizes) == {0, 1}, "the two dirty segments are joined"
    job = replace(log.job(tmp_path, first_dirty_offset=4, now_ms=NOW + 2 * RETENTION), rewrite=(1,))
    left = replace(job, segments=(SegmentSpan(0, 1, sizes[0], NOW, 1), SegmentSpan(1, 4, sizes[1], NOW, 4)))
    assert [key for _, key, _ in rows(run(left).contents[1])] == [b"a", b"b", b"c"]
    both = replace(left, rewrite=(0, 1), first_dirty_offset=1)
    assert [key for _, key, _ in rows(run(both).contents[0])] == [b"b", b"c"]


@pytest.mark.parametrize("committed", [True, False])
def test_a_marker_stays_while_data_of_its_transaction_may_be_in_other_segments(tmp_path: Path, committed: bool) -> None:
    log = LogMaker()
    log.data([(b"a", b"1", NOW - 9000)], producer_id=1, transactional=True)
    log.roll()
    log.end(1, committed=committed)
    log.data([(b"b", b"1", NOW - 8000)])
    log.data([(b"c", b"1", NOW - 8000)], producer_id=1, transactional=True)
    log.end(1, committed=True)
    log.data([(b"end", b"1", NOW - 8000)])
    log.write(tmp_path)
    job = with_clean_ends(log, tmp_path, {0: 1}, rewrite=(), first_dirty_offset=1, producers=())
    for _ in range(2):
        result = run(job)
        headers = [header for header, _, _ in parse(result.contents[1])]
        assert [(header.base_offset, header.delete_horizon) for header in headers] == [(offset, None) for offset in range(1, 6)]
        index = tmp_path / f"{1:020d}.txnindex.cleaned"
        assert index.exists() is not committed
        if not committed:
            assert list(ENTRY.iter_unpack(index.read_bytes())) == [(0, 1, 0, 1, 2)]
        swap(tmp_path, result)
        segments = (job.segments[0], job.segments[1]._replace(size=result.groups[0].size))
        job = replace(job, segments=segments, now_ms=job.now_ms + 2 * RETENTION)


# Files of Apache Kafka


@pytest.mark.parametrize("name", sorted(path.name for path in (GOLDEN / "kafka-3.9.1" / "data").glob("s-*-0")))
def test_logs_of_kafka_are_cleaned_like_the_reference(tmp_path: Path, name: str) -> None:
    directory = tmp_path / name
    shutil.copytree(GOLDEN / "kafka-3.9.1" / "data" / name, directory)
    files = sorted(directory.glob("*.log"))
    contents = [path.read_bytes() for path in files]
    bases = [int(path.stem) for path in files]
    end = next((header.last_offset + 1 for content in reversed(contents) for header, _, _ in reversed(parse(content))), 0)
    log = LogMaker()
    log.next_offset = end
    spans = tuple(SegmentSpan(base, following, len(content), NOW)
                  for base, following, content in zip(bases, [*bases[1:], end], contents, strict=True))
    job = replace(log.job(directory), segments=spans, first_uncleanable_offset=end, log_end_offset=end, producers=())
    for path in directory.glob("*.txnindex"):
        for entry in ENTRY.iter_unpack(path.read_bytes()):
            log.aborted.append(AbortedTransaction(*entry[1:]))
    reference = Reference(job, contents, log.aborted)
    reference.build_map()
    result = run(job)
    assert isinstance(result.end, Done), result.end
    originals = {raw for content in contents for _, _, raw in parse(content)}
    wanted = [one for segment in reference.left() for one in segment]
    assert [one for group in result.groups for one in content_of(result.contents[group.new_base_offset], originals)] == wanted


@pytest.mark.parametrize("strategy", [Strategy.TIMESTAMP, Strategy.HEADER])
def test_records_below_the_log_start_offset_do_not_replace_others(tmp_path: Path, strategy: Strategy) -> None:
    """They cannot be read any more: no readable record may be removed because of them."""
    log = LogMaker()
    log.data([(b"k", b"below the start", NOW - 100)], headers=(("version", number(9)),))
    log.data([(b"x", b"x", NOW - 100)])
    log.data([(b"k", b"older, and live", NOW - 5000)], headers=(("version", number(1)),))
    for key in (b"z", b"zz"):
        log.roll()
        log.data([(key, b"z", NOW)])
    log.write(tmp_path)
    result = run(log.job(tmp_path, strategy=strategy, header="version", log_start_offset=1, first_dirty_offset=1))
    assert isinstance(result.end, Done)
    left = [record.offset for content in result.contents.values() for _, records, _ in parse(content) for record in records]
    assert 2 in left
