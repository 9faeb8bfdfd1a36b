"""What is made of the samples of the clusters' benchmarks, and a short run that measures how they grow."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.brokers import KAFKA, TXBROKER
from bench.cluster import failing, growth, page, producing
from bench.cluster.main import main
from bench.measures import Outcome, Settings
from bench.scale import writing
from bench.scale.sweep import Grown


def test_a_later_run_of_one_part_keeps_the_samples_of_the_others(tmp_path: Path) -> None:
    idle = Outcome(failing.IDLE, {TXBROKER: [{"CPU": 0.01, "memory": 140.0}], KAFKA: [{"CPU": 0.1, "memory": 1000.0}]})
    produced = {"MiB/s": 20.0, "p99": 50.0, "CPU per GB": 9.0}
    produce = Outcome(producing.WORKS[1024], {TXBROKER: [produced], KAFKA: [produced | {"MiB/s": 10.0}]})
    page.write(tmp_path, [idle], [], Settings())
    page.write(tmp_path, [produce], [], Settings())
    text = (tmp_path / page.PAGE).read_text()
    assert "| cluster-idle | memory | 140 MB | 1,000 MB | 0.14 | - |  | <= 0.2 | yes |" in text
    assert "| cluster-produce-1024 | MiB/s | 20.0 MiB/s | 10.0 MiB/s | 2.00 |" in text
    assert "Apache Kafka 3.9.1" in text
    assert (tmp_path / page.PLOT).exists()


def test_the_growth_of_one_sweep_keeps_the_samples_of_the_others(tmp_path: Path) -> None:
    others = {curve.key: 1.0 for curve in growth.CURVES}
    partitions, _, brokers = (Grown(sweep) for sweep in growth.SWEEPS)
    for size, restart_s in ((100, 1.0), (5_000, 8.0)):
        partitions.add(TXBROKER, size, others | {"restart": restart_s})
        partitions.add(KAFKA, size, others | {"restart": 3 * restart_s})
    brokers.add(TXBROKER, 3, others | {"restart": 2.0})
    page.write(tmp_path, [], [partitions], Settings())
    page.write(tmp_path, [], [brokers], Settings())
    text = (tmp_path / page.PAGE).read_text()
    assert "| restart, s | txbroker | 1.0 | 8.0 | 8.00 |" in text
    assert "| restart, s | kafka | 3.0 | 24.0 | 8.00 |" in text
    for sweep in (partitions.sweep, brokers.sweep):
        assert f"({page.GROWTH_PLOTS}-{sweep.name}.svg)" in text
        assert (tmp_path / f"{page.GROWTH_PLOTS}-{sweep.name}.svg").exists()


@pytest.mark.process
def test_a_short_run_measures_how_both_brokers_grow(tmp_path: Path) -> None:
    results = tmp_path / "results"
    assert main(["growth-replicas", "--quick", "--results", str(results), "--directory", str(tmp_path)]) == 0
    (grown,) = writing.read(results / page.GROWTH_SAMPLES, growth.SWEEPS)
    for broker in (TXBROKER, KAFKA):
        (sample,) = grown.samples[broker][1]
        assert all(curve.key in sample for curve in growth.CURVES), sample
        assert sample["written"] > 0
    assert not list(tmp_path.glob("txbroker-clusters-*")), "the brokers' data is deleted"
