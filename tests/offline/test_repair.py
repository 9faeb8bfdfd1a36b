"""repair: afterwards verify finds no fault, our log opens, no valid record is lost, and removed bytes have a backup."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.support import corrupt, open_log, rows
from tests.offline.support import faults, kafka, look, mutate, ours, segments
from tests.support.examples import examples
from tests.support.fakes.faulty_disk import CHANGES, FaultyDisk, Killed
from tests.support.fakes.unsynced_disk import UnsyncedDisk
from txbroker.log.file_names import LEADER_EPOCHS
from txbroker.log.leader_epochs import parse_epochs
from txbroker.logtools.findings import Remedy
from txbroker.logtools.log_paths import NoLogDirectory, survey
from txbroker.logtools.repair import Refused, carry_out, lock_all
from txbroker.logtools.repair_plan import Plan, directories_of, make_plan
from txbroker.logtools.verify import verify
from txbroker.wire.entries import Scan


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return ours(tmp_path)


def repair(path: Path) -> tuple[Plan, list[str]]:
    disk, said = UnsyncedDisk(), []
    found = survey(disk, [str(path)])
    locks = lock_all(disk, directories_of(found))
    plan = make_plan(found, verify(disk, found, lambda size, records: None))
    carry_out(disk, plan, said.append)
    for lock in locks:
        lock.release()
    return plan, said


def content(data: Path) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """The records that our log reads, opened as after a clean shutdown."""
    log = open_log(data / "orders-3", segment_bytes=4000, clean=True)
    found = rows(log)
    log.close()
    return found


def places(path: Path) -> list[tuple[int, int]]:
    return [(position, header.size) for position, header in Scan(path.read_bytes())]


@pytest.mark.parametrize("bit", [1, 3, 8, 20, 40])
@pytest.mark.parametrize("at", [0, 2])
def test_a_batch_whose_base_offset_has_a_flipped_bit_is_removed_and_not_those_after_it(data: Path, at: int, bit: int) -> None:
    """The CRC does not cover it."""
    whole = content(data)
    path = segments(data)[-1]
    position, size = places(path)[at]
    before = path.read_bytes()
    count = next(header for found, header in Scan(before) if found == position).count  # type: ignore[union-attr]
    byte = position + 7 - bit // 8
    corrupt(path, byte, bytes([before[byte] ^ 1 << bit % 8]))
    (fault,) = [found for found in faults(data) if found.path == str(path)]
    assert (fault.start, fault.end) == (position, position + size), fault.problem
    repair(data)
    assert path.read_bytes() == before[:position] + before[position + size :]
    assert faults(data) == []
    assert len(content(data)) == len(whole) - count


def test_a_directory_without_faults_is_not_changed(data: Path) -> None:
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file() and path.name != ".lock"}
    plan, said = repair(data)
    assert (plan.steps, said) == ([], [])
    assert {path: path.read_bytes() for path in data.rglob("*") if path.is_file() and path.name != ".lock"} == before


def test_an_incomplete_tail_is_truncated_with_a_backup(data: Path) -> None:
    whole = content(data)
    last = segments(data)[-1]
    position, size = places(last)[-1]
    torn = last.read_bytes()[: position + size - 5]
    last.write_bytes(torn)
    repair(data)
    assert last.read_bytes() == torn[:position]
    assert last.with_name(f"{last.name}.cut-at-{position}").read_bytes() == torn[position:]
    assert faults(data) == []
    assert content(data) == whole[:-3]
    assert repair(data)[0].steps == []


def test_a_damaged_batch_is_removed_and_the_rest_stays(data: Path) -> None:
    whole = content(data)
    first = segments(data)[0]
    before = first.read_bytes()
    position, size = places(first)[2]
    corrupt(first, position + 70, bytes([before[position + 70] ^ 4]))
    damaged = first.read_bytes()
    repair(data)
    assert first.read_bytes() == before[:position] + before[position + size :]
    assert first.with_name(f"{first.name}.taken-out-at-{position}").read_bytes() == damaged[position : position + size]
    assert faults(data) == []
    assert content(data) == whole[:6] + whole[9:]


def test_a_segment_without_a_valid_batch_is_renamed(data: Path) -> None:
    whole = content(data)
    second = segments(data)[1]
    end = int(segments(data)[2].stem)
    garbage = b"\xff" * second.stat().st_size
    second.write_bytes(garbage)
    repair(data)
    assert not second.exists()
    assert second.with_name(f"{second.name}.set-aside").read_bytes() == garbage
    assert faults(data) == []
    assert content(data) == [row for row in whole if not int(second.stem) <= row[0] < end]


@pytest.mark.parametrize("count", [1, 2, 4])
def test_without_its_first_segments_a_log_begins_with_a_leader_epoch(data: Path, count: int) -> None:
    whole, damaged = content(data), segments(data)[:count]
    assert len(segments(data)) == 4
    for path in damaged:
        path.write_bytes(b"\xff" * path.stat().st_size)
    assert [fault.path for fault in faults(data) if fault.remedy is Remedy.REWRITE_EPOCHS] == [str(data / "orders-3" / LEADER_EPOCHS)]
    repair(data)
    assert faults(data) == []
    begin = int(segments(data)[0].stem)
    assert parse_epochs((data / "orders-3" / LEADER_EPOCHS).read_bytes())[0][1] == begin
    assert content(data) == [row for row in whole if row[0] >= begin and count < 4]
    assert repair(data)[0].steps == []


def test_an_emptied_log_whose_first_segments_are_gone_has_one_leader_epoch(data: Path) -> None:
    last = segments(data)[-1]
    for path in data.glob("orders-3/*.*"):
        if path.stem < last.stem:
            path.unlink()
    last.write_bytes(b"")
    repair(data)
    assert faults(data) == []
    assert parse_epochs((data / "orders-3" / LEADER_EPOCHS).read_bytes()) == [(1, int(last.stem))]


def test_a_log_of_garbage_becomes_an_empty_log(data: Path) -> None:
    for path in segments(data)[1:]:
        for file in path.parent.glob(f"{path.stem}.*"):
            file.unlink()
    segments(data)[0].write_bytes(b"garbage" * 100)
    repair(data)
    assert faults(data) == []
    assert content(data) == []


def test_indexes_snapshots_epochs_and_checkpoints_are_rebuilt(data: Path) -> None:
    whole = content(data)
    partition = data / "orders-3"
    for path in [*partition.glob("*.index"), *partition.glob("*.timeindex"), *partition.glob("*.txnindex")]:
        path.write_bytes(b"?" * 21)
    snapshots = {path: path.read_bytes() for path in partition.glob("*.snapshot")}
    for path in snapshots:
        path.write_bytes(b"")
    epochs = (partition / "leader-epoch-checkpoint").read_text()
    (partition / "leader-epoch-checkpoint").write_text("0\n1\n7 7\n")
    (data / "replication-offset-checkpoint").write_text("0\n9\norders 3 1000000\nbad line here now\nother 1 5\n")
    assert len(faults(data)) > 10
    repair(data)
    assert faults(data) == []
    assert content(data) == whole
    assert (partition / "leader-epoch-checkpoint").read_text() == epochs
    assert (data / "replication-offset-checkpoint").read_text().splitlines()[2:] == [f"orders 3 {whole[-1][0] + 1}", "other 1 5"]
    assert {path: path.read_bytes() for path in snapshots} == snapshots, "rebuilt from the log, they are the same"


def test_existing_backups_are_not_overwritten(data: Path) -> None:
    last = segments(data)[-1]
    for number in ("", "-2"):
        position = last.stat().st_size
        last.write_bytes(last.read_bytes() + b"x" * 30)
        repair(data)
        assert last.with_name(f"{last.name}.cut-at-{position}{number}").read_bytes() == b"x" * 30


def test_kraft_and_running_brokers_are_refused(data: Path) -> None:
    disk = UnsyncedDisk()
    (data / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\ndirectory.id=y\n")
    for path in (data, data / "orders-3"):
        with pytest.raises(Refused, match="only read"):
            lock_all(disk, directories_of(survey(disk, [str(path)])))


def test_an_unfinished_swap_is_left_to_a_broker(data: Path) -> None:
    (data / "orders-3" / f"{0:020}.log.swap").write_bytes(b"")
    segments(data)[0].with_suffix(".index").unlink()
    plan, said = repair(data)
    assert said == []
    assert [path for path, _ in plan.refused] == [str(data / "orders-3")]


def test_an_interrupted_repair_can_be_repeated(data: Path) -> None:
    """Interrupted at each of its writes in turn and repeated: the result is the same, and nothing is lost."""
    first, last = segments(data)[0], segments(data)[-1]
    position, size = places(first)[2]
    corrupt(first, position + 70, b"\xff\xff")
    last.write_bytes(last.read_bytes()[:-5])
    originals = {path: path.read_bytes() for path in (data / "orders-3").iterdir()}
    results = set()
    for steps in range(40):
        for path in (data / "orders-3").iterdir():
            path.unlink()
        for path, saved in originals.items():
            path.write_bytes(saved)
        disk = FaultyDisk(UnsyncedDisk())
        disk.fail(CHANGES, after=steps, error=Killed)
        found = survey(disk, [str(data)])
        plan = make_plan(found, verify(disk, found, lambda size, records: None))
        finished = True
        try:
            carry_out(disk, plan, lambda sentence: None)
        except Killed:
            finished = False
        repair(data)
        assert faults(data) == []
        results.add((first.read_bytes(), last.read_bytes()))
        kept = b"".join(path.read_bytes() for path in sorted((data / "orders-3").glob("*-at-*")))
        assert originals[first][position : position + size] in kept
        if finished:
            break
    else:
        pytest.fail("a repair has fewer steps")
    assert steps > 5
    assert len(results) == 1


@settings(max_examples=examples(30))
@given(chance=st.randoms(use_true_random=False), count=st.integers(1, 8))
def test_after_any_damage_a_repair_leaves_no_fault(
    tmp_path_factory: pytest.TempPathFactory, chance: random.Random, count: int
) -> None:
    folder = tmp_path_factory.mktemp("mutated")
    data = ours(folder) if chance.random() < 0.5 else kafka(folder)
    mutate(data, chance, count)
    try:
        repair(data)
    except NoLogDirectory:
        assert not (data / "meta.properties").exists()
        return
    left = [fault for fault in faults(data) if fault.remedy is not None]
    assert left == []
    assert repair(data)[0].steps == []
    if (data / "orders-3").exists():
        # The CRC of a batch does not cover its base offset, so that its records may have other offsets.
        written = {row[1:] for row in content(ours(tmp_path_factory.mktemp("whole")))}
        assert [row for row in content(data) if row[1:] not in written] == [], "the remaining records were written"
    assert look(data).findings.left_out == 0
