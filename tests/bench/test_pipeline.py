"""What is made of the samples of the pipeline's benchmarks."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.brokers import KAFKA, TXBROKER
from bench.measures import Outcome, Settings
from bench.pipeline import loading, mirroring, page, upserting
from bench.report import read


def measured(work: str, **figures: tuple[float, float]) -> Outcome:
    """txbroker's value and Kafka's of each figure."""
    (found,) = [one for one in page.WORKS if one.name == work]
    names = {figure.key.replace(" ", "_").replace("/", "_"): figure.key for figure in found.figures}
    samples = {broker: [{names[key]: values[index] for key, values in figures.items()}] for index, broker in enumerate((TXBROKER, KAFKA))}
    return Outcome(found, samples)


@pytest.mark.parametrize(("ours", "verdict"), [(310.0, "3.10 | >= 3 | yes"), (290.0, "2.90 | >= 3 | no")])
def test_the_page_compares(ours: float, verdict: str) -> None:
    outcomes = [measured("mirror-kafka-lz4-128", MB_s_a_core=(ours, 100.0)), measured("load-delta", rows_s=(150.0, 100.0))]
    text = page.markdown(outcomes, Settings(rounds=5))
    assert f"| mirror-kafka-lz4-128 | MB/s a core | {ours:,.0f} MB/s | 100 MB/s | {verdict} |" in text
    assert "| load-delta | rows/s | 150 thousand/s | 100 thousand/s | 1.50 | >= 1 | yes |" in text
    assert "medians of 5 measurements" in text


def test_partitions_and_upserts() -> None:
    alone = Outcome(loading.WIDE[1000], {TXBROKER: [{"total": 30.0, "per partition": 30.0, "broker CPU": 1.5}]})
    upsert = Outcome(upserting.WORKS[0], {TXBROKER: [{"rows/s": 40.0, "total": 25.0, "broker CPU": 0.5}]})
    text = page.markdown([alone, upsert], Settings())
    assert "| 1,000 | 30.0 | 30 | 1.50 |" in text and "| upsert-fill | rows/s | 40.0 thousand/s |" in text


def test_a_part_that_is_measured_again_replaces_its_samples(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="plots are of the extra `bench`")
    load, mirror = measured("load-parquet", rows_s=(2.0, 1.0)), measured("mirror-kafka-none-16", MB_s=(2.0, 1.0))
    page.write(tmp_path, [load, mirror], Settings())
    page.write(tmp_path, [measured("load-parquet", rows_s=(3.0, 1.0))], Settings())
    again = read(tmp_path / page.SAMPLES, page.WORKS)
    assert [(one.bench.name, one.samples[TXBROKER]) for one in again] == [
        ("load-parquet", [{"rows/s": 3.0}]), ("mirror-kafka-none-16", [{"MB/s": 2.0}])
    ]  # fmt: skip
    assert (tmp_path / page.PLOT).read_text().startswith("<?xml")


def test_batches_are_records_of_the_stated_size() -> None:
    for codec in {case.codec for case in mirroring.CASES}:
        found = mirroring.batches(codec, 16)
        assert len(set(found)) == mirroring.DISTINCT_BATCHES
    plain = mirroring.batches(mirroring.Codec.NONE, 16)[0]
    assert abs(len(plain) / 16 / mirroring.RECORD_BYTES - 1) < 0.02
