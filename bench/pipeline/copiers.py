"""`txbroker mirror` and Apache Kafka's MirrorMaker 2, each as a process that copies one topic from a broker to another."""

from __future__ import annotations

import subprocess
import sys
from abc import ABC, abstractmethod
from pathlib import Path

from bench.brokers import KAFKA_JAVA_OPTIONS
from tests.support import java
from tests.support.cache import CHECKOUT, KAFKA_CONNECT
from tests.support.server import Server

STOP_S = 60.0
# What MirrorMaker's start script sets; the last -Xms and -Xmx count.
JAVA_OPTIONS = (*KAFKA_JAVA_OPTIONS, "-Xms256M", "-Xmx2G")
# Larger batches and polls than Connect's defaults, with which MirrorMaker copies faster. What it does besides copying is off.
MIRROR_MAKER = """\
clusters={source}, {target}
{source}.bootstrap.servers={source_address}
{target}.bootstrap.servers={target_address}
{source}->{target}.enabled=true
{source}->{target}.topics={topic}
{source}->{target}.emit.heartbeats.enabled=false
{source}->{target}.emit.checkpoints.enabled=false
tasks.max={tasks}
replication.factor=1
offset-syncs.topic.replication.factor=1
checkpoints.topic.replication.factor=1
heartbeats.topic.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
config.storage.replication.factor=1
{source}.consumer.max.poll.records=5000
{source}.consumer.max.partition.fetch.bytes=4194304
{target}.producer.compression.type={codec}
{target}.producer.batch.size=262144
{target}.producer.linger.ms=20
{target}.producer.buffer.memory=134217728
"""
TASKS = 2


class Copier(ABC):
    """One run. `copy`: the name of the topic on the target."""

    copy: str

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def pid(self) -> int:
        """The process id, after `start`."""
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process; what it writes is in the directory."""
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(self._command(), stdout=log, stderr=log, cwd=CHECKOUT)

    def stop(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def log_tail(self) -> str:
        """The end of what the process has written."""
        return (self._directory / "log").read_text(errors="replace")[-3000:]

    @abstractmethod
    def _command(self) -> list[str]:
        """The command line."""


class TxbrokerMirror(Copier):
    """`txbroker mirror` with its defaults."""

    def __init__(self, source: Server, target: Server, topic: str, directory: Path) -> None:
        super().__init__(directory)
        self.copy = topic
        self._between = ["--from", source.address, "--to", target.address]

    def _command(self) -> list[str]:
        return [sys.executable, "-m", "txbroker", "mirror", *self._between, "--topic", self.copy]


class MirrorMaker(Copier):
    """MirrorMaker 2 in dedicated mode. A directory is used once: the source's alias, and so what it stores on the target, has its name."""

    def __init__(self, source: Server, target: Server, topic: str, codec: str, directory: Path) -> None:
        super().__init__(directory)
        alias = directory.name
        self.copy = f"{alias}.{topic}"
        self._properties = directory / "mm2.properties"
        self._properties.write_text(
            MIRROR_MAKER.format(source=alias, target="target", source_address=source.address, target_address=target.address, topic=topic,
                                codec=codec, tasks=TASKS)
        )  # fmt: skip

    def _command(self) -> list[str]:
        return java.command("connect-mirror-maker", KAFKA_CONNECT, [str(self._properties)], options=JAVA_OPTIONS)
