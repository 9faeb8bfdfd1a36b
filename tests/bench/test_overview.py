"""README's figures are those of the committed results."""

from __future__ import annotations

from pathlib import Path

from bench import overview
from bench.__main__ import BENCHES, HERE, MEMORY, README, REAL
from bench.report import by_machine, read


def test_readme_has_the_committed_figures(tmp_path: Path) -> None:
    outcomes = read(HERE / "results.jsonl", [*BENCHES, MEMORY])
    copy = tmp_path / "README.md"
    copy.write_text(README.read_text())
    overview.update(copy, by_machine(outcomes)[0])
    assert copy.read_text() == README.read_text(), "python -m bench --redraw"


def test_the_table_is_of_real_clients_starts_and_memory() -> None:
    figures = {(bench.name, figure.key) for bench in BENCHES for figure in bench.figures}
    assert [shown for shown in overview.SHOWN if shown[:2] not in figures] == []
    assert {load for load, _, _ in overview.SHOWN} - {bench.name for bench in REAL} == {"start", "start-full"}


def test_the_table_follows_the_results(tmp_path: Path) -> None:
    outcomes = read(HERE / "results.jsonl", [*BENCHES, MEMORY])
    (start,) = [outcome for outcome in outcomes if outcome.bench.name == "start"]
    start.samples = {"txbroker": [{"start": 1.0}], "kafka": [{"start": 4.0}]}
    copy = tmp_path / "README.md"
    copy.write_text(README.read_text())
    overview.update(copy, [start])
    assert "| start on an empty directory | 1.00 s | 4.00 s | 0.25 |\n<!-- end of figures -->\n" in copy.read_text()
    assert copy.read_text().startswith("# txbroker\n") and copy.read_text().endswith("Software Foundation.\n")
