"""RESULTS.md and its samples: real clients come first, and what is not measured again keeps its samples."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.__main__ import BENCHES, MEMORY, _write
from bench.measures import Outcome, Settings
from bench.report import by_machine, read

WORKS = {work.name: work for work in [*BENCHES, MEMORY]}


def outcome(load: str, ours: float, theirs: float) -> Outcome:
    """The same value for each figure of a load."""
    values = {"txbroker": ours, "kafka": theirs}
    return Outcome(WORKS[load], {name: [{figure.key: value for figure in WORKS[load].figures}] for name, value in values.items()})


def test_real_clients_come_first(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="plots are of the extra `bench`")
    _write(tmp_path, [outcome("start", 1.0, 4.0), outcome("web", 3000.0, 2000.0)], Settings(rounds=7))
    text = (tmp_path / "RESULTS.md").read_text()
    real, rest = text.split("## Start, memory and single requests")
    assert "| web | records/s | 3,000 records/s | 2,000 records/s | 1.50 | >= 1.1 | yes |" in real
    assert "| start | start | 1.00 s | 4.00 s | 0.25 | <= 0.15 | no |" in rest.split("## Loads")[0]
    assert "after 15 s of each load" in real


def test_a_load_that_is_measured_again_replaces_its_samples(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="plots are of the extra `bench`")
    samples = tmp_path / "results.jsonl"
    _write(tmp_path, [outcome("web", 1.0, 2.0), outcome("start", 1.0, 4.0)], Settings())
    samples.write_text(samples.read_text() + '{"bench": "a load of the past", "broker": "kafka", "round": 0, "MB/s": 1.0}\n')
    _write(tmp_path, [outcome("web", 3.0, 2.0)], Settings())
    kept = {one.bench.name: one.samples["txbroker"][0] for one in read(samples, WORKS.values())}
    assert list(kept) == ["web", "start"]
    assert kept["web"]["records/s"] == 3.0 and kept["start"]["start"] == 1.0
    assert "a load of the past" not in samples.read_text()


def test_loads_that_were_measured_on_another_machine_are_apart(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="plots are of the extra `bench`")
    web, start = outcome("web", 3.0, 2.0), outcome("start", 1.0, 4.0)
    web.machine, start.machine = "cores 64", "cores 2"
    _write(tmp_path, [start], Settings())
    _write(tmp_path, [web], Settings())
    before, apart = (tmp_path / "RESULTS.md").read_text().split("## Measured earlier, on another machine")
    assert "Machine: cores 64;" in before and "| web |" in before and "| start |" not in before
    assert "Machine: cores 2." in apart and "| start |" in apart
    assert [one.machine for one in by_machine(read(tmp_path / "results.jsonl", WORKS.values()))[0]] == ["cores 64"]
