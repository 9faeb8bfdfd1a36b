"""Spark's standalone cluster as processes of its own: a master and two workers with one core each."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.support import cache
from tests.support.cache import CHECKOUT
from tests.support.java import SHORT_LIVED
from tests.support.parent_end import end_with_parent
from tests.support.server import HOST, free_port
from tests.support.waiting import PATIENCE_S, until

WORKERS = 2


class Standalone:
    """A running cluster. `url`: for --master; `environment`: of a job, whose executors are small and start soon."""

    def __init__(self, directory: Path, port: int) -> None:
        self.url = f"spark://{HOST}:{port}"
        self.log = directory / "cluster.log"
        self._directory = directory
        self._home = cache.pyspark() / "pyspark"
        settings = directory / "conf"
        settings.mkdir()
        (settings / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in {
            "spark.executor.memory": "512m",
            "spark.driver.memory": "512m",
            "spark.sql.shuffle.partitions": "2",
            "spark.databricks.delta.snapshotPartitions": "2",
            "spark.executor.extraJavaOptions": " ".join(SHORT_LIVED),
            "spark.driver.extraJavaOptions": " ".join(SHORT_LIVED),
        }.items()))  # fmt: skip
        self.environment: Mapping[str, str] = {
            **os.environ, "SPARK_HOME": str(self._home), "SPARK_CONF_DIR": str(settings), "SPARK_LOCAL_IP": HOST, "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": " ".join(SHORT_LIVED), "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join([str(CHECKOUT), str(cache.pyspark())]),
        }  # fmt: skip

    @property
    def executors(self) -> set[Path]:
        """The directories of the executors that the workers have started so far, which are named by application and number."""
        return {path.parent for path in self._directory.glob("worker-*/app-*/*/stderr")}

    def start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        """A process of the cluster, which is the leader of a group of its own, and ends with the tests."""
        command = [str(self._home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
        with self.log.open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=self.environment, start_new_session=True,
                                    preexec_fn=end_with_parent)  # fmt: skip

    def submit(self, jars: Path, program: Path, *arguments: str) -> list[str]:
        """The command line of a program with these arguments under spark-submit, in client mode."""
        names = ",".join(str(path) for path in sorted(jars.glob("*.jar")))
        return [str(self._home / "bin" / "spark-submit"), "--master", self.url, "--jars", names, str(program), *arguments]


@contextmanager
def standalone(directory: Path) -> Iterator[Standalone]:
    """Start a cluster, wait until both workers have registered, and end all of its processes."""
    directory.mkdir()
    port = free_port()
    cluster = Standalone(directory, port)
    with ExitStack() as ended:
        master = cluster.start("master.Master", "--host", HOST, "--port", str(port), "--webui-port", "0")
        ended.callback(_end, master)
        until(lambda: "New state: ALIVE" in _log(cluster, master), "the master of Spark runs")
        for number in range(WORKERS):
            place = ("--work-dir", str(directory / f"worker-{number}"))
            ended.callback(_end, cluster.start(
                "worker.Worker", "--host", HOST, "--webui-port", "0", "--cores", "1", "--memory", "1g", *place, cluster.url))  # fmt: skip
        until(lambda: _log(cluster, master).count("Registering worker") == WORKERS, "the workers of Spark have registered")
        yield cluster


def executor_processes(application: str) -> list[int]:
    """The processes of the executors of an application, by its id."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            arguments = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue  # it has ended
        if "org.apache.spark.executor.CoarseGrainedExecutorBackend" in arguments and application in arguments:
            found.append(int(path.parent.name))
    return found


def _log(cluster: Standalone, master: subprocess.Popen[bytes]) -> str:
    text = cluster.log.read_text(errors="replace")
    assert master.poll() is None, text
    return text


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process with what it has started: executors, and their Python workers."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(PATIENCE_S)
