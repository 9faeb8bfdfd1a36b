"""`make bench-pipeline` in its short form: every part measures something."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.pipeline import loading, mirroring, page, upserting
from bench.pipeline.main import main
from bench.report import read

pytestmark = pytest.mark.process


@pytest.mark.usefixtures("commands_share_the_session")
def test_a_short_run(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="plots are of the extra `bench`")
    results = tmp_path / "results"
    assert main(["--quick", "--results", str(results), "--directory", str(tmp_path)]) == 0
    names = [loading.LOADS["parquet"].name, loading.WIDE[1].name, *(work.name for work in upserting.WORKS),
             mirroring.WORKS[mirroring.CASES[-1]].name]  # fmt: skip
    found = read(results / page.SAMPLES, page.WORKS)
    assert [outcome.bench.name for outcome in found] == names
    for outcome in found:
        for samples in outcome.samples.values():
            assert all(figure.key in sample for sample in samples for figure in outcome.bench.figures), outcome
    text = (results / page.PAGE).read_text()
    assert all(f"`{name}`" in text or name.startswith("partitions-") for name in names)
    assert not list(tmp_path.glob("txbroker-pipeline-*")), "the brokers' data is deleted"
