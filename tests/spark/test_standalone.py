"""Every job on a standalone master with two workers, as processes: all of them under spark-submit, and a load and a replay with kills."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cleaner.logs import NOW
from tests.spark.compaction_logs import TOPIC, Directory, usual, without
from tests.spark.crash import CrashTest
from tests.spark.producing import PARTITIONS, produce
from tests.spark.replays import received, until_written
from tests.spark.standalone import WORKERS, Standalone, executor_processes, standalone
from tests.support import cache
from tests.support.cache import CHECKOUT
from tests.support.raw_admin import KEEP, create_topic
from tests.support.server import Server
from tests.support.waiting import PATIENCE_S, until
from txbroker.client.client_machine import ClientSettings

pytestmark = pytest.mark.process

RECORDS = 1600  # of the replay


class Ended(NamedTuple):
    """A command that has ended. `report`: its --json, None without one."""

    status: int
    output: str
    complaint: str
    report: dict[str, object] | None


@pytest.fixture(scope="module")
def cluster(spark_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """The master and its workers."""
    with standalone(tmp_path_factory.mktemp("standalone") / "cluster") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def jobs(cluster: Standalone, shared_broker: Server, spark_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    """One program with one session that runs every job, since the start of a driver takes as long as several jobs."""
    place = tmp_path_factory.mktemp("jobs")
    servers = ("--bootstrap-server", shared_broker.address)
    for topic in ("clustered", "clustered-again"):
        create_topic(shared_broker, topic, PARTITIONS, KEEP)
    produce(shared_broker, "clustered", 30)
    before, after = Directory(place / "data"), Directory(place / "cleaned")
    log = usual()
    for directory in (before, after):
        directory.write(0, log)
    after.clean(0, log, now_ms=NOW)
    after.edit(0, without(9))
    raw, latest = (str(place / name) for name in ("raw", "latest"))
    files = ("--topic", TOPIC, "--log-dir", f"one={place / 'data'}")
    check = ("compaction-check", *files, "--topic-config", "delete.retention.ms=86400000", "--state", str(place / "state"))
    commands = {
        "load": ("load", *servers, "--topic", "clustered", "--table", raw),
        "upsert": ("upsert", "--from-table", raw, *servers, "--table", latest),
        "audit": ("audit", *servers, "--topic", "clustered", "--table", raw),
        "replicas": ("audit", *files, "--against-log-dir", f"two={place / 'cleaned'}"),
        "replay": ("replay", "--from-table", raw, "--to-bootstrap-server", shared_broker.address, "--to-topic", "clustered-again"),
        "before": (*check, "--before"),
        "after": (*check, "--after"),
    }
    steps: list[list[str]] = []
    for name, command in commands.items():
        if name == "after":
            steps += [["rename", str(place / "data"), str(place / "old")], ["rename", str(place / "cleaned"), str(place / "data")]]
        steps.append(["spark", *command, "--json", str(place / f"{name}.json")])
    (place / "steps").write_text(json.dumps(steps))
    program = shutil.copy(CHECKOUT / "tests" / "spark" / "cluster_jobs.py", place)
    argv = cluster.submit(spark_jars, Path(program), str(place / "steps"), str(place / "results"))
    ended = subprocess.run(argv, env=cluster.environment, capture_output=True, text=True, timeout=4 * PATIENCE_S, check=False)
    assert ended.returncode == 0, ended.stderr[-5000:]
    found = {}
    for name, (status, output, complaint) in zip(commands, json.loads((place / "results").read_text()), strict=True):
        report = place / f"{name}.json"
        found[name] = Ended(status, output, complaint, json.loads(report.read_text()) if report.exists() else None)
    return found


TESTS = """
import sys, time
from pathlib import Path
from tests.spark.standalone import HOST, Standalone, free_port
port = free_port()
print(Standalone(Path(sys.argv[1]), port).start("master.Master", "--host", HOST, "--port", str(port), "--webui-port", "0").pid, flush=True)
time.sleep(3600)
"""


def test_the_cluster_ends_when_the_tests_are_killed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", TESTS, str(tmp_path)], cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as tests:
        assert tests.stdout is not None
        master = Path("/proc", tests.stdout.readline().strip(), "cmdline")
        log = tmp_path / "cluster.log"
        until(lambda: "New state: ALIVE" in log.read_text(), "the master of Spark runs")
        assert "master.Master" in master.read_text()
        tests.kill()
    until(lambda: not master.exists() or not master.read_text(), "the master ends")


def test_load(jobs: dict[str, Ended], cluster: Standalone) -> None:
    assert jobs["load"].status == 0, jobs["load"].complaint
    assert "30 rows of 30 offsets in 3 partitions loaded" in jobs["load"].output
    assert len({path.parent.parent for path in cluster.executors}) == WORKERS, "both workers had executors"


def test_upsert(jobs: dict[str, Ended]) -> None:
    assert jobs["upsert"].status == 0, jobs["upsert"].complaint
    assert "30 records of 30 keys read: 30 inserted, 0 updated, 0 unchanged" in jobs["upsert"].output


def test_audit(jobs: dict[str, Ended]) -> None:
    """Of the table, and of two replicas, of which the second one has lost a record."""
    assert jobs["audit"].status == 0, jobs["audit"].complaint
    assert "30 records equal in clustered" in jobs["audit"].output and "nothing is wrong" in jobs["audit"].output
    assert jobs["replicas"].status == 1, jobs["replicas"].complaint
    assert "t-0: 1 record written and not delivered, the first at offset 9" in jobs["replicas"].complaint


def test_replay(jobs: dict[str, Ended], shared_broker: Server) -> None:
    assert jobs["replay"].status == 0, jobs["replay"].complaint
    assert received(shared_broker, "clustered-again") == received(shared_broker, "clustered")


def test_compaction_check(jobs: dict[str, Ended]) -> None:
    """Of segment files, before and after a pass that loses the latest record of a key."""
    assert jobs["before"].status == 0 and "snapshot of 16 records" in jobs["before"].output
    assert jobs["after"].status == 1 and "t-0 of one: lost: 1 record, offset 9" in jobs["after"].complaint
    report = jobs["after"].report
    assert report is not None
    (found,) = report["violations"]  # type: ignore[misc]
    assert (found["kind"], found["partition"], found["first_offset"]) == ("lost", 0, 9)


def test_a_load_whose_executor_is_killed(cluster: Standalone, broker: Server, tmp_path: Path) -> None:
    """A part of `make crash-spark`: an executor is killed while the load reads, and the load finishes."""
    loads = CrashTest(broker, cluster, tmp_path / "table", "delta", random.Random(1))
    assert "an executor was killed, and the load finished" in loads.round("executor", 0)


@contextmanager
def few_bytes(broker: Server) -> Iterator[None]:
    """A quota of the clients that a replay writes with."""

    def alter(*change: str) -> None:
        command = (sys.executable, "-m", "txbroker", "configs", "--bootstrap-server", broker.address, "--alter",
                   "--entity-type", "clients", "--entity-name", ClientSettings().client_id, *change)  # fmt: skip
        subprocess.run(command, check=True, timeout=PATIENCE_S, stdout=subprocess.DEVNULL)

    alter("--add-config", "producer_byte_rate=5000")
    try:
        yield
    finally:
        alter("--delete-config", "producer_byte_rate")


def test_a_replay_whose_executor_is_killed(cluster: Standalone, broker: Server, name: str) -> None:
    """The replay goes on with another executor, and no record is lost or doubled. A quota makes it last until the kill."""
    for topic in (name, f"{name}-to"):
        create_topic(broker, topic, 2, KEEP)
    produce(broker, name, RECORDS, 2)
    command = [sys.executable, "-m", "tests.spark.killed_replay", str(cache.jar_directory(cache.SPARK)), str(cache.pyspark()), cluster.url,
               broker.address, name, f"{name}-to"]  # fmt: skip
    replay = subprocess.Popen(command, cwd=CHECKOUT, env=cluster.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        with few_bytes(broker):
            until_written(broker, f"{name}-to", RECORDS // 10, replay)
            assert replay.stdout is not None
            application = replay.stdout.readline().strip()
            os.kill(executor_processes(application)[0], signal.SIGKILL)
            assert replay.poll() is None, "the replay is still at work"
        _, complaint = replay.communicate(timeout=2 * PATIENCE_S)
    finally:
        replay.kill()
    assert replay.returncode == 0, complaint[-3000:]
    assert received(broker, f"{name}-to") == received(broker, name)
