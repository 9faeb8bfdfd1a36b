"""Recovery after a crash: incomplete and damaged files, interrupted deletions and swaps, wrong checkpoints."""

from __future__ import annotations

import logging
import random

import pytest

from simulation.memory_disk import MemoryDisk
from tests.log.support import NOW, append, batch, corrupt, end_transaction, entries, fill, headers, names, open_log, rows, values
from tests.support.fakes.disk_path import DiskPath
from tests.support.fakes.faulty_disk import FaultyDisk, Killed
from txbroker.log.log import Log
from txbroker.log.log_results import Origin

CHANCE = random.Random(7)


def crashed(path: DiskPath, recovery_point: int = 0) -> Log:
    return open_log(path, clean=False, recovery_point=recovery_point)


def made(path: DiskPath) -> tuple[list[tuple[int, int]], list[bytes | None]]:
    """A log of three segments, killed: the batches of the last one as (position, size), and all values."""
    log = open_log(path, index_interval_bytes=100)
    for number in range(12):
        if number in (4, 8):
            log.roll(NOW)
        append(log, *(f"{number}.{index}".encode() for index in range(1 + number % 3)), timestamp=NOW + number)
    batches, position = [], 0
    for _, data in entries(log, log.segments[-1].base_offset):
        batches.append((position, len(data)))
        position += len(data)
    return batches, values(log)


def test_an_incomplete_last_batch_is_truncated(directory: DiskPath, caplog: pytest.LogCaptureFixture) -> None:
    batches, everything = made(directory / "log")
    size = sum(size for _, size in batches)
    original = open_log(directory / "log", clean=False)
    base = original.segments[-1].base_offset
    offsets = [header.base_offset for header in headers(original) if header.base_offset >= base] + [original.log_end_offset]
    cuts = {0, 1, *(max(0, position + shift) for position, _ in batches for shift in (-1, 0, 1, 11, 12, 16, 60, 61)), *range(0, size, 37)}
    for cut in sorted(cut for cut in cuts if cut <= size):
        path = (directory / "log").copy_to(directory / f"cut{cut}")
        (path / f"{base:020d}.log").truncate(cut)
        caplog.clear()
        with caplog.at_level(logging.WARNING, "txbroker.log"):
            log = crashed(path)
        whole = sum(position + size <= cut for position, size in batches)
        end = offsets[whole]
        assert log.log_end_offset == end
        torn = cut - sum(size for _, size in batches[:whole])
        reported = [record.getMessage() for record in caplog.records if ": removing " in record.getMessage()]
        assert len(reported) == (torn > 0)
        assert all(f"{torn} bytes" in line and f"from offset {end} on" in line for line in reported)
        assert append(log, b"more").first_offset == end
        log.close()
        assert values(open_log(path)) == [*everything[:end], b"more"]


@pytest.mark.parametrize("base", [0, 7, 15])
def test_the_log_ends_before_a_damaged_batch(directory: DiskPath, base: int) -> None:
    _, everything = made(directory / "log")
    original = directory / "log" / f"{base:020d}.log"
    content = original.read_bytes()
    borders = [0]
    for _, data in entries(crashed(directory / "log"), base):
        borders.append(borders[-1] + len(data))
    for at in sorted(CHANCE.sample(range(len(content)), 30)):
        position = max(border for border in borders if border <= at)
        inside = at - position
        if inside < 8 or 12 <= inside < 16:
            continue  # base offset and leader epoch: the CRC does not cover them
        path = (directory / "log").copy_to(directory / f"at{at}")
        corrupt(path / original.name, at, bytes([content[at] ^ (1 << CHANCE.randrange(8))]))
        log = crashed(path)
        assert values(log) == everything[: log.log_end_offset]
        assert log.segments[-1].base_offset == base
        assert log.size - sum(segment.size for segment in log.segments[:-1]) == position
        append(log, b"more")
        assert values(log)[-1] == b"more"


@pytest.mark.parametrize("field", [b"\0" * 8, b"\0\0\0\0\0\0\0\x03", b"\xff" * 8, b"\x7f" + b"\xff" * 7, b"\0\0\0\2\0\0\0\0"])
def test_the_log_ends_before_an_impossible_base_offset(directory: DiskPath, field: bytes) -> None:
    batches, everything = made(directory)
    corrupt(directory / f"{15:020d}.log", batches[2][0], field)
    log = crashed(directory)
    assert log.segments[-1].size == batches[2][0]
    assert values(log) == everything[: log.log_end_offset]


def test_what_is_read_again_counts_as_unsynced(directory: DiskPath) -> None:
    """The recovery point on the disk may be older than a truncation: another batch is there now, and nothing says that it was synced."""
    made(directory)
    log = crashed(directory, recovery_point=9)
    assert log.recovery_point == 7
    assert [segment.base_offset for segment in log.segments] == [0, 7, 15]


@pytest.mark.parametrize("truncated", ["by recovery", "by a recovery that is killed", "by the log"])
def test_deleted_segments_do_not_return_after_what_was_cut(truncated: str) -> None:
    """A loss of power after a truncation may bring deleted segments back, but not without the end of the segment before them."""
    for seed in range(30):
        disk = MemoryDisk()
        directory = DiskPath(disk, "/data").made()
        disk.sync("/")
        _, everything = made(directory)
        log = open_log(directory, clean=False, later=lambda *_: None)
        log.flush()
        assert [segment.base_offset for segment in log.segments] == [0, 7, 15]
        if truncated == "by the log":
            log.truncate_to(9)
        else:
            end = (directory / f"{7:020d}.log").size()
            (directory / f"{7:020d}.log").truncate(end - 1)
            if truncated == "by a recovery that is killed":
                killed = FaultyDisk(disk)
                killed.fail("sync", error=Killed)
                with pytest.raises(Killed):
                    open_log(directory, disk=killed, clean=False)
            assert crashed(directory).log_end_offset < 15
        disk.power_cut(random.Random(seed))
        again = crashed(directory)
        assert values(again) == everything[: again.log_end_offset]


@pytest.mark.parametrize("left", [0, 2, 4])
def test_the_log_ends_at_a_gap_that_a_loss_of_power_left(directory: DiskPath, left: int) -> None:
    """A closed segment that was not synced lost its end, and the next one survived: a follower that went on would never fetch the gap."""
    log = open_log(directory)
    for _ in range(3):
        fill(log, 4)
        log.roll(NOW)
    everything = values(log)
    log.flush()
    second = directory / f"{4:020d}.log"
    second.truncate(second.size() * left // 4)
    again = crashed(directory, recovery_point=4)
    end = 4 + left if left < 4 else 12
    assert (again.log_end_offset, values(again), again.missing) == (end, everything[:end], [])
    assert names(directory, ".snapshot") == [f"{base:020d}.snapshot" for base in (4, 8, 12) if base <= end]
    assert append(again, b"more").first_offset == end
    again.close()
    assert values(open_log(directory)) == [*everything[:end], b"more"]


@pytest.mark.parametrize("where", ["before", "after"])
def test_the_gaps_of_a_log_that_was_compacted_stay(directory: DiskPath, where: str) -> None:
    """Its recovery point may be lost. There are gaps between batches of a segment, too, which no loss of power leaves."""
    log = open_log(directory, cleanup_policy=frozenset({"compact"}))
    for base in (0, 4, 8, 12):
        for offset in (0, 2) if base == (0 if where == "before" else 12) else (0, 1):
            log.append_replicated(batch(b"kept", base_offset=base + offset), now_ms=NOW)
        log.roll(NOW)
    everything = rows(log)
    log.flush()
    assert rows(crashed(directory)) == everything


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("gap", [3, 2**31 - 2, 2**31 - 1, 2**31, 2**40])
def test_a_gap_at_which_a_follower_rolled_stays(directory: DiskPath, gap: int, mirrored: bool) -> None:
    """The topic was compacted or mirrored earlier, so its configuration does not show that there may be gaps."""
    log = open_log(directory, segment_bytes=200, txbroker_mirror_source="there" if mirrored else "")
    for offset in (0, 1, 1 + gap, 2 + gap):
        sent = batch(bytes(100), base_offset=offset)
        if mirrored:
            log.append(sent, 0, NOW, Origin.MIRROR)
        else:
            log.append_replicated(sent, now_ms=NOW)
    assert len(log.segments) == 4
    everything = rows(log)
    assert [row[0] for row in everything] == [0, 1, 1 + gap, 2 + gap]
    for again in (crashed(directory), crashed(directory, recovery_point=2)):
        assert (rows(again), again.log_end_offset, again.missing) == (everything, 3 + gap, [])


def test_a_gap_below_the_recovery_point_is_damage(directory: DiskPath) -> None:
    """The segments after it may have the only copies of their records."""
    log = open_log(directory)
    for _ in range(3):
        fill(log, 4)
        log.roll(NOW)
    everything = values(log)
    log.flush()
    second = directory / f"{4:020d}.log"
    second.truncate(second.size() // 2)
    again = crashed(directory, recovery_point=7)
    assert values(again) == everything[:6] + everything[8:]
    assert [(missing.start, missing.end) for missing in again.missing] == [(6, 8)]


def test_segments_below_the_recovery_point_are_not_read(directory: DiskPath) -> None:
    _, everything = made(directory)
    corrupt(directory / f"{0:020d}.log", 70, b"\xff")
    for recovery_point in (30, 15, 7):
        log = crashed(directory, recovery_point=recovery_point)
        assert (log.log_end_offset, len(log.segments)) == (len(everything), 3)
    log = crashed(directory, recovery_point=6)
    assert (log.log_end_offset, log.recovery_point, len(log.segments)) == (0, 0, 1)
    assert names(directory, ".log") == [f"{0:020d}.log"]
    assert names(directory, ".deleted") == []


def test_an_incomplete_last_batch_is_truncated_after_a_clean_shutdown(directory: DiskPath) -> None:
    log = open_log(directory)
    fill(log, 5)
    expected = values(log)
    log.close()
    (directory / f"{0:020d}.log").truncate(log.size - 1)
    assert values(open_log(directory)) == expected[:4]


def test_a_damaged_transaction_index_is_rebuilt(directory: DiskPath) -> None:
    log = open_log(directory)
    for number in range(4):
        append(log, b"x", producer_id=5, producer_epoch=0, base_sequence=number, transactional=True)
        end_transaction(log, 5, committed=False)
        log.roll(NOW)
    expected = log.aborted_transactions(0, 8)
    assert len(expected) == 4
    log.close()
    for damage in (b"", b"\0\0\0", b"\xff" * 34):
        (directory / f"{2:020d}.txnindex").write_bytes(damage)
        log = open_log(directory)
        if damage:
            assert log.aborted_transactions(0, 8) == expected
        log.close()


def test_rebuilt_indexes_are_synced_before_the_recovery_point_passes_them() -> None:
    """The next loss of power would take a transaction index away, and a recovery that begins above it would not notice."""
    for seed in range(30):
        disk = MemoryDisk()
        directory = DiskPath(disk, "/data").made()
        disk.sync("/")
        log = open_log(directory, later=lambda *_: None)
        for number in range(4):
            append(log, b"x", producer_id=5, producer_epoch=0, base_sequence=number, transactional=True)
            end_transaction(log, 5, committed=False)
            log.roll(NOW)
        expected = log.aborted_transactions(0, 8)
        log = open_log(directory, clean=False, recovery_point=0)
        log.flush()
        disk.power_cut(random.Random(seed))
        again = open_log(directory, clean=False, recovery_point=log.recovery_point)
        assert again.aborted_transactions(0, 8) == expected


def test_an_end_below_the_start_empties_the_log(directory: DiskPath) -> None:
    log = open_log(directory)
    fill(log, 5)
    append(log, b"x", producer_id=1, producer_epoch=0, base_sequence=0)
    log.close()
    log = open_log(directory, log_start_offset=100)
    assert (log.log_start_offset, log.log_end_offset, len(log.producers), len(log.leader_epochs)) == (100, 100, 0, 0)
    assert names(directory, ".log", ".snapshot") == [f"{100:020d}.log"]
    assert append(log, b"x").first_offset == 100


def test_the_log_start_offset_is_not_below_the_first_segment(directory: DiskPath) -> None:
    log = open_log(directory, log_start_offset=7)
    fill(log, 5)
    log.close()
    assert open_log(directory, log_start_offset=9).log_start_offset == 9
    assert open_log(directory, log_start_offset=0).log_start_offset == 7


def test_leftover_files_are_removed_and_other_files_kept(directory: DiskPath) -> None:
    log = open_log(directory)
    fill(log, 5)
    log.roll(NOW)
    log.close()
    strangers = ["notes.txt", "0005.log", "txbroker-mark", "leader-epoch-checkpoint.tmp"]
    leftovers = [f"{0:020d}.log.deleted", f"{3:020d}.snapshot.deleted", f"{0:020d}.log.cleaned", f"{0:020d}.timeindex.cleaned",
                 f"{3:020d}.index", f"{9:020d}.timeindex", f"{4:020d}.txnindex"]  # fmt: skip
    before = names(directory)
    for name in strangers + leftovers:
        (directory / name).write_bytes(b"x")
    assert len(values(open_log(directory))) == 5
    assert names(directory) == sorted([*before, *strangers, "txbroker-missing"]), "an index has an offset above the end of the log"


def cleaned(path: DiskPath, base: int, *numbers: int) -> None:
    """Write the files of a cleaned segment with batches at these offsets, ready for the swap."""
    content = b"".join(bytes(batch(b"cleaned", base_offset=number, leader_epoch=0)) for number in numbers)
    (path / f"{base:020d}.log.swap").write_bytes(content)
    (path / f"{base:020d}.index.swap").write_bytes(b"")
    (path / f"{base:020d}.timeindex.swap").write_bytes(NOW.to_bytes(8, "big") + (numbers[-1] - base).to_bytes(4, "big"))


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("crash", ["before", "after the old", "after one rename"])
def test_a_swap_is_finished(directory: DiskPath, crash: str, clean: bool) -> None:
    log = open_log(directory)
    for _ in range(3):
        fill(log, 4)
        log.roll(NOW)
    append(log, b"active")
    log.close()
    cleaned(directory, 0, 1, 6)  # replaces the segments at 0 and 4
    if crash != "before":
        for base in (0, 4):
            for suffix in (".log", ".index", ".timeindex"):
                (directory / f"{base:020d}{suffix}").rename(directory / f"{base:020d}{suffix}.deleted")
    if crash == "after one rename":
        (directory / f"{0:020d}.log.swap").rename(directory / f"{0:020d}.log")
    log = open_log(directory, clean=clean)
    assert [segment.base_offset for segment in log.segments] == [0, 8, 12]
    assert [row[0] for row in rows(log)] == [1, 6, 8, 9, 10, 11, 12]
    assert names(directory, ".swap", ".deleted") == []


def test_an_unfinished_split_is_undone(directory: DiskPath) -> None:
    log = open_log(directory)
    fill(log, 8)
    expected = values(log)
    log.close()
    cleaned(directory, 4, 4, 7)
    (directory / f"{0:020d}.log.cleaned").write_bytes(b"half")
    log = open_log(directory)
    assert (values(log), len(log.segments)) == (expected, 1)
    assert names(directory, ".swap", ".cleaned") == []


@pytest.mark.parametrize("content", [b"", b"x", bytes(5000), b"\xff" * 5000, b"\0" * 8 + b"\x7f\xff\xff\xff" + b"\0" * 100])
@pytest.mark.parametrize("clean", [False, True])
def test_a_log_file_without_a_valid_batch_is_an_empty_log(directory: DiskPath, content: bytes, clean: bool) -> None:
    (directory / f"{5:020d}.log").write_bytes(content)
    log = open_log(directory, clean=clean)
    assert (log.log_start_offset, log.log_end_offset, log.size) == (5, 5, 0)
    append(log, b"x")
    assert values(log) == [b"x"]


def test_all_files_that_kafka_expects_exist_after_a_close(directory: DiskPath) -> None:
    log = open_log(directory, index_interval_bytes=50)
    log.assign_topic_id(bytes(range(16)))
    fill(log, 10)
    log.roll(NOW)
    fill(log, 3)
    log.close()
    files = [f"{base:020d}{suffix}" for base in (0, 10) for suffix in (".index", ".log", ".timeindex")]
    assert names(directory) == sorted(
        [*files, f"{10:020d}.snapshot", f"{13:020d}.snapshot", "leader-epoch-checkpoint", "partition.metadata"]
    )
    assert (directory / "partition.metadata").read_bytes() == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert open_log(directory).topic_id == bytes(range(16))


@pytest.mark.parametrize("content", [b"", b"version: 1\ntopic_id: AAECAwQFBgcICQoLDA0ODw", b"version: 0\ntopic_id: x", b"\xff\n\xff"])
def test_damaged_metadata_is_replaced(directory: DiskPath, content: bytes) -> None:
    open_log(directory)
    (directory / "partition.metadata").write_bytes(content)
    log = open_log(directory)
    assert log.topic_id == bytes(16)
    log.assign_topic_id(bytes(range(16)))
    assert open_log(directory).topic_id == bytes(range(16))


def test_a_renamed_log_stays_usable(directory: DiskPath) -> None:
    log = open_log(directory / "a", index_interval_bytes=0)
    fill(log, 5)
    log.roll(NOW)
    log.rename_directory(str(directory / "b"))
    fill(log, 5)
    log.roll(NOW)
    append(log, b"x", leader_epoch=5)
    expected = values(log)
    log.close()
    assert names(directory) == ["b"]
    assert values(open_log(directory / "b")) == expected
    log.delete()
    assert names(directory) == []
