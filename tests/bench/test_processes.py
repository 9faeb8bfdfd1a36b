"""What is made of the samples of several processes."""

from __future__ import annotations

from pathlib import Path

from bench import processes
from bench.brokers import KAFKA
from bench.measures import Outcome, Settings


def test_targets_of_applications_and_of_prepared_requests() -> None:
    kinds = {processes.ONE: 1000.0, processes.TWO: 1050.0, KAFKA: 1000.0}
    web = {kind: [{"records/s": rate, "p50": 1.0, "p99": 2.0, "CPU per record": 1e6 / rate}] for kind, rate in kinds.items()}
    stream = {kind: [{"MB/s": rate / 10, "CPU per record": 4.0}] for kind, rate in kinds.items()}
    outcomes = [Outcome(processes.LOADS["web"], web), Outcome(processes.LOADS["stream"], stream)]
    table = processes.table(outcomes)
    assert "| web | records/s | 1,000 | 1,050 | 1,000 | 1.05 | >= 1 | 1.05 | >= 1.1 |" in table
    assert "| web | CPU per record, µs | 1,000.0 | 952.4 | 1,000.0 | 0.95 | <= 1.1 | 0.95 |  |" in table
    assert "| stream | MB/s | 100.0 | 105.0 | 100.0 | 1.05 | >= 1 | 1.05 | >= 1.1 |" in table
    assert "| stream | 4.0 µs | 4,000,000 records/s | 16,000,000 records/s |" in processes.calculated(outcomes)


def test_the_page_has_the_ratios_and_what_more_cores_would_give(tmp_path: Path) -> None:
    def sample(rate: float, cpu_us: float) -> list[dict[str, float]]:
        return [{"requests/s": rate, "p50": 1.0, "p99": 2.0, "CPU per request": cpu_us}]

    samples = {processes.ONE: sample(100_000, 8.0), processes.TWO: sample(150_000, 10.0), KAFKA: sample(50_000, 30.0)}
    processes.write(tmp_path, [Outcome(processes.LOADS["produce-small"], samples)], Settings())
    processes.write(tmp_path, [Outcome(processes.MEMORY, {processes.TWO: [{"memory": 170.0}]})], Settings())
    text = (tmp_path / processes.PAGE).read_text()
    assert "| produce-small | requests/s | 100,000 | 150,000 | 50,000 | 1.50 | >= 1.3 | 3.00 | >= 2.5 |" in text
    assert "| produce-small | CPU per request, µs | 8.0 | 10.0 | 30.0 | 1.25 | <= 1.1 | 0.33 |  |" in text
    assert "| produce-small | 10.0 µs | 1,600,000 requests/s | 6,400,000 requests/s |" in text
    assert "| memory | memory, MB |  | 170 |" in text
    assert (tmp_path / processes.PLOT).exists()
