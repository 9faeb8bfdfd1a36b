"""Cleaned files read by Apache Kafka's dump tool and kafka-python."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kafka.record.memory_records import MemoryRecords

from tests.cleaner.logs import NOW, RETENTION, LogMaker, Result, run, swap
from tests.support.dump import dump_directory
from txbroker.log.cleaner.cleaning_job import Done, SegmentSpan, Strategy
from txbroker.wire.batch import BatchHeader
from txbroker.wire.compression import Codec
from txbroker.wire.entries import Scan, read_records


def mixed_log() -> LogMaker:
    """All codecs, formats and kinds of batches with repeated keys, in segments of some kilobytes."""
    log = LogMaker()
    for number in range(60):
        stamp = NOW - 90_000 + 1000 * number
        some: list[tuple[bytes | None, bytes | None, int]] = [
            (b"key %d" % ((number * 7 + n * n) % 50), None if (number + n) % 9 == 0 else b"value %d " % n * 8, stamp + n * 13 % 7)
            for n in range(20)]
        codec = list(Codec)[number % 5]
        match number % 6:
            case 0 if number < 20:
                log.old(some, magic=number // 6 % 2, codec=Codec.NONE if codec is Codec.ZSTD else codec)
            case 1 | 2:
                log.data(some, producer_id=1 + number % 3, codec=codec)
            case 3:
                log.data(some, producer_id=4, transactional=True, codec=codec)
                log.data(some[:3], producer_id=5, transactional=True)
                log.end(4, committed=number % 4 == 1, timestamp=stamp)
                log.end(5, committed=number % 4 == 3, timestamp=stamp)
            case 4:
                log.data(some, codec=codec, log_append_time=stamp)
            case _:
                log.data(some, codec=codec)
        if number % 10 == 9:
            log.roll()
    return log


def passes(directory: Path, log: LogMaker, **options: Any) -> list[Result]:
    """Three passes: over the first half, over everything, and after all delete horizons."""
    results, dirty = [], 0
    for middle, now in ((log.segments[3].base_offset, NOW), (log.next_offset, NOW + 1), (log.next_offset, NOW + 9 * RETENTION)):
        bases = sorted(int(path.stem) for path in directory.glob("*.log"))
        spans = tuple(SegmentSpan(base, end, (directory / f"{base:020d}.log").stat().st_size, NOW)
                      for base, end in zip(bases, [*bases[1:], log.next_offset], strict=True) if base < middle)
        job = log.job(directory, first_dirty_offset=dirty, first_uncleanable_offset=middle, now_ms=now, **options)
        result = run(replace(job, segments=spans))
        assert isinstance(result.end, Done), result.end
        swap(directory, result)
        dirty = result.end.end_offset
        results.append(result)
    return results


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.process
def test_kafkas_dump_tool_finds_no_fault(tmp_path: Path, strategy: Strategy) -> None:
    directory = tmp_path / "t-0"
    log = mixed_log()
    log.write(directory)
    passes(directory, log, strategy=strategy, header="none", segment_bytes=20_000)
    dumped = dump_directory(tmp_path)["t-0"]
    offsets = []
    for path in sorted(directory.glob("*.log")):
        content = path.read_bytes()
        for at, header in Scan(content, check_crc=True):
            offsets += [record.offset for record in read_records(content, at, header, 10**8)]
    assert dumped.offsets == offsets
    assert len(offsets) > 30


def test_kafka_python_reads_what_we_read(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    log = mixed_log()
    log.write(directory)
    passes(directory, log)
    for path in directory.glob("*.log"):
        content = path.read_bytes()
        theirs = []
        for batch in MemoryRecords(content):
            assert batch.validate_crc()
            theirs += [(record.offset, record.timestamp, record.key, record.value) for record in batch]
        ours = [(record.offset, None if record.timestamp == -1 and not isinstance(header, BatchHeader) else record.timestamp,
                 record.key, record.value)
                for at, header in Scan(content, check_crc=True) for record in read_records(content, at, header, 10**8)]
        assert theirs == ours
