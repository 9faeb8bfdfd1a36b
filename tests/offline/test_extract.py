"""extract and stats find in the files of txbroker and Kafka the records that our log reads."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.support import NOW, append, committed_rows, corrupt, open_log, rows
from tests.offline.support import KAFKA, kafka, mutate, ours, segments
from tests.support.examples import examples
from txbroker.log.os_disk import OsDisk
from txbroker.logtools.damaged_walk import Damage
from txbroker.logtools.extract import Extracted, Selection, extract
from txbroker.logtools.key_counter import KeyCounter
from txbroker.logtools.log_paths import NoLogDirectory, survey
from txbroker.logtools.partition_stats import TIME_BUCKETS_MAX, PartitionStats, TimeCounts, gather
from txbroker.wire.compression import Codec
from txbroker.wire.entries import Scan


def extracted(path: Path, selection: Selection | None = None, damages: list[Damage] | None = None) -> list[Extracted]:
    disk = OsDisk()
    found: list[Extracted] = []
    noted: list[Damage] = [] if damages is None else damages
    for place in survey(disk, [str(path)]).partitions:
        found += extract(disk, place, selection or Selection(), lambda _, damage: noted.append(damage), lambda size, records: None)
    assert damages is not None or noted == []
    return found


def counted(path: Path) -> list[PartitionStats]:
    disk = OsDisk()
    places = survey(disk, [str(path)]).partitions
    return [gather(disk, place, lambda _, damage: None, lambda size, records: None) for place in places]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return ours(tmp_path)


def test_all_records_are_extracted_and_no_markers(data: Path) -> None:
    log = open_log(data / "orders-3", segment_bytes=4000)
    expected = rows(log)
    assert [row.record[:4] for row in extracted(data)] == expected
    assert len(expected) == 60 * 3 + 6


@pytest.mark.parametrize("partition", sorted(path.name for path in KAFKA.iterdir() if path.is_dir()))
def test_the_records_of_kafkas_files_are_extracted(tmp_path: Path, partition: str) -> None:
    path = kafka(tmp_path) / partition
    everything, committed = extracted(path), extracted(path, Selection(committed_only=True))
    log = open_log(path)
    assert [row.record[:4] for row in everything] == rows(log)
    # A consumer reads nothing after an open transaction; extract does, as the other records are committed.
    stable = log.last_stable_offset(log.log_end_offset)
    assert [row.record[:4] for row in committed if row.record.offset < stable] == committed_rows(log)
    if partition.startswith("s-txn"):
        assert len(committed) < len(everything)


def test_aborted_and_open_transactions_can_be_left_out(data: Path) -> None:
    log = open_log(data / "orders-3", segment_bytes=4000)
    append(log, b"never ends", producer_id=11, producer_epoch=0, base_sequence=0, transactional=True, leader_epoch=1)
    log.close()
    found = [row.record.value for row in extracted(data, Selection(committed_only=True))]
    assert b"never ends" not in found
    assert found.count(b"in a transaction") == 3, "three of six were aborted"
    for index in (data / "orders-3").glob("*.txnindex"):
        index.unlink()
    assert [row.record.value for row in extracted(data, Selection(committed_only=True))] == found, "it reads the markers, and not the index"


def test_ranges_of_offsets_and_times(data: Path) -> None:
    everything = extracted(data)
    for start, end in [(0, 10), (17, 18), (50, 170), (100, 10**9), (10**6, 10**7)]:
        found = extracted(data, Selection(start=start, end=end))
        assert found == [row for row in everything if start <= row.record.offset < end]
    for low, high in [(NOW, NOW + 1), (NOW + 20, NOW + 40), (None, NOW + 5), (NOW + 55, None)]:
        found = extracted(data, Selection(time_start=low, time_end=high))
        assert found == [row for row in everything if (low or 0) <= row.record.timestamp < (high or NOW**2)]
        assert found


def test_progress_counts_the_bytes_that_were_read_and_the_records_that_were_selected(data: Path) -> None:
    disk = OsDisk()
    (place,) = survey(disk, [str(data)]).partitions
    steps: list[tuple[int, int]] = []

    def advance(size: int, records: int) -> None:
        steps.append((size, records))

    found = list(extract(disk, place, Selection(time_start=NOW + 20), lambda path, damage: None, advance))
    assert (sum(size for size, _ in steps), sum(records for _, records in steps)) == (place.size, len(found))


def test_damage_is_reported_and_skipped(data: Path) -> None:
    everything = extracted(data)
    position, header = list(Scan(segments(data)[0].read_bytes()))[2]
    corrupt(segments(data)[0], position + 70, b"\xff\xff")
    damages: list[Damage] = []
    found = extracted(data, damages=damages)
    assert [(damage.start, damage.end) for damage in damages] == [(position, position + header.size)]
    assert found == everything[:6] + everything[9:]


def test_stats_count_records_batches_and_keys(data: Path) -> None:
    (stats,) = counted(data)
    everything = extracted(data)
    assert stats.records == len(everything)
    assert stats.control_records == 6
    assert stats.batches == 60 + 12
    assert stats.transactional == 12
    keys = Counter(row.record.key for row in everything)
    assert (stats.keys.count, stats.keys.exact) == (len(keys), True)
    assert stats.obsolete == len(everything) - len(keys)
    assert (stats.first_timestamp, stats.last_timestamp) == (NOW, NOW + 59)
    assert stats.size == sum(path.stat().st_size for path in segments(data))
    assert sum(stats.times.counts.values()) == len(everything)
    assert stats.value_bytes == sum(len(row.record.value or b"") for row in everything)
    assert stats.ratio == 1


@pytest.mark.parametrize("codec", list(Codec))
def test_stats_have_stored_and_decompressed_sizes_by_codec(tmp_path: Path, codec: Codec) -> None:
    path = tmp_path / "orders-3"
    log = open_log(path)
    for number in range(5):
        append(log, *[b"the same again and again " * 4] * 50, codec=codec, timestamp=NOW + number, key=None)
    log.close()
    (stats,) = counted(path)
    assert list(stats.codecs) == [codec.name.lower()]
    saved = stats.codecs[codec.name.lower()]
    assert (saved.batches, saved.records, stats.keyless, stats.keyed, stats.obsolete) == (5, 250, 250, 0, 0)
    assert stats.ratio is not None
    assert (stats.ratio > 5) == (codec is not Codec.NONE)


def test_more_keys_than_the_limit_are_estimated() -> None:
    counter = KeyCounter(exact_max=1000)
    for number in range(200_000):
        counter.add(b"%d" % (number // 2))
        if number == 1999:
            assert (counter.count, counter.exact) == (1000, True)
    assert not counter.exact
    assert abs(counter.count - 100_000) < 5_000, "six times the standard error"
    few = KeyCounter(exact_max=10)
    for number in range(100):
        few.add(b"%d" % number)
    assert abs(few.count - 100) <= 5


def test_timestamps_are_counted_in_a_limited_number_of_buckets() -> None:
    times = TimeCounts()
    chance = random.Random(1)
    for _ in range(5000):
        times.add(chance.choice([NOW, chance.randrange(2**62), chance.randrange(10**6)]))
    assert len(times.counts) <= TIME_BUCKETS_MAX
    assert sum(times.counts.values()) == 5000


@settings(max_examples=examples(20))
@given(chance=st.randoms(use_true_random=False), count=st.integers(1, 8))
def test_no_damage_raises(tmp_path_factory: pytest.TempPathFactory, chance: random.Random, count: int) -> None:
    folder = tmp_path_factory.mktemp("mutated")
    data = ours(folder) if chance.random() < 0.5 else kafka(folder)
    whole = {(row.record.offset, row.record.timestamp, row.record.key, row.record.value) for row in extracted(data)}
    mutate(data, chance, count)
    try:
        found = extracted(data, Selection(committed_only=chance.random() < 0.5), damages=[])
        counted(data)
    except NoLogDirectory:
        assert not (data / "meta.properties").exists()
        return
    assert {row.record[:4] for row in found} <= whole, "all records were written"
