"""The clients' folders, and running one."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from compat.matrix import FEATURES, Row

HERE = Path(__file__).parent
_TIMEOUT_S = 900.0  # of one client, its installation included
_COMPLAINT_CHARACTERS = 300


@dataclass(frozen=True)
class Client:
    """A folder, and a version other than the one that its `run` names."""

    folder: str
    version: str | None = None


CLIENTS = {
    "kafka_python": Client("kafka_python"),
    "confluent_kafka": Client("confluent_kafka"),
    "aiokafka": Client("aiokafka"),
    "kcat": Client("kcat"),
    "java_3_9_1": Client("java", "3.9.1"),
    "java_4_3_1": Client("java", "4.3.1"),
    "kafkajs": Client("kafkajs"),
    "franz_go": Client("franz_go"),
    "sarama": Client("sarama"),
}


def run_client(client: Client, address: str, features: Sequence[str], heard: Callable[[str], None]) -> Row:
    """Run a client's driver; `heard` is told each feature that is done. What the driver did not come to is a no."""
    environment = {**os.environ, "PYTHON": sys.executable}
    environment.pop("CLIENT_VERSION", None)
    if client.version is not None:
        environment["CLIENT_VERSION"] = client.version
    row = Row(client.folder)
    with tempfile.TemporaryFile("w+") as complaints:
        process = subprocess.Popen([HERE / client.folder / "run", address, *features], stdout=subprocess.PIPE, stderr=complaints, text=True,
                                   env=environment, process_group=0)
        watchdog = threading.Timer(_TIMEOUT_S, lambda: os.killpg(process.pid, 9))
        watchdog.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                feature = row.hear(line)
                if feature is not None:
                    heard(feature)
            status = process.wait()
        finally:
            watchdog.cancel()
            process.kill()
            process.wait()
        complaints.seek(0)
        last = complaints.read().strip()[-_COMPLAINT_CHARACTERS:]
    if status != 0:
        row.lack(features or FEATURES, f"the driver ended with {status}: {last}")
    row.lack(features or FEATURES, "the driver said nothing of it")
    return row
