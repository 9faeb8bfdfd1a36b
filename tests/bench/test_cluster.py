"""What is made of the samples of the clusters' benchmarks."""

from __future__ import annotations

from pathlib import Path

from bench.brokers import KAFKA, TXBROKER
from bench.cluster import failing, page, producing
from bench.measures import Outcome, Settings


def test_a_later_run_of_one_part_keeps_the_samples_of_the_others(tmp_path: Path) -> None:
    idle = Outcome(failing.IDLE, {TXBROKER: [{"CPU": 0.01, "memory": 140.0}], KAFKA: [{"CPU": 0.1, "memory": 1000.0}]})
    produced = {"MiB/s": 20.0, "p99": 50.0, "CPU per GB": 9.0}
    produce = Outcome(producing.WORKS[1024], {TXBROKER: [produced], KAFKA: [produced | {"MiB/s": 10.0}]})
    page.write(tmp_path, [idle], Settings())
    page.write(tmp_path, [produce], Settings())
    text = (tmp_path / page.PAGE).read_text()
    assert "| cluster-idle | memory | 140 MB | 1,000 MB | 0.14 | - |  | <= 0.2 | yes |" in text
    assert "| cluster-produce-1024 | MiB/s | 20.0 MiB/s | 10.0 MiB/s | 2.00 |" in text
    assert "Apache Kafka 3.9.1" in text
    assert (tmp_path / page.PLOT).exists()
