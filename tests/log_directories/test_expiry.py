"""Expiry of one log, cases that the model does not have: no timestamps, damage, compacted topics, failures, the lag."""

from __future__ import annotations

import errno

from tests.log.support import batch, corrupt, values
from tests.log_directories.support import NOW, T0, DirectoryHarness, append
from tests.support.fakes.disk_path import DiskPath
from txbroker.errors import StorageError
from txbroker.log.log import Log
from txbroker.log.log_expiry import Expired, lag_ms
from txbroker.wire.compression import Codec

HOUR = 3_600_000
COMPACT = frozenset({"compact"})


def expire(broker: DirectoryHarness, log: Log, now_ms: int, high_watermark: int | None = None) -> int:
    """Run a pass; the log start offset afterwards."""
    reported: list[Expired | None] = []
    end = log.log_end_offset if high_watermark is None else high_watermark
    broker.directories.expire(log.topic_partition, now_ms, end, reported.append)
    broker.worker.run()
    expired, = reported
    assert expired is not None and expired.log_start_offset == log.log_start_offset
    return log.log_start_offset


def precise(path: DiskPath, **options: object) -> tuple[DirectoryHarness, Log]:
    broker = DirectoryHarness(path, **{"retention_ms": HOUR, "retention_precise": True, **options})
    broker.start()
    return broker, broker.create(T0)


def hourly(log: Log, count: int = 5) -> None:
    for number in range(count):
        append(log, b"%d" % number, timestamp=NOW + number * HOUR)


def test_kafkas_rule_keeps_what_shares_a_segment_with_a_newer_record(directory: DiskPath) -> None:
    broker, log = precise(directory, retention_precise=False)
    hourly(log)
    assert expire(broker, log, NOW + 5 * HOUR) == 0
    assert lag_ms(log, NOW + 5 * HOUR) == 4 * HOUR
    # An altered topic configuration takes effect with the next pass.
    log.reconfigure(DirectoryHarness(directory, retention_ms=HOUR, retention_precise=True).config)
    assert expire(broker, log, NOW + 5 * HOUR) == 4
    assert lag_ms(log, NOW + 5 * HOUR) == 0


def test_a_record_expires_one_millisecond_after_its_retention(directory: DiskPath) -> None:
    broker, log = precise(directory)
    hourly(log)
    assert expire(broker, log, NOW + HOUR) == 0
    assert expire(broker, log, NOW + HOUR + 1) == 1
    assert expire(broker, log, NOW + 2 * HOUR) == 1
    assert expire(broker, log, NOW + 2 * HOUR + 1) == 2


def test_a_start_within_a_compressed_batch_can_be_read(directory: DiskPath) -> None:
    for codec in Codec:
        broker, log = precise(directory / codec.name)
        log.append(batch(b"a", b"b", b"c", b"d", step_ms=HOUR, codec=codec), leader_epoch=0, now_ms=NOW)
        assert expire(broker, log, NOW + 2 * HOUR + 1) == 2
        assert values(log) == [b"c", b"d"]
        assert log.delete_expired(NOW + 2 * HOUR + 1, 4) == 0  # bytes are freed with whole segments only
        assert lag_ms(log, NOW + 3 * HOUR + 5) == 5


def test_records_above_the_high_watermark_are_kept(directory: DiskPath) -> None:
    broker, log = precise(directory)
    hourly(log)
    assert expire(broker, log, NOW + 99 * HOUR, 3) == 3
    assert expire(broker, log, NOW + 99 * HOUR, 3) == 3
    assert expire(broker, log, NOW + 99 * HOUR, 5) == 5


def test_records_without_timestamps_expire_with_those_before_them(directory: DiskPath) -> None:
    broker, log = precise(directory, index_interval_bytes=0)
    for timestamp in (-1, -1, NOW, -1, -1, NOW + HOUR, -1):
        append(log, b"x", timestamp=timestamp)
    assert expire(broker, log, NOW + 1) == 0
    assert expire(broker, log, NOW + HOUR) == 0
    assert expire(broker, log, NOW + HOUR + 1) == 5
    assert expire(broker, log, NOW + 2 * HOUR + 1) == 7


def test_a_segment_without_timestamps_expires_by_file_modification_time(directory: DiskPath) -> None:
    broker, log = precise(directory)
    append(log, b"x", b"y", timestamp=-1)
    written_ms = directory.disk.modified_ms(log.segments[0].path(".log"))
    log.roll(NOW)
    append(log, b"z", timestamp=written_ms + 99 * HOUR)
    assert expire(broker, log, written_ms + HOUR - 1000) == 0
    assert expire(broker, log, written_ms + HOUR + 1000) == 2


def test_records_that_are_older_than_the_largest_timestamp_before_them(directory: DiskPath) -> None:
    broker, log = precise(directory, index_interval_bytes=0)
    append(log, b"first", timestamp=NOW + HOUR)
    for number in range(500):
        append(log, bytes(100), timestamp=NOW + number)
    append(log, b"last", timestamp=NOW + 3 * HOUR)
    assert expire(broker, log, NOW + 2 * HOUR) == 0
    assert expire(broker, log, NOW + 2 * HOUR + 1) == 501


def test_wrong_index_entries_are_detected(directory: DiskPath) -> None:
    broker, log = precise(directory, index_interval_bytes=0)
    hourly(log, 20)
    broker.stop()
    index = DiskPath(directory.disk, log.segments[0].path(".index"))
    for position in (7, 60, 10**6):
        data = bytearray(index.read_bytes())
        for at in range(4, len(data), 8):
            data[at : at + 4] = position.to_bytes(4, "big")
        index.write_bytes(data)
        again = DirectoryHarness(directory, retention_ms=HOUR, retention_precise=True)
        again.start()
        found = again.directories.get(T0)
        assert found is not None
        assert expire(again, found, NOW + 10 * HOUR) == 9
        again.stop()
        index.write_bytes(data)


def test_expiry_stops_at_a_damaged_batch(directory: DiskPath) -> None:
    broker, log = precise(directory, index_interval_bytes=1 << 20)
    for number in range(4):
        data = batch(b"a", b"b", timestamp=NOW + number * HOUR, step_ms=10, codec=Codec.GZIP)
        log.append(data, leader_epoch=0, now_ms=NOW)
    place = log.segments[0].find(4)
    assert place is not None
    file = DiskPath(directory.disk, log.segments[0].path(".log"))
    corrupt(file, place.position + 61, b"no gzip")
    assert expire(broker, log, NOW + 2 * HOUR) == 2
    assert expire(broker, log, NOW + 3 * HOUR + 5) == 4
    assert expire(broker, log, NOW + 3 * HOUR + 11) == 6  # all records have expired, by the header of the batch
    corrupt(file, place.position + 8, b"\0\0\0\1")
    broker, log = precise(directory / "b", index_interval_bytes=1 << 20)
    hourly(log)
    place = log.segments[0].find(2)
    assert place is not None
    corrupt(DiskPath(directory.disk, log.segments[0].path(".log")), place.position + 8, b"\0\0\0\1")
    assert expire(broker, log, NOW + 4 * HOUR) == 2  # up to the unreadable batch
    assert expire(broker, log, NOW + 5 * HOUR + 1) == 5  # Kafka's rule for the whole segment


def test_of_a_compacted_topic_only_records_below_the_start_are_deleted(directory: DiskPath) -> None:
    """KAFKA-7400: for example a topic that was compacted after records were deleted."""
    broker, log = precise(directory, cleanup_policy=COMPACT)
    for _ in range(3):
        hourly(log, 2)
        log.roll(NOW)
    assert expire(broker, log, NOW + 99 * HOUR) == 0
    assert lag_ms(log, NOW + 99 * HOUR) is None
    log.advance_start(3)
    assert expire(broker, log, NOW + 99 * HOUR) == 3
    assert [segment.base_offset for segment in log.segments] == [2, 4, 6]


def test_logs_that_never_expire_or_are_empty_have_no_lag(directory: DiskPath) -> None:
    broker, log = precise(directory, retention_ms=-1)
    hourly(log)
    assert expire(broker, log, NOW + 99 * HOUR) == 0
    assert lag_ms(log, NOW + 99 * HOUR) is None
    broker, log = precise(directory / "b")
    assert lag_ms(log, NOW) == 0
    hourly(log)
    assert lag_ms(log, NOW) is None  # until the next pass
    expire(broker, log, NOW)
    assert lag_ms(log, NOW) == 0


def test_a_log_that_changes_during_the_search_is_left_to_the_next_pass(directory: DiskPath) -> None:
    broker, log = precise(directory)
    hourly(log)
    reported: list[Expired | None] = []
    broker.directories.expire(T0, NOW + 3 * HOUR, 5, reported.append)
    log.truncate_to(1)
    broker.worker.run()
    assert reported == [Expired(0, 0, 0, 0)]
    hourly(log)
    broker.directories.expire(T0, NOW + 3 * HOUR, 5, reported.append)
    log.advance_start(1)
    broker.worker.run()
    assert reported[1:] == [Expired(0, 1, 0, 1)]
    broker.directories.expire(T0, NOW + 4 * HOUR, 5, reported.append)
    broker.directories.delete(T0)
    broker.worker.run()
    assert reported[2:] == [None]


def test_a_disk_failure_during_the_search_is_reported_to_the_caller(directory: DiskPath) -> None:
    broker, log = precise(directory)
    hourly(log)
    reported: list[Expired | None] = []
    broker.directories.expire(T0, NOW + 3 * HOUR, 5, reported.append)
    broker.directories.fail(log, StorageError("gone"))
    broker.worker.run()
    assert reported == [None]
    broker.directories.expire(T0, NOW + 3 * HOUR, 5, reported.append)
    assert reported == [None, None]


def test_retention_goes_on_after_a_sync_of_names_that_lacked_a_descriptor(directory: DiskPath) -> None:
    """Without an append or a roll, whose syncs would make up for it. A follower does not fetch while the names are not synced."""
    broker = DirectoryHarness(directory, segment_bytes=200, retention_bytes=1)
    broker.start()
    log = broker.create(T0)
    for number in range(12):
        append(log, b"%d" % number * 30)
        broker.worker.run()
    log.flush()
    broker.disk.fail("sync", log.directory, error=errno.EMFILE, times=3)
    reported: list[Expired | None] = []
    broker.directories.expire(T0, NOW, log.log_end_offset, reported.append)
    broker.worker.run()
    assert reported == [None] and log.names_unsynced
    broker.worker.wait(3000)
    assert not log.names_unsynced and broker.directories.online()
    assert expire(broker, log, NOW) == log.segments[-1].base_offset
    assert len(log.segments) == 1
