"""Offset, time and transaction indexes: compared with lists, and with damaged files."""

from __future__ import annotations

import struct
from collections.abc import Callable
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulation.memory_disk import MemoryDisk
from tests.log.support import NOW, append, corrupt, fill, open_log, rows, values
from tests.support import compiled
from tests.support.examples import examples
from tests.support.fakes.disk_path import DiskPath
from tests.support.fakes.faulty_disk import FaultyDisk
from txbroker.errors import CorruptRecords
from txbroker.log import index_file, offset_index, time_index
from txbroker.log.log_results import AbortedTransaction
from txbroker.log.txn_index import TxnIndex

BASE = 1_000_000
every_offset_index = pytest.mark.parametrize("module", compiled.forms(offset_index, index_file), ids=lambda module: module.__name__)
every_time_index = pytest.mark.parametrize("module", compiled.forms(time_index, index_file), ids=lambda module: module.__name__)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(st.integers(1, 9), min_size=1, max_size=90)),
        st.tuples(st.just("write"), st.just([])),
        st.tuples(st.just("reopen"), st.just([])),
        st.tuples(st.just("truncate"), st.lists(st.integers(-3, 900), min_size=1, max_size=1)),
    ),
    max_size=12,
)


@every_offset_index
@settings(max_examples=examples(60))
@given(steps=STEPS)
def test_an_offset_index_is_a_sorted_list(module: ModuleType, steps: list[tuple[str, list[int]]]) -> None:
    disk, path = MemoryDisk(), "/x.index"
    disk.write(path, b"")
    index, model = module.OffsetIndex(disk, path, BASE), [(BASE, 0)]
    for step, numbers in steps:
        if step == "add":
            for number in numbers:
                model.append((model[-1][0] + number, model[-1][1] + 70 * number))
                index.make_room()
                index.add(*model[-1])
        elif step == "write":
            index.write_out()
        elif step == "reopen":
            index.write_out()
            index = module.OffsetIndex(disk, path, BASE)
        else:
            model = [entry for entry in model if entry[0] < BASE + numbers[0]] or [(BASE, 0)]
            index.truncate_to(BASE + numbers[0])
        assert index.count == len(model) - 1
        assert index.last == model[-1]
        for offset in {model[len(model) // 2][0] + 1, model[-1][0], model[-1][0] + 10**10, model[-1][0] - 1, BASE, BASE + 20, BASE - 5}:
            assert index.lookup(offset) == max((position for known, position in model if known <= offset), default=0)
    index.write_out()
    expected = b"".join(struct.pack(">II", offset - BASE, position) for offset, position in model[1:])
    assert not expected or disk.read(path) == expected


@every_time_index
@settings(max_examples=examples(60))
@given(steps=STEPS)
def test_a_time_index_is_a_sorted_list(module: ModuleType, steps: list[tuple[str, list[int]]]) -> None:
    disk, path = MemoryDisk(), "/x.timeindex"
    disk.write(path, b"")
    index, model = module.TimeIndex(disk, path, BASE), [(-1, BASE)]
    for step, numbers in steps:
        if step == "add":
            for number in numbers:
                index.make_room()
                index.add(model[-1][0], model[-1][1] + 1)  # not larger than the last timestamp: not added
                model.append((model[-1][0] + number, model[-1][1] + 3 * number))
                index.add(*model[-1])
        elif step == "write":
            index.write_out()
        elif step == "reopen":
            index.write_out()
            index = module.TimeIndex(disk, path, BASE)
        else:
            model = [(-1, BASE), *(entry for entry in model[1:] if entry[1] < BASE + numbers[0])]
            index.truncate_to(BASE + numbers[0])
        assert index.count == len(model) - 1
        assert index.last == model[-1]
        for timestamp in {model[len(model) // 2][0] + 1, model[-1][0], model[-1][0] + 10**12, model[-1][0] - 1, -1, 0, 17}:
            assert index.lookup(timestamp) == max(offset for known, offset in model if known <= max(timestamp, -1))
    index.write_out()
    expected = b"".join(struct.pack(">qI", timestamp, offset - BASE) for timestamp, offset in model[1:])
    assert not expected or disk.read(path) == expected


@every_offset_index
def test_look_ups_after_a_truncation_ignore_removed_entries(module: ModuleType, directory: DiskPath) -> None:
    directory.disk.write(f"{directory}/x.index", b"")
    index = module.OffsetIndex(directory.disk, f"{directory}/x.index", BASE)
    for number in range(1, 300):
        index.add(BASE + number, number)
    index.write_out()
    assert index.lookup(BASE + 250) == 250
    index.truncate_to(BASE + 50)
    for number in range(60, 600):
        index.add(BASE + 10 * number, number)
    index.write_out()
    for number in range(60, 600):
        assert index.lookup(BASE + 10 * number + 9) == number
    assert [index.lookup(BASE + offset) for offset in (49, 50, 599)] == [49, 49, 49]


@every_time_index
@pytest.mark.parametrize("damaged", [0, 3, 15, 16, 18])
def test_a_damaged_entry_of_a_time_index_ends_no_look_up_with_an_error(module: ModuleType, directory: DiskPath, damaged: int) -> None:
    """Its last entry is plausible, so that the index is used. What a look-up finds is an offset from which records are read."""
    path = f"{directory}/x.timeindex"
    entries = [struct.pack(">qi", 1000 * number, number) for number in range(20)]
    entries[damaged] = b"\xff" * 8 + entries[damaged][8:]
    directory.disk.write(path, b"".join(entries))
    index = module.TimeIndex(directory.disk, path, 0)
    assert index.plausible()
    for timestamp in range(0, 20_000, 500):
        assert 0 <= index.lookup(timestamp) < 20
    assert index.last_key() == 19_000


@pytest.mark.parametrize("key", [2**63, 2**64 - 1])
@every_time_index
def test_a_last_time_that_is_impossible_has_the_same_result_in_both_forms(module: ModuleType, directory: DiskPath, key: int) -> None:
    path = f"{directory}/x.timeindex"
    directory.disk.write(path, struct.pack(">Qi", key, 0))
    index = module.TimeIndex(directory.disk, path, 0)
    assert not index.plausible() and index.last_key() < 0


def test_an_unused_index_is_not_written(directory: DiskPath) -> None:
    log = open_log(directory, segment_bytes=500, index_interval_bytes=100)
    fill(log, 40)
    log.close()
    disk = FaultyDisk(directory.disk)
    log = open_log(directory, disk=disk)
    log.close()
    assert disk.done == []


def test_entries_follow_the_index_interval(directory: DiskPath) -> None:
    log = open_log(directory, index_interval_bytes=300)
    size = append_and_measure(directory)
    fill(log, 30)
    log.close()
    every = 300 // size + 1  # an entry for the first batch after more than 300 bytes without an entry
    content = (directory / f"{0:020d}.index").read_bytes()
    assert list(struct.iter_unpack(">II", content)) == [(offset, offset * size) for offset in range(every, 30, every)]
    content = (directory / f"{0:020d}.timeindex").read_bytes()
    times = [(NOW + offset, offset) for offset in range(every, 30, every)]
    assert list(struct.iter_unpack(">qI", content)) == [*times, *([(NOW + 29, 29)] if times[-1][1] != 29 else [])]


def append_and_measure(directory: DiskPath) -> int:
    log = open_log(directory / "measured")
    fill(log, 1)
    return log.size


DAMAGE: dict[str, Callable[[DiskPath], object]] = {
    "missing": lambda path: path.unlink(),
    "torn": lambda path: path.truncate(path.size() - 3),
    "empty": lambda path: path.truncate(0),
    "preallocated": lambda path: path.truncate(1200),
    "zeros": lambda path: path.write_bytes(bytes(path.size())),
    "ones": lambda path: path.write_bytes(b"\x7f" * path.size()),
    "noise": lambda path: corrupt(path, 8, b"\x00\x00\x01\x07\x00\x00\x0f\xff" * 3),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("base", [0, 12])
def test_damaged_indexes_are_rebuilt(directory: DiskPath, damage: str, suffix: str, base: int) -> None:
    log = open_log(directory, index_interval_bytes=100)
    for number in range(60):
        if number == 12:
            log.roll(NOW)
        append(log, f"{number}".encode().ljust(30), timestamp=NOW + number)
    expected = rows(log)
    log.close()
    DAMAGE[damage](directory / f"{base:020d}{suffix}")
    log = open_log(directory)
    if damage == "noise" and suffix == ".timeindex":  # wrong entries in a valid format cannot be detected
        assert rows(log) == expected
        return
    assert log.log_end_offset == 60
    for offset in reversed(range(60)):
        assert values(log, offset)[0] == expected[offset][3]
    for offset in range(60):
        assert log.offset_for_timestamp(NOW + offset) == (NOW + offset, offset, 0)
    append(log, b"more")
    log.close()
    assert values(open_log(directory))[-1] == b"more"


@pytest.mark.parametrize("damage", ["missing", "torn"])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_with_a_wrong_size_is_rebuilt_while_loading(directory: DiskPath, damage: str, suffix: str) -> None:
    log = open_log(directory, segment_bytes=500, index_interval_bytes=100)
    fill(log, 40)
    log.close()
    path = directory / f"{log.segments[1].base_offset:020d}{suffix}"
    content = path.read_bytes()
    assert content
    DAMAGE[damage](path)
    open_log(directory, index_interval_bytes=100)
    assert path.read_bytes() == content


def test_transaction_index(directory: DiskPath) -> None:
    path = directory / "x.txnindex"
    index = TxnIndex(directory.disk, str(path))
    assert index.entries == []
    assert not path.exists()
    made = [AbortedTransaction(5, 1, 3, 4), AbortedTransaction(6, 0, 7, 8)]
    for entry in made:
        index.append(entry)
    assert path.size() == 68
    assert TxnIndex(directory.disk, str(path)).entries == made
    index.truncate_to(7)
    assert TxnIndex(directory.disk, str(path)).entries == index.entries == made[:1]
    for content in (b"x", bytes(33), struct.pack(">hqqqq", 1, 5, 1, 3, 4), struct.pack(">hqqqq", 0, 5, 4, 3, 4)):
        path.write_bytes(content)
        broken = TxnIndex(directory.disk, str(path))
        assert not broken.sound
        with pytest.raises(CorruptRecords):
            _ = broken.entries
