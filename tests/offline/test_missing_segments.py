"""`log verify` finds segments that are gone, wherever they were, and `log repair` ends what it can."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.log.support import NOW, append, open_log
from tests.offline.support import faults, kafka, look, ours, segments
from tests.support.fakes.unsynced_disk import UnsyncedDisk
from txbroker.log.checkpoints import format_offsets
from txbroker.logtools.findings import Remedy
from txbroker.logtools.log_paths import survey
from txbroker.logtools.repair import carry_out
from txbroker.logtools.repair_plan import make_plan
from txbroker.names import TopicPartition

ORDERS = TopicPartition("orders", 3)
FILES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    made = ours(tmp_path)
    (made / "recovery-point-offset-checkpoint").write_bytes(format_offsets({ORDERS: end_of(made)}))
    assert faults(made) == []
    return made


def end_of(data: Path) -> int:
    return look(data).partitions[0].end_offset


def base_of(path: Path) -> int:
    return int(path.stem)


def remove(log: Path, *suffixes: str) -> None:
    for suffix in suffixes:
        log.with_suffix(suffix).unlink(missing_ok=True)


def repair(data: Path) -> None:
    disk = UnsyncedDisk()
    carry_out(disk, make_plan(survey(disk, [str(data)]), look(data)), lambda done: None)


@pytest.mark.parametrize("count", range(1, len(FILES) + 1))
def test_a_missing_segment_between_others_is_a_fault(tmp_path: Path, count: int) -> None:
    data = ours(tmp_path, transactions=False)
    before, gone, after = segments(data)[1:4]
    remove(gone, *FILES[:count])
    text = f"the records from offset {base_of(gone)} to {base_of(after) - 1} are missing"
    found = faults(data)
    assert any(text in fault.problem for fault in found), found
    assert all(str(before) != fault.path for fault in found)
    if count < len(FILES):
        repair(data)
        assert faults(data) == [], "what is left of it was renamed"
        assert [path.name for path in gone.parent.glob(f"{gone.stem}*") if not path.name.endswith(".set-aside")] == []
    assert not gone.exists()


def test_the_missing_first_segment_is_a_fault(data: Path) -> None:
    first, second = segments(data)[:2]
    remove(first, *FILES)
    (found,) = [fault for fault in faults(data) if "leader-epoch-checkpoint" in fault.path]
    assert f"the records from offset 0 to {base_of(second) - 1} are missing" in found.problem
    repair(data)
    assert [fault for fault in faults(data) if "missing" in fault.problem] == []


def test_the_missing_last_segment_is_a_fault(data: Path) -> None:
    last, end = segments(data)[-1], end_of(data)
    remove(last, *FILES)
    problems = [fault.problem for fault in faults(data)]
    assert any(f"the records from offset {base_of(last)} to {end - 1} are missing" in problem for problem in problems), problems
    assert any("is above the log end offset" in problem for problem in problems)


def test_a_log_without_segments_is_a_fault(data: Path) -> None:
    end = end_of(data)
    for path in segments(data):
        remove(path, *FILES)
    problems = [fault.problem for fault in faults(data)]
    assert any(f"the recovery point {end} is above the log end offset 0" in problem for problem in problems), problems


def test_a_directory_that_is_gone_is_a_fault(data: Path) -> None:
    (data / "recovery-point-offset-checkpoint").write_bytes(format_offsets({ORDERS: end_of(data), TopicPartition("gone", 1): 20}))
    (found,) = faults(data)
    assert (found.path, found.remedy) == (f"{data}/gone-1", None)
    assert "records up to offset 19" in found.problem
    (data / ".kafka_cleanshutdown").unlink()
    assert faults(data) == [], "the broker may have deleted it"


def test_a_segment_that_is_cut_between_two_batches_is_a_fault(tmp_path: Path) -> None:
    data = ours(tmp_path, transactions=False)
    cut = segments(data)[1]
    report = look(data).partitions[0]
    facts = next(facts for facts in report.segments if facts.base_offset == base_of(cut))
    with cut.open("r+b") as file:
        file.truncate(facts.size // facts.batches * (facts.batches - 2))
    assert any("missing" in fault.problem or fault.remedy is Remedy.CUT for fault in faults(data))


def test_gaps_of_a_compacted_log_are_no_fault(data: Path) -> None:
    """The cleaner's checkpoint says that the log was compacted, and nothing else of the segment is there."""
    gone = segments(data)[2]
    remove(gone, *FILES)
    assert any("unless the topic was compacted" in fault.problem for fault in faults(data))
    (data / "cleaner-offset-checkpoint").write_bytes(format_offsets({ORDERS: base_of(segments(data)[-1])}))
    assert faults(data) == []


def test_gaps_between_batches_say_that_a_gap_between_segments_is_no_fault(tmp_path: Path) -> None:
    data = tmp_path / "mirrored"
    (data / "orders-3").mkdir(parents=True)
    (data / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=x\n")
    log = open_log(data / "orders-3")
    append(log, b"a")
    log.log_end_offset = 5
    append(log, b"b")
    log.skip_to(9, NOW)
    append(log, b"c")
    log.close()
    assert faults(data) == []


def test_samples_of_apache_kafka_have_no_fault(tmp_path: Path) -> None:
    assert [fault for fault in faults(kafka(tmp_path)) if "missing" in fault.problem or "no log file" in fault.problem] == []
