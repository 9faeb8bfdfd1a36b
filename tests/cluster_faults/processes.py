"""`python -m tests.cluster_faults.processes`: processes of `txbroker run --processes` are killed at random under the load of `make chaos`.

One machine has one replica of each partition: clients wait until its process is back. After a failure the history and the data are kept.
"""

from __future__ import annotations

import argparse
import os
import random
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.cluster_faults.load import Load
from tests.crash.ledger import Lost
from tests.support.cluster import Cluster
from tests.support.processes import Processes
from tests.support.raw_admin import KEEP
from tests.support.server import Server, ServerFailed, free_port
from tests.support.waiting import until

TREE = "txbroker.tree_process"
OVERRIDES = {"broker.id": "1", "offsets.topic.num.partitions": "5", "transaction.state.log.num.partitions": "5"}


class _Member(Server):
    """One of the processes, for what looks at a broker's metadata. The process that has started it starts it again."""

    kind = Processes.kind

    def __init__(self, all_of_them: Processes, number: int) -> None:
        super().__init__(all_of_them.directory)
        self.port = all_of_them.port + number
        self.log_path = all_of_them.log_path
        self._all = all_of_them

    @property
    def running(self) -> bool:
        return self._all.running

    def _command(self) -> list[str]:
        raise NotImplementedError

    def _is_ready(self) -> bool:
        raise NotImplementedError


class ProcessCluster(Cluster):
    """The brokers of `--processes`, with ids from 1 on."""

    def __init__(self, directory: Path, count: int) -> None:
        super().__init__(directory, (), zookeepers=0)
        self.processes = Processes(directory / "processes", OVERRIDES)
        self.processes.count = count
        self.processes.port = free_port()
        self.brokers = {number + 1: _Member(self.processes, number) for number in range(count)}

    def start(self) -> None:
        self.processes.start()
        self.until_registered()

    def stop(self) -> None:
        assert self.processes.stop() == 0, self.processes.log_tail()

    def close(self) -> None:
        self.processes.close()

    def create_topic(self, topic: str, partitions: int = 1, replication_factor: int = 1, configs: Mapping[str, str] = KEEP) -> None:
        super().create_topic(topic, partitions, 1, {**configs, "min.insync.replicas": "1"})

    def names(self) -> list[str]:
        """A text in the command of each process: the server of the metadata first."""
        return [TREE, *(f"--override broker.id={number} " for number in self.brokers)]

    def kill(self, names: Iterable[str]) -> None:
        """Kill these processes at the same time, and wait until others run in their place."""
        before = {name: pid for name in names if (pid := self.processes.child(name))}
        for pid in before.values():
            os.kill(pid, signal.SIGKILL)
        for name, pid in before.items():
            until(lambda name=name, pid=pid: self.processes.child(name) not in (0, pid), f"{name} runs again")
        self.until_registered()


def run(cluster: ProcessCluster, kills: Iterable[Iterable[str]], *, full: bool) -> str:
    """Kill processes under load; each time all clients make progress. What was checked; Lost."""
    cluster.start()
    load = Load(cluster, full=full)
    try:
        load.start()
        for names in kills:
            started_s = time.monotonic()
            cluster.kill(names)
            load.wait_for_progress()
            print(f"   killed {' and '.join(names)} ({time.monotonic() - started_s:.1f} s)", flush=True)
        checked = load.finish()
    finally:
        load.abandon()
    cluster.stop()
    if "Traceback (most recent call last)" in cluster.processes.log():
        raise Lost(f"a process logged a traceback: {cluster.processes.log_path}")
    return checked


def at_random(cluster: ProcessCluster, chance: random.Random, end_s: float) -> Iterable[list[str]]:
    """One process, or several at the same time, until some time."""
    while time.monotonic() < end_s:
        time.sleep(chance.uniform(0, 2))
        yield chance.sample(cluster.names(), chance.choice((1, 1, 1, 2, len(cluster.names()))))


def main() -> int:
    """Exit status 0 without an anomaly."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster_faults.processes", description=__doc__)
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", default=secrets.token_hex(4))
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="txbroker-chaos-"))
    print(f"== {arguments.processes} processes (--seed {arguments.seed}), in {directory}", flush=True)
    cluster = ProcessCluster(directory, arguments.processes)
    try:
        kills = at_random(cluster, random.Random(arguments.seed), time.monotonic() + arguments.minutes * 60)
        print(run(cluster, kills, full=True), flush=True)
    except (Lost, ServerFailed, AssertionError, OSError) as problem:
        print(f"\nFAILED: {problem}\nHistory, data and logs are kept in {directory}", flush=True)
        return 1
    finally:
        cluster.close()
    shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
