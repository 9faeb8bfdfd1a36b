"""`load --every`: rounds of loads at fixed times, until a signal, and the small files that they make."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from tests.cli.commands import ENVIRONMENT
from tests.spark.loads import Load, offsets, summary, whole
from tests.spark.producing import produce
from tests.support import cache
from tests.support.java import SHORT_LIVED
from tests.support.raw_admin import create_topic
from tests.support.server import Server
from txbroker.console.failures import CommandFailed
from txbroker.spark.load import LoadOptions, LoadReport
from txbroker.spark.load_loop import load_every
from txbroker.spark.load_metrics import LoadMetrics
from txbroker.spark.tables.opening import open_table
from txbroker.spark.topic_source import TopicSource


class Between:
    """Runs the steps of a test between the rounds, one at each wait, and ends the loop after the last one. Keeps how long waits were."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        self._steps = list(steps)
        self.waits: list[float] = []

    def is_set(self) -> bool:
        return not self._steps

    def wait(self, timeout: float) -> bool:
        self.waits.append(timeout)
        self._steps.pop(0)()
        return False


def test_rounds_keep_to_the_times_and_go_on_when_the_broker_is_back(
    spark: Any, start_broker: Callable[..., Server], name: str, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = start_broker()
    create_topic(broker, name, 3)
    produce(broker, name, 30)
    options = LoadOptions(TopicSource(broker.address, [name]), str(table), format="parquet")
    between = Between(lambda: produce(broker, name, 3), lambda: None, broker.stop, lambda: (broker.start(), produce(broker, name, 3)))
    # Rounds last 2 s, 70 s, and no time.
    clock = iter([100.0, 102.0, 102.0, 230.0, 230.0, 230.0, 230.0, 290.0, 290.0, 350.0])
    rounds: list[LoadReport] = []
    metrics = LoadMetrics(options.source.snapshot, time.time)
    found = load_every(spark, options, 60, between, rounds.append, metrics=metrics, monotonic_s=lambda: next(clock))
    assert between.waits == [58, 0, 60, 60]
    loaded = [sorted({(start, end) for _, start, end, _ in summary(one)}) for one in rounds]
    assert loaded == [[(0, 10)], [(10, 11)], [], [(11, 12)]]
    assert (found.count, found.rows, found.wrong) == (4, 36, False)
    assert offsets(spark, table) == whole(name, 12)
    assert "trying again in 60 s" in capsys.readouterr().err
    counted = {name: metrics.registry.get_sample_value(f"txbroker_load_{name}_total") for name in ("rounds", "commits", "retries", "rows")}
    assert counted == {"rounds": 4, "commits": 3, "retries": 1, "rows": 36}
    assert metrics.registry.get_sample_value("txbroker_load_lag_records", {"topic": name, "partition": "0"}) == 0


def test_another_failure_ends_the_rounds(spark: Any, broker: Server, topic: str, table: Path) -> None:
    table.mkdir()
    options = LoadOptions(TopicSource(broker.address, [topic]), str(table))
    with pytest.raises(CommandFailed, match="is not empty and has no table"):
        load_every(spark, options, 1, Between((table / "file").touch), lambda _: (table / "_delta_log").rename(table / "other"))


def test_a_signal_ends_the_command_after_the_round(spark: Any, spark_jars: Path, broker: Server, topic: str, table: Path,
                                                   tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    code = f"import sys; sys.path.append({str(cache.pyspark())!r}); from txbroker.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "spark", "load", "--bootstrap-server", broker.address, "--topic", topic, "--table", str(table),
               "--master", "local[2]", "--jars", str(spark_jars), "--format", "parquet", "--every", "1", "--json", str(report)]  # fmt: skip
    environment = {**ENVIRONMENT, "JAVA_TOOL_OPTIONS": " ".join(SHORT_LIVED)}
    process = subprocess.Popen(command, cwd=cache.CHECKOUT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip())
        if line.startswith("30 rows of 30 offsets"):
            os.kill(process.pid, signal.SIGTERM)
    _, complaint = process.communicate(timeout=120)
    assert process.returncode == 0, complaint[-3000:]
    assert not [line for line in complaint.splitlines() if " offsets (" not in line], "only progress: what the JVM prints is in its log"
    assert lines[-2] == "30 rows of 30 offsets in 3 partitions loaded"
    assert lines[-1].startswith("stopped after") and lines[-1].endswith("with 30 rows")
    written = json.loads(report.read_text())
    assert written["ok"] and written["rows"] == 30
    assert offsets(spark, table) == whole(topic, 10)


@pytest.mark.parametrize("form", ["delta", "parquet"])
def test_small_files_are_compacted(spark: Any, broker: Server, topic: str, table: Path, loading: Load, form: str) -> None:
    assert loading(format=form, compact=4).compacted == 0
    produce(broker, topic, 3)
    files = set(open_table(spark, str(table)).read().inputFiles())
    assert len(files) == 3
    report = loading(compact=4)
    assert report.compacted == 6 and not report.wrong
    after = set(open_table(spark, str(table)).read().inputFiles())
    assert len(after) < 4 and not after & files
    assert all(Path(unquote(urlsplit(name).path)).exists() for name in files), "readers may still use them"
    assert offsets(spark, table) == whole(topic, 11)
    produce(broker, topic, 3)
    loading()
    assert offsets(spark, table) == whole(topic, 12)
