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


def check(cluster: Standalone, jars: Path, step: str, *flags: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    argv = command("spark", "compaction-check", f"--{step}", "--master", cluster.url, "--jars", str(jars), *flags)
    ended = subprocess.run(argv, env=cluster.environment, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False)
    assert ended.returncode == status, ended.stderr
    return ended


def test_on_a_standalone_cluster(spark_jars: Path, broker: Server, name: str, tmp_path: Path) -> None:
    create_topic(broker, name, PARTITIONS, {**KEEP, "cleanup.policy": "compact"})
    produce(broker, name, 30)
    data = Directory(tmp_path / "data")
    logs = {number: usual() for number in range(3)}
    for number, log in logs.items():
        data.write(number, log)
    topic = ("--bootstrap-server", broker.address, "--topic", name, "--state", str(tmp_path / "topic"))
    directories = ("--log-dir", str(data.path), "--topic-config", "delete.retention.ms=86400000")
    files = ("--topic", TOPIC, *directories, "--state", str(tmp_path / "files"))
    with standalone(tmp_path / "cluster") as cluster:
        assert "snapshot of 30 records" in check(cluster, spark_jars, "before", *topic).stdout
        check(cluster, spark_jars, "before", *files)
        for number, log in logs.items():
            data.clean(number, log, now_ms=NOW)
        data.edit(1, without(9))
        report = tmp_path / "report.json"
        ended = check(cluster, spark_jars, "after", *files, "--json", str(report), status=1)
        assert "t-1 of" in ended.stderr and "offset 9 (k4)" in ended.stderr
        found = json.loads(report.read_text())
        assert [(one["kind"], one["partition"], one["first_offset"]) for one in found["violations"]] == [("lost", 1, 9)]
        submitted = cluster.submit(spark_jars, "spark", "compaction-check", "--after", *topic)
        last = subprocess.run(submitted, env=cluster.environment, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False)
        assert last.returncode == 0 and "30 records of 3 partitions checked: all is well" in last.stdout, last.stderr
        workers = {path.parent.parent for path in cluster.executors}
        assert len(workers) == WORKERS, "both workers had executors"
