"""verify: files of brokers have no faults, and each kind of damage is found with its position and remedy."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.support import NOW, corrupt, open_log
from tests.offline.support import KAFKA, faults, kafka, look, mutate, ours, segments
from tests.support.compressed_forms import READ_BY_OTHERS, forms
from tests.support.examples import examples
from tests.support.odd_batches import batch as odd_batch
from tests.support.odd_batches import record
from txbroker.log.log_results import Origin
from txbroker.log.os_disk import OsDisk
from txbroker.logtools.findings import Remedy, Severity
from txbroker.logtools.log_paths import NoLogDirectory, survey
from txbroker.wire.batch import seal
from txbroker.wire.entries import Scan


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return ours(tmp_path)


def only_fault(path: Path) -> tuple[str, Remedy | None, str]:
    """File name, remedy and problem of the only fault."""
    found = faults(path)
    assert len(found) == 1, found
    return found[0].path.rpartition("/")[2], found[0].remedy, found[0].problem


def batches(path: Path) -> list[tuple[int, int]]:
    """The position and size of each batch."""
    return [(position, header.size) for position, header in Scan(path.read_bytes())]


def test_files_of_apache_kafka_have_no_fault() -> None:
    verified = look(KAFKA)
    assert [finding for finding in verified.findings.kept if finding.severity is Severity.FAULT] == []
    assert len(verified.partitions) == 10
    assert sum(report.records for report in verified.partitions) == 1718


def test_files_of_our_log_have_no_fault(data: Path) -> None:
    verified = look(data)
    assert verified.findings.kept == []
    (report,) = verified.partitions
    assert report.records == 60 * 3 + 6 * 2
    assert report.end_offset == 60 * 3 + 6 * 2


def test_records_that_java_clients_read_have_no_fault(tmp_path: Path) -> None:
    """Kafka stores them as they are sent: members, frames and bytes after the data; odd offset deltas in uncompressed batches."""
    log = open_log(segmented(tmp_path), record_validation_full=False)
    kept = [form for form in forms() if form.read or form.name in READ_BY_OTHERS]
    for form in kept:
        log.append(memoryview(bytearray(form.batch(NOW))), leader_epoch=0, now_ms=NOW, origin=Origin.COORDINATOR)
    for first, second in ((0, 0), (1, 0), (0, 5), (-1, 1)):
        records = record(offset=first), record(offset=second)
        log.append(memoryview(bytearray(odd_batch(*records, now_ms=NOW))), leader_epoch=0, now_ms=NOW, origin=Origin.COORDINATOR)
    log.close()
    verified = look(tmp_path)
    assert [finding.severity for finding in verified.findings.kept] == [Severity.NOTE]
    assert verified.findings.kept[0].problem.startswith("odd offsets or timestamps, as Kafka stores them, in 4 batches; the first ")
    (report,) = verified.partitions
    assert report.records == sum(form.records for form in kept) + 8


def segmented(data: Path) -> Path:
    """The directory of a partition in a data directory."""
    path = data / "orders-0"
    path.mkdir()
    (data / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=x\n")
    (data / ".kafka_cleanshutdown").write_text("")
    return path


def test_an_incomplete_tail_is_a_fault_at_the_end(data: Path) -> None:
    last = segments(data)[-1]
    position, size = batches(last)[-1]
    with last.open("r+b") as file:
        file.truncate(position + size - 5)
    (fault,) = [fault for fault in faults(data) if fault.path.endswith(".log")]
    assert (fault.remedy, fault.start, fault.end) == (Remedy.CUT, position, position + size - 5)


def test_a_flipped_bit_damages_one_batch(data: Path) -> None:
    first = segments(data)[0]
    position, size = batches(first)[2]
    corrupt(first, position + 70, bytes([first.read_bytes()[position + 70] ^ 4]))
    (fault,) = faults(data)
    assert (fault.remedy, fault.start, fault.end) == (Remedy.TAKE_OUT, position, position + size)
    assert "CRC" in fault.problem


@pytest.mark.parametrize("length", [b"\x7f\xff\xff\xff", b"\0\0\0\0", b"\xff\xff\xff\xff", b"\0\0\1\0"])
def test_after_a_wrong_length_the_next_batch_is_found(data: Path, length: bytes) -> None:
    first = segments(data)[0]
    position, size = batches(first)[2]
    corrupt(first, position + 8, length)
    (fault,) = faults(data)
    assert (fault.start, fault.end) == (position, position + size)


def test_a_range_of_zeros_is_one_fault(data: Path) -> None:
    first = segments(data)[0]
    found = batches(first)
    (start, _), (end, _) = found[1], found[6]
    corrupt(first, start + 30, bytes(end - start - 60))
    (fault,) = faults(data)
    assert (fault.start, fault.end) == (start, end)


def test_a_repeated_batch_is_a_fault(data: Path) -> None:
    first = segments(data)[0]
    content = first.read_bytes()
    position, size = batches(first)[0]
    first.write_bytes(content + content[position : position + size])
    (fault,) = faults(data)
    assert (fault.start, fault.end) == (len(content), len(content) + size)
    assert "comes after offset" in fault.problem


def test_an_invalid_record_under_a_correct_crc_is_a_fault(data: Path) -> None:
    first = segments(data)[0]
    content = bytearray(first.read_bytes())
    position, size = batches(first)[1]
    content[position + 61] ^= 2  # the length of the first record
    seal(content, position, size)
    first.write_bytes(content)
    (fault,) = faults(data)
    assert "a batch with a correct CRC is invalid" in fault.problem


@pytest.mark.parametrize(
    ("suffix", "at", "replacement", "words"),
    [
        (".index", 4, b"\0\0\0\1", "where no batch begins"),
        (".index", 0, b"\x7f\0\0\0", "is not above the entry before it"),
        (".index", 8, b"\0\0\0\0", "is not above the entry before it"),
        (".timeindex", 4, b"\0", "largest timestamp"),
        (".timeindex", 7, b"\0", "largest timestamp"),
        (".timeindex", 8, b"\x7f", "has an entry for offset|is not above the entry before it"),
    ],
)
def test_a_wrong_index_entry_is_a_fault(data: Path, suffix: str, at: int, replacement: bytes, words: str) -> None:
    path = segments(data)[0].with_suffix(suffix)
    corrupt(path, at, replacement)
    name, remedy, problem = only_fault(data)
    assert (name, remedy) == (path.name, Remedy.REBUILD_INDEXES)
    assert any(word in problem for word in words.split("|")), problem


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("harm", ["remove", "tear", "zeros"])
def test_an_incomplete_index_file_is_a_fault(data: Path, suffix: str, harm: str) -> None:
    path = segments(data)[0].with_suffix(suffix)
    if harm == "remove":
        path.unlink()
    elif harm == "tear":
        path.write_bytes(path.read_bytes()[:-3])
    else:
        path.write_bytes(path.read_bytes() + bytes(1200))
    name, remedy, _ = only_fault(data)
    assert (name, remedy) == (path.name, Remedy.REBUILD_INDEXES)


@pytest.mark.parametrize(("entries", "words"), [(0, "it has no entry"), (2, "bytes before the last batch")])
def test_an_offset_index_that_lost_its_end_is_a_note_and_is_rebuilt_when_it_is_missing(tmp_path: Path, entries: int, words: str) -> None:
    data = ours(tmp_path, batches=1800, transactions=False, segment_bytes=100_000)
    path = segments(data)[0].with_suffix(".index")
    whole = path.read_bytes()
    assert look(data).findings.kept == []
    path.write_bytes(whole[: 8 * entries])
    (note,) = look(data).findings.kept
    assert (note.severity, note.path, words in note.problem) == (Severity.NOTE, str(path), True)
    path.unlink()
    assert only_fault(data)[:2] == (path.name, Remedy.REBUILD_INDEXES)


def test_a_preallocated_index_of_a_killed_broker_is_a_note(data: Path) -> None:
    (data / ".kafka_cleanshutdown").unlink()
    path = segments(data)[-1].with_suffix(".index")
    path.write_bytes(path.read_bytes() + bytes(10 * 1024 * 1024))
    assert faults(data) == []
    assert any("killed" in finding.problem for finding in look(data).findings.kept)


def test_transaction_indexes_are_compared_with_the_log(data: Path) -> None:
    (path, *_) = sorted((data / "orders-3").glob("*.txnindex"))
    content = path.read_bytes()
    for damaged, words in [
        (b"", "lacks"),
        (content[:-1], "does not end with a whole entry"),
        (content[:10] + struct.pack(">q", 10**6) + content[18:], "has an entry"),
        (content[:2] + struct.pack(">q", 77) + content[10:], "lacks"),
    ]:
        path.write_bytes(damaged)
        name, remedy, problem = only_fault(data)
        assert (name, remedy) == (path.name, Remedy.REBUILD_TXN_INDEX)
        assert words in problem
    path.unlink()
    assert "is missing" in only_fault(data)[2]


def test_a_follower_of_apache_kafka_may_note_a_last_stable_offset_above_the_marker(data: Path) -> None:
    (path, *_) = sorted((data / "orders-3").glob("*.txnindex"))
    content = path.read_bytes()
    (last_offset,) = struct.unpack_from(">q", content, 18)
    path.write_bytes(content[:26] + struct.pack(">q", last_offset + 4) + content[34:])
    assert faults(data) == []
    path.write_bytes(content[:26] + struct.pack(">q", -1) + content[34:])
    assert "is impossible" in only_fault(data)[2]


def test_snapshots_are_compared_with_the_log(data: Path) -> None:
    snapshots = sorted((data / "orders-3").glob("*.snapshot"))
    assert len(snapshots) > 3
    content = snapshots[1].read_bytes()
    snapshots[1].write_bytes(content[:-1])
    assert only_fault(data)[1] is Remedy.REMAKE_SNAPSHOT
    snapshots[1].write_bytes(snapshots[0].read_bytes())
    name, remedy, problem = only_fault(data)
    assert (name, remedy) == (snapshots[1].name, Remedy.REMAKE_SNAPSHOT)
    assert "but the log" in problem
    snapshots[1].write_bytes(content)
    beyond = snapshots[1].with_name(f"{10**6:020}.snapshot")
    beyond.write_bytes(content)
    assert only_fault(data)[1] is Remedy.SET_ASIDE


def test_leader_epochs_are_compared_with_the_log(data: Path) -> None:
    path = data / "orders-3" / "leader-epoch-checkpoint"
    for content, words in [
        ("0\n2\n0 0\n1 80\n", "it has epoch"),
        ("0\n1\n0 0\n", "it has epoch"),
        ("0\n3\n0 0\n1 96\n2 900\n", "above the log end offset"),
        ("0\n7\n0 0\n", "its count is 7"),
        ("\xff", "not a number"),
    ]:
        path.write_text(content)
        name, remedy, problem = only_fault(data)
        assert (name, remedy) == (path.name, Remedy.REWRITE_EPOCHS)
        assert words in problem, problem
    path.unlink()
    assert "is missing" in only_fault(data)[2]


def test_checkpoints_are_compared_with_the_logs(data: Path) -> None:
    for kind in ("recovery-point", "replication", "cleaner", "log-start"):
        name = f"{kind}-offset-checkpoint"
        path = data / name
        path.write_text("0\n2\norders 3 1000000\ngone 0 0\n")
        assert only_fault(data)[:2] == (name, Remedy.REWRITE_CHECKPOINT)
        path.write_text("0\n5\norders 3 10\n")
        assert only_fault(data)[:2] == (name, Remedy.REWRITE_CHECKPOINT)
        path.write_text("0\n1\norders 3 10\n")
        assert faults(data) == []


def test_leftovers_and_strange_directories_are_notes(data: Path) -> None:
    partition = data / "orders-3"
    for name in ("00000000000000000000.log.deleted", "00000000000000000000.log.swap", "00000000000000000000.index.cleaned"):
        (partition / name).write_bytes(b"")
    (data / "orders-4.0123456789abcdef0123456789abcdef-delete").mkdir()
    (data / "lost+found").mkdir()
    verified = look(data)
    assert verified.findings.faults == 0
    assert len(verified.findings.kept) == 5
    (partition / "00000000000000000077.log.deleted").write_bytes(b"")
    (deleted, *_) = [finding for finding in look(data).findings.kept if "deleted" in finding.problem and ".log." in finding.path]
    assert deleted.problem.endswith("the same applies to 1 other file")
    assert len(look(data).findings.kept) == 5


def test_an_unreadable_partition_does_not_stop_the_others(tmp_path: Path) -> None:
    data = kafka(tmp_path)
    index = data / "s-mixed-0" / f"{0:020}.index"
    index.unlink()
    index.mkdir()
    (fault,) = faults(data)
    assert (fault.path, fault.remedy) == (str(data / "s-mixed-0"), None)
    assert "cannot read" in fault.problem
    assert len([report for report in look(data).partitions if report.segments]) == 9


def test_index_files_without_a_log_are_faults(data: Path) -> None:
    (data / "orders-3" / f"{77:020}.index").write_bytes(b"")
    assert only_fault(data)[:2] == (f"{77:020}.index", Remedy.SET_ASIDE)


def test_meta_properties_and_topic_ids_are_checked(data: Path) -> None:
    (data / "orders-3" / "partition.metadata").write_text("version: 0\ntopic_id: short")
    assert only_fault(data)[:2] == ("partition.metadata", Remedy.SET_ASIDE)
    (data / "orders-3" / "partition.metadata").unlink()
    (data / "meta.properties").write_text("version=7\n")
    assert only_fault(data)[:2] == ("meta.properties", None)


def test_one_file_can_be_verified(data: Path) -> None:
    index = segments(data)[1].with_suffix(".index")
    segments(data)[0].with_suffix(".timeindex").unlink()
    assert faults(index) == []
    corrupt(index, 4, b"\1")
    assert [fault.path for fault in faults(index)] == [str(index)]
    for name in ("leader-epoch-checkpoint", segments(data)[0].name):
        assert faults(data / "orders-3" / name) == []


def test_paths_outside_of_log_directories_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(NoLogDirectory):
            survey(OsDisk(), [str(path)])
    (tmp_path / "file.txt").write_text("x")
    with pytest.raises(NoLogDirectory):
        look(tmp_path / "file.txt")


def test_a_running_broker_is_detected_by_its_lock(data: Path) -> None:
    script = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", script, str(data / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert survey(OsDisk(), [str(data)]).directories[0].live
        last = segments(data)[-1]
        last.write_bytes(last.read_bytes()[:-9])
        verified = look(data)
        assert verified.findings.faults == 0, "an incomplete batch that the broker may be writing"
        assert len(verified.findings.kept) == 2
        holder.communicate()
    assert not survey(OsDisk(), [str(data)]).directories[0].live
    assert faults(data)


@settings(max_examples=examples(30))
@given(chance=st.randoms(use_true_random=False), count=st.integers(1, 8))
def test_no_damage_raises(tmp_path_factory: pytest.TempPathFactory, chance: random.Random, count: int) -> None:
    folder = tmp_path_factory.mktemp("mutated")
    data = ours(folder) if chance.random() < 0.5 else kafka(folder)
    assert faults(data) == []
    mutate(data, chance, count)
    try:
        look(data)
    except NoLogDirectory:
        assert not (data / "meta.properties").exists()
