"""Apache Kafka's Java client in a fault test: JavaClient.java, a process for each client."""

from __future__ import annotations

import subprocess
from pathlib import Path

from simulation.histories import from_line
from tests.cluster_faults.client import FaultClient
from tests.cluster_faults.journal import Journal
from tests.crash.ledger import Lost
from tests.support import java
from tests.support.cache import KAFKA_NEW
from tests.support.waiting import PATIENCE_S

JAVA_CLIENT = Path(__file__).parent / "JavaClient.java"


class JavaClient(FaultClient):
    """`produce` to a number of partitions, or `consume` as a member of `group`."""

    stop_timeout_s = PATIENCE_S * 2

    def __init__(
        self, name: str, bootstrap: str, topic: str, journal: Journal, classes: Path, *, partitions: int = 0, group: str = "",
    ) -> None:
        super().__init__(name, bootstrap, topic, journal)
        self.group = group
        role = ["consume", name, bootstrap, topic, group] if group else ["produce", name, bootstrap, topic, str(partitions)]
        self._command = [*java.class_path(KAFKA_NEW, classes, log_level="FATAL"), "JavaClient", *role]
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Begin."""
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        super().start()

    def stop(self) -> None:
        """Complete what is under way, and end."""
        self.abandon()
        super().stop()

    def abandon(self) -> None:
        """Ask the process to end."""
        self.end.set()
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    def kill(self) -> None:
        """End the process at once."""
        if self._process is not None:
            self._process.kill()

    def _run(self) -> None:
        assert self._process is not None and self._process.stdout is not None and self._process.stderr is not None
        for line in self._process.stdout:
            self._journal.add(from_line(line))
        status = self._process.wait()
        if status or not self.end.is_set():
            raise Lost(f"the Java client ended with {status}: {self._process.stderr.read()}")
