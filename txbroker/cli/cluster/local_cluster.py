"""The processes of a cluster on this machine: ZooKeeper and N brokers, their files, start and stop."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from txbroker.cli.cluster import zookeeper_server
from txbroker.cli.cluster.server_process import ServerProcess, ended
from txbroker.console.failures import CommandFailed
from txbroker.signals import SignalledEvent

HOST = "127.0.0.1"
STOP_TIMEOUT_S = 120.0
_POLL_S = 0.05
_STOPPED_BY_SIGTERM = (0, 143)  # a broker, and a JVM

_PROPERTIES = """\
# Written by `txbroker cluster` at every start: set other values with its flag --override.
# To start this broker again after it ended: txbroker run --config {file}
"""


class Plan(NamedTuple):
    """What to start. Broker i of `brokers` listens on `port` + i - 1. `overrides` apply to every broker."""

    directory: Path
    brokers: int
    port: int
    zookeeper_port: int
    overrides: Mapping[str, str]

    @property
    def addresses(self) -> dict[int, tuple[str, int]]:
        """The address of each broker, by its id."""
        return {broker_id: (HOST, self.port + broker_id - 1) for broker_id in range(1, self.brokers + 1)}

    @property
    def bootstrap(self) -> str:
        """bootstrap.servers."""
        return ",".join(f"{host}:{port}" for host, port in self.addresses.values())

    @property
    def zookeeper(self) -> str:
        """zookeeper.connect."""
        return f"{HOST}:{self.zookeeper_port}"

    def broker_directory(self, broker_id: int) -> Path:
        """The directory of a broker, with its configuration, data and log."""
        return self.directory / f"broker-{broker_id}"

    def properties(self, broker_id: int) -> dict[str, str]:
        """The configuration of a broker: three replicas by default, and short waits, since nothing here is far away."""
        host, port = self.addresses[broker_id]
        replicas = min(self.brokers, 3)
        return {
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://{host}:{port}",
            "log.dirs": str(self.broker_directory(broker_id) / "data"),
            "zookeeper.connect": self.zookeeper,
            "zookeeper.session.timeout.ms": "6000",
            "default.replication.factor": str(replicas),
            "offsets.topic.replication.factor": str(replicas),
            "transaction.state.log.replication.factor": str(replicas),
            "transaction.state.log.min.isr": str(min(replicas, 2)),
            "min.insync.replicas": str(min(replicas, 2)),
            "group.initial.rebalance.delay.ms": "0",
            **self.overrides,
        }


class LocalCluster:
    """Starts and stops the processes. `announce` gets sentences about what it does; `hurry` ends the wait for a clean stop."""

    def __init__(self, plan: Plan, announce: Callable[[str], None], hurry: SignalledEvent) -> None:
        self._plan = plan
        self._announce = announce
        self._hurry = hurry
        self._zookeeper: ServerProcess | None = None
        self._brokers: dict[int, ServerProcess] = {}

    def start(self, stop: SignalledEvent) -> None:
        """Start ZooKeeper, and when it accepts connections the brokers, unless `stop` is set. CommandFailed."""
        plan = self._plan
        _check_ports([plan.zookeeper_port, *(port for _, port in plan.addresses.values())])
        directory = plan.directory / "zookeeper"
        directory.mkdir(parents=True, exist_ok=True)
        command = zookeeper_server.command(directory, HOST, plan.zookeeper_port, zookeeper_server.jars(self._announce))
        self._zookeeper = ServerProcess("ZooKeeper", command, directory / "zookeeper.log")
        self._zookeeper.start()
        while not _accepts(plan.zookeeper_port):
            self.check_zookeeper()
            if stop.wait(_POLL_S):
                return
        for broker_id in plan.addresses:
            self._brokers[broker_id] = self._start_broker(broker_id)

    def check_zookeeper(self) -> None:
        """CommandFailed if ZooKeeper has ended."""
        assert self._zookeeper is not None
        if not self._zookeeper.running:
            raise self._zookeeper.failure()

    def check_brokers(self) -> None:
        """CommandFailed if a broker has ended."""
        for broker in self._brokers.values():
            if not broker.running:
                raise broker.failure()

    def states(self, answering: frozenset[int], listed: frozenset[int]) -> dict[int, str]:
        """What each broker does, for people. `answering`: the ids of those that answer; `listed`: of those in the cluster's metadata."""
        return {broker_id: self._state(broker_id, broker_id in answering, broker_id in listed) for broker_id in self._brokers}

    def stop(self) -> list[str]:
        """Stop the brokers one after the other, each of which hands its leadership over, then ZooKeeper. What did not end cleanly."""
        return [text for process in self._processes() for text in self._stop(process)]

    def _processes(self) -> Iterator[ServerProcess]:
        yield from self._brokers.values()
        if self._zookeeper is not None:
            yield self._zookeeper

    def _start_broker(self, broker_id: int) -> ServerProcess:
        directory = self._plan.broker_directory(broker_id)
        directory.mkdir(parents=True, exist_ok=True)
        file, ready = directory / "server.properties", self._ready_file(broker_id)
        values = "".join(f"{key}={value}\n" for key, value in self._plan.properties(broker_id).items())
        file.write_text(_PROPERTIES.format(file=file) + values)
        ready.unlink(missing_ok=True)
        command = [sys.executable, "-m", "txbroker", "run", "--config", str(file), "--ready-file", str(ready)]
        process = ServerProcess(f"broker {broker_id}", command, directory / "broker.log")
        process.start()
        return process

    def _ready_file(self, broker_id: int) -> Path:
        return self._plan.broker_directory(broker_id) / "ready"

    def _state(self, broker_id: int, answers: bool, listed: bool) -> str:
        process = self._brokers[broker_id]
        if not process.running:
            return "running, started by hand" if answers and listed else ended(process.status)
        if answers:
            return f"running (pid {process.pid})" if listed else "registering"
        return "does not answer" if self._ready_file(broker_id).exists() else "starting"

    def _stop(self, process: ServerProcess) -> Iterator[str]:
        if not process.running:
            return
        process.terminate()
        deadline_s = time.monotonic() + STOP_TIMEOUT_S
        while process.running and not self._hurry.wait(_POLL_S):
            if time.monotonic() > deadline_s:
                yield f"{process.name} did not stop within {STOP_TIMEOUT_S:.0f} s and was killed; see {process.log}"
                process.kill()
                return
        process.kill()
        if not self._hurry.is_set() and process.status not in _STOPPED_BY_SIGTERM:
            yield f"{process.name} {ended(process.status)}; see {process.log}"


def _check_ports(ports: list[int]) -> None:
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError as error:
                raise CommandFailed(f"port {port} of {HOST} cannot be used ({error.strerror}); stop the process that listens there, "
                                    "or choose others with --port and --zookeeper-port") from error


def _accepts(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), 1).close()
    except OSError:
        return False
    return True
