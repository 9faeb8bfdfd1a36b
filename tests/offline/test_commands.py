"""The commands: output, exit statuses and messages for wrong usage."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.log.support import NOW, corrupt
from tests.offline.support import KAFKA, ours, segments
from txbroker.cli.main import main


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return ours(tmp_path)


@pytest.fixture
def log(capsysbinary: pytest.CaptureFixture[bytes]) -> Any:
    """Runs `txbroker log ...`: exit status, lines of standard output, standard error."""

    def run(*arguments: object) -> tuple[int, list[str], str]:
        try:
            status = main(["log", *map(str, arguments)])
        except SystemExit as exited:
            status = int(exited.code or 0)
        printed = capsysbinary.readouterr()
        return status, printed.out.decode().splitlines(), printed.err.decode()

    return run


def test_verify_reports_as_table_and_json(data: Path, log: Any) -> None:
    size = sum(path.stat().st_size for path in segments(data))
    assert log("verify", data)[:2] == (0, [f"1 partition, 4 segments, 192 records in 72 batches, {size:,} bytes: no fault"])
    segments(data)[0].with_suffix(".index").unlink()
    status, lines, _ = log("verify", data)
    assert status == 1
    assert lines[0].split() == ["KIND", "FILE", "POSITION", "PROBLEM", "REPAIR"]
    assert "fault orders-3/00000000000000000000.index - " in " ".join(lines[1].split())
    assert lines[-1].endswith(": 1 fault")
    status, lines, _ = log("verify", data, "--json")
    rows = [json.loads(line) for line in lines]
    assert rows[0]["problem"] == "the file is missing"
    assert rows[-1]["faults"] == 1


def test_repair_shows_its_plan_and_needs_yes(data: Path, log: Any) -> None:
    last = segments(data)[-1]
    torn = last.read_bytes()[:-5]
    last.write_bytes(torn)
    status, lines, _ = log("repair", data)
    assert status == 1
    assert lines[-1].endswith("; specify --yes to execute them")
    assert last.read_bytes() == torn
    assert not list((data / "orders-3").glob("*.cut-at-*"))
    status, lines, errors = log("repair", data, "--yes")
    assert (status, errors) == (0, "")
    assert lines[-1].endswith("no fault remains")
    assert list((data / "orders-3").glob("*.cut-at-*"))
    assert log("repair", data) == (0, ["there is nothing to repair"], "")
    assert log("verify", data)[0] == 0


def test_repair_refuses_directories_of_kraft(data: Path, log: Any) -> None:
    (data / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\ndirectory.id=y\n")
    segments(data)[0].with_suffix(".index").unlink()
    assert log("verify", data)[0] == 1
    status, _, errors = log("repair", data, "--yes")
    assert status == 1
    assert "only read" in errors


def test_extract_writes_json_lines(data: Path, log: Any, tmp_path: Path) -> None:
    status, lines, errors = log("extract", data)
    assert (status, errors) == (0, "")
    first = json.loads(lines[0])
    assert first == {
        "topic": "orders", "partition": 3, "offset": 0, "timestamp": NOW, "timestamp_type": "CreateTime",
        "key": "k0", "value": "0.0" * 10, "headers": [],
    }  # fmt: skip
    output = tmp_path / "out.jsonl"
    assert log("extract", data, "--output", output) == (0, [f"wrote {len(lines)} records of 1 partition to {output}"], "")
    assert output.read_text().splitlines() == lines
    assert log("extract", data, "--from-offset", 7, "--to-offset", 9)[1] == lines[7:9]
    late = [line for line in lines if json.loads(line)["timestamp"] >= NOW + 50]
    assert log("extract", data, "--from-time", "2023-11-14T22:13:20.050Z")[1] == late != []


def decoded(value: str | dict[str, str] | None) -> bytes | None:
    """The bytes of a JSON value."""
    return base64.b64decode(value["base64"]) if isinstance(value, dict) else value if value is None else value.encode()


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
def test_extract_writes_arrow_and_parquet(log: Any, tmp_path: Path, kind: str) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    output = tmp_path / f"out.{kind}"
    status, printed, _ = log("extract", KAFKA, "--output", output)
    assert status == 0
    table = parquet.read_table(output) if kind == "parquet" else pyarrow.ipc.open_file(output).read_all()
    rows = table.to_pylist()
    expected = [json.loads(line) for line in log("extract", KAFKA)[1]]
    assert len(rows) == len(expected) > 1000
    assert printed == [f"wrote {len(rows):,} records of 10 partitions to {output}"]
    for row, wanted in zip(rows, expected, strict=True):
        assert (row["topic"], row["partition"], row["offset"], row["timestamp_type"]) == (
            wanted["topic"], wanted["partition"], wanted["offset"], wanted["timestamp_type"]
        )
        assert row["value"] == decoded(wanted["value"])
        assert [(header["key"], header["value"]) for header in row["headers"]] == [
            (header["key"], decoded(header["value"])) for header in wanted["headers"]
        ]
        assert (None if row["timestamp"] is None else row["timestamp"].timestamp() * 1000) == wanted["timestamp"]
    assert list(tmp_path.glob("*.partial")) == []


def test_extract_reports_missing_libraries_and_wrong_flags(data: Path, log: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert log("extract", data, "--output", "x.csv")[0] == 2
    assert log("extract", data, "--from-offset", 5, "--to-offset", 4)[0] == 2
    assert log("extract", data, "--key-encoding", "utf-8")[0] == 2, "JSON has text wherever it can"
    status, _, errors = log("extract", data, "--output", tmp_path / "none" / "x.jsonl")
    assert (status, "cannot be written" in errors) == (1, True)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    status, _, errors = log("extract", data, "--output", tmp_path / "x.parquet")
    assert (status, "-m pip install pyarrow" in errors) == (1, True)


def test_extract_reports_what_it_skipped(data: Path, log: Any) -> None:
    corrupt(segments(data)[0], 100, b"\xff\xff\xff")
    status, lines, errors = log("extract", data)
    assert status == 1
    assert len(lines) == 60 * 3 + 6 - 3
    assert "skipped bytes 0 to" in errors and "skipped 1 damaged range; see `txbroker log verify`" in errors


def test_binary_values_in_a_text_column_are_refused_and_leave_no_file(log: Any, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    output = tmp_path / "x.arrow"
    status, _, errors = log("extract", KAFKA, "--topic", "__consumer_offsets", "--value-encoding", "utf-8", "--output", output)
    assert (status, "use --value-encoding binary" in errors) == (1, True)
    assert list(tmp_path.glob("x.arrow*")) == []


def test_stats_as_table_json_and_plot(data: Path, log: Any, tmp_path: Path) -> None:
    status, lines, _ = log("stats", data)
    assert status == 0
    assert lines[1].split()[:2] == ["orders-3", "4"]
    (row,) = [json.loads(line) for line in log("stats", data, "--json")[1]]
    assert (row["records"], row["keys"], row["obsolete_records"], row["codecs"]["none"]["records"]) == (186, 8, 178, 186)
    assert log("stats", data, "--plot", "x.txt")[0] == 2
    pytest.importorskip("matplotlib")
    picture = tmp_path / "x.png"
    assert log("stats", data, "--plot", picture)[0] == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_a_plot_is_refused_before_the_files_are_read(data: Path, log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    status, lines, errors = log("stats", data, "--plot", "x.png")
    assert (status, lines, "-m pip install matplotlib" in errors) == (1, [], True)


def test_directories_of_other_programs_are_no_log_directories(tmp_path: Path, log: Any) -> None:
    for name in ("dbus-1", "polkit-1"):
        (tmp_path / name / "rules.d").mkdir(parents=True)
    for tool in ("stats", "verify", "extract", "repair"):
        for path in (tmp_path, tmp_path / "dbus-1"):
            status, _, errors = log(tool, path)
            assert (status, "is not a log directory" in errors) == (2, True), (tool, path)
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=1\n")
    assert log("stats", tmp_path / "dbus-1")[0] == 0, "an empty directory of a partition"
    assert log("stats", tmp_path, "--topic", "none")[0] == 2


def test_wrong_paths_are_wrong_usage(tmp_path: Path, data: Path, log: Any) -> None:
    for tool in ("verify", "repair", "extract", "stats"):
        assert log(tool, tmp_path / "nothing")[0] == 2
        assert log(tool, data, "--partition", "3")[0] == 2
        assert log(tool, data, "--topic", "other")[0] == 2
        assert log(tool, data, "--topic", "orders", "--partition", "3")[0] == 0
    for tool in ("repair", "extract", "stats"):
        assert log(tool, segments(data)[0])[0] == 2
    assert log()[0] == 2


def test_the_dry_run_of_the_cleaner_changes_nothing(data: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    settings = ("--topic-config", "cleanup.policy=compact")
    assert main(["log-cleaner", "--dry-run", "--log-dir", str(data), "--topic", "orders", "--roll", "--json", *settings]) == 0
    *records, summary = [json.loads(line) for line in capsysbinary.readouterr().out.decode().splitlines()]
    assert summary["records"] == len(records) > 100
    assert {record["reason"] for record in records} >= {"obsolete", "aborted"}
    assert {path: path.read_bytes() for path in data.rglob("*") if path.is_file()} == before
