"""Reading: the bytes returned, their bounds, and regions that stay readable after deletion and truncation."""

from __future__ import annotations

import pytest

from tests.log.support import NOW, append, batch, fill, open_log, values
from tests.support.fakes.disk_path import DiskPath
from tests.support.fakes.worker import Worker
from txbroker.errors import BrokerError, ErrorCode
from txbroker.log.disk import Disk
from txbroker.log.log import Log
from txbroker.wire import legacy
from txbroker.wire.batch import read_header
from txbroker.wire.entries import SIZE_MIN
from txbroker.wire.records import Record


def layout(log: Log, disk: Disk) -> list[tuple[int, int, int, int, int]]:
    """All batches as (base offset, last offset, base offset of the segment, position, size), from the files."""
    found = []
    for segment in log.segments:
        content, position = disk.read(segment.path(".log")) or b"", 0
        while position < len(content):
            header = read_header(content, position)
            found.append((header.base_offset, header.last_offset, segment.base_offset, position, header.size))
            position += header.size
    return found


@pytest.mark.parametrize("reopened", [False, True])
def test_every_offset_size_and_end(directory: DiskPath, reopened: bool) -> None:
    log = open_log(directory, segment_bytes=1000, index_interval_bytes=200)
    for number in range(24):
        fill(log, 1, per_batch=1 + number % 4, size=10 + 7 * (number % 5))
    if reopened:
        log.close()
        log = open_log(directory)
    batches = layout(log, directory.disk)
    assert len(log.segments) > 3
    end = log.log_end_offset
    for offset in range(end):
        first = next(found for found in batches if found[1] >= offset)
        for offset_end in {end, offset, offset + 1, offset + 7, first[1] + 1, end - 3}:
            below = [found for found in batches if found[2] == first[2] and found[0] >= first[0] and found[1] < offset_end]
            for bytes_max in (0, 1, first[4] - 1, first[4], first[4] + 5, 10**6):
                for whole in (False, True):
                    read = log.read(offset, bytes_max, offset_end=offset_end, whole_first_batch=whole)
                    available = sum(found[4] for found in below)
                    if not below or (bytes_max < first[4] and not whole):
                        assert len(read.region) == 0
                        assert read.first_batch_bytes == (first[4] if below else 0)
                        continue
                    assert read.region.position == first[3]
                    assert len(read.region) == min(available, max(bytes_max, first[4] if whole else 0))
                    assert read.first_batch_bytes == first[4]
                    assert below[-1][1] < read.end_offset <= max(offset_end, offset)
    assert len(log.read(end, 1000, offset_end=end).region) == 0


def test_out_of_range(directory: DiskPath) -> None:
    log = open_log(directory)
    fill(log, 5)
    log.advance_start(2)
    for offset in (-1, 0, 1, 6):
        with pytest.raises(BrokerError) as caught:
            log.read(offset, 1000, offset_end=5)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert len(log.read(2, 1000, offset_end=5).region)


def test_a_start_within_a_batch_stays_readable(directory: DiskPath) -> None:
    log = open_log(directory)
    append(log, b"a", b"b", b"c")
    append(log, b"d")
    assert log.advance_start(1)
    assert not log.advance_start(1)
    assert not log.advance_start(0)
    assert values(log) == [b"b", b"c", b"d"]
    log.close()
    assert values(open_log(directory, log_start_offset=1)) == [b"b", b"c", b"d"]


def test_gaps_within_and_between_segments(directory: DiskPath) -> None:
    log = open_log(directory)
    for base in (3, 10, 20, 40):
        log.append_replicated(batch(str(base).encode(), base_offset=base), now_ms=NOW)
        if base == 10:
            log.roll(NOW)
    assert [segment.base_offset for segment in log.segments] == [0, 11]
    for offset, found in ((0, 3), (3, 3), (4, 10), (10, 10), (11, 20), (15, 20), (21, 40), (40, 40)):
        assert read_header(log.read(offset, 1000, offset_end=41).region.read()).base_offset == found
        assert len(log.read(offset, 1000, offset_end=found).region) == 0
    # The first segment ends before the next one starts: offsets between them are read from the next one.
    log = open_log(directory / "between")
    log.append_replicated(batch(b"x", base_offset=0), now_ms=NOW)
    log.append_replicated(batch(b"y", base_offset=2**31 + 5), now_ms=NOW)
    assert [segment.base_offset for segment in log.segments] == [0, 2**31 + 5]
    assert read_header(log.read(1, 1000, offset_end=log.log_end_offset).region.read()).base_offset == 2**31 + 5
    # An empty segment is replaced when the base offset is too far away for relative offsets.
    log = open_log(directory / "far")
    log.append_replicated(batch(b"y", base_offset=2**31 + 5), now_ms=NOW)
    assert [segment.base_offset for segment in log.segments] == [2**31 + 5]


def test_regions_survive_deletion_and_truncation_of_later_batches(directory: DiskPath) -> None:
    worker = Worker()
    log = open_log(directory, later=worker, retention_bytes=0)
    fill(log, 10)
    region = log.read(0, 10**6, offset_end=5).region
    expected = region.read()
    log.truncate_to(7)
    assert region.read() == expected
    log.delete_expired(NOW, 7)
    worker.wait(60_000)
    assert [segment.base_offset for segment in log.segments] == [7]
    assert len(directory.iterdir()) < 8
    assert region.read() == expected
    log.close()
    assert region.read() == expected


def test_a_truncation_drops_known_positions(directory: DiskPath) -> None:
    log = open_log(directory)
    for number in range(600):  # more than the number of known positions
        append(log, b"x" * (number % 50))
    for offset in (0, 300, 599, 450):
        assert read_header(log.read(offset, 10, offset_end=600, whole_first_batch=True).region.read()).base_offset == offset
    log.truncate_to(400)
    append(log, b"long" * 100)
    append(log, b"y")
    assert read_header(log.read(401, 10, offset_end=402, whole_first_batch=True).region.read()).base_offset == 401
    assert values(log, 400) == [b"long" * 100, b"y"]


def test_the_smallest_possible_message_is_found_at_the_end(directory: DiskPath) -> None:
    log = open_log(directory)
    for offset in range(3):
        message = legacy.build([Record(offset, -1, None, None)], magic=0)
        assert len(message) == SIZE_MIN
        log.append_replicated(memoryview(bytearray(message)), now_ms=NOW)
    log = open_log(directory)
    assert [log.read(offset, 1000, offset_end=3).region.position for offset in range(3)] == [0, 26, 52]
    assert [place and place.position for place in map(log.segments[0].find, range(4))] == [0, 26, 52, None]
