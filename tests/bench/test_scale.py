"""What is made of the samples of a sweep: medians, growth, tables, and the same again from the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.measures import Settings
from bench.scale.sweep import Curve, Grown, Sweep
from bench.scale.writing import SAMPLES, markdown, read, size_table, write

CURVES = (Curve("cost", "µs", growth_max=1.3), Curve("start", "s", 2))
SWEEP = Sweep("things", "things of all sizes", "things", (1, 10), CURVES)


def grown(cost_at_10: float) -> Grown:
    made = Grown(SWEEP)
    for cost in (9.0, 10.0, 50.0):
        made.add("txbroker", 1, {"cost": cost, "others": 0.5})
        made.add("kafka", 1, {"cost": 2 * cost})
    made.add("txbroker", 10, {"cost": cost_at_10})
    made.add("txbroker", 10, {"start": 1.234})
    return made


def test_growth_is_of_medians() -> None:
    made = grown(12.0)
    assert made.value("txbroker", 1, "cost") == 10.0
    assert made.growth("txbroker", "cost") == pytest.approx(1.2)
    assert made.growth("kafka", "cost") is None
    assert made.value("kafka", 10, "cost") is None


@pytest.mark.parametrize(("cost", "verdict"), [(12.0, "<= 1.3: yes"), (13.5, "<= 1.3: no")])
def test_the_table_says_whether_growth_is_within_bounds(cost: float, verdict: str) -> None:
    lines = markdown([grown(cost)], Settings()).splitlines()
    (row,) = [line for line in lines if line.startswith("| cost, µs | txbroker")]
    assert verdict in row
    assert "1.23" in size_table(grown(cost), 10)


def test_samples_come_back_from_the_file(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="plots are of the extra `bench`")
    made = grown(12.0)
    write(tmp_path, [made], Settings())
    assert (tmp_path / "scale-things.svg").read_text().startswith("<?xml")
    (again,) = read(tmp_path / SAMPLES, [SWEEP])
    assert again.samples == made.samples
