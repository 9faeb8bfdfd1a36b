"""`compaction-check` on a standalone cluster: two worker processes read segments, and what a broker delivers."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.cleaner.logs import NOW
from tests.cli.commands import command
from tests.spark.compaction_logs import TOPIC, Directory, usual, without
from tests.spark.producing import PARTITIONS, produce
from tests.spark.standalone import WORKERS, Standalone, standalone
from tests.support.raw_admin import KEEP, create_topic
from tests.support.server import Server
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.process


def started(cluster: Standalone, argv: list[str], status: int = 0) -> subprocess.CompletedProcess[str]:
    ended = subprocess.run(argv, env=cluster.environment, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False)
    assert ended.returncode == status, ended.stderr
    return ended


def test_on_a_standalone_cluster(spark_jars: Path, broker: Server, name: str, tmp_path: Path) -> None:
    """Segment files with a lost record, by the command itself, and a topic under spark-submit."""
    create_topic(broker, name, PARTITIONS, {**KEEP, "cleanup.policy": "compact"})
    produce(broker, name, 30)
    data = Directory(tmp_path / "data")
    logs = {number: usual() for number in range(3)}
    for number, log in logs.items():
        data.write(number, log)
    report = tmp_path / "report.json"
    job = ("spark", "compaction-check")
    files = ("--topic", TOPIC, "--log-dir", str(data.path), "--topic-config", "delete.retention.ms=86400000", "--json", str(report),
             "--state", str(tmp_path / "files"))  # fmt: skip
    with standalone(tmp_path / "cluster") as cluster:
        here = (*job, "--master", cluster.url, "--jars", str(spark_jars), *files)
        started(cluster, command(*here, "--before"))
        for number, log in logs.items():
            data.clean(number, log, now_ms=NOW)
        data.edit(1, without(9))
        ended = started(cluster, command(*here, "--after"), status=1)
        assert "t-1 of" in ended.stderr and "offset 9 (k4)" in ended.stderr
        found = json.loads(report.read_text())
        assert [(one["kind"], one["partition"], one["first_offset"]) for one in found["violations"]] == [("lost", 1, 9)]
        topic = ("--bootstrap-server", broker.address, "--topic", name, "--state", str(tmp_path / "topic"), "--before")
        assert "snapshot of 30 records" in started(cluster, cluster.submit(spark_jars, *job, *topic)).stdout
        assert len({path.parent.parent for path in cluster.executors}) == WORKERS, "both workers had executors"
