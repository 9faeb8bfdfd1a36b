"""A broker on the directories that Apache Kafka 3.9 wrote: aborted transactions, compacted and old formats."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

from tests.cli.commands import run
from tests.support.broker import BrokerProcess

GOLDEN = Path(__file__).parent.parent / "golden"
EXPECTED: dict[str, dict[str, Any]] = json.loads((GOLDEN / "logs" / "kafka-3.9.1.json").read_text())


def unpack(directory: Path) -> Path:
    """Its directories of partitions, in a new directory."""
    directory.mkdir()
    with tarfile.open(GOLDEN / "logs" / "kafka-3.9.1.tar.xz") as archive:
        archive.extractall(directory)  # a trusted archive
    shutil.copytree(GOLDEN / "kafka-3.9.1" / "data", directory, dirs_exist_ok=True)
    return directory


def serve(directory: Path) -> BrokerProcess:
    """A started broker, which leaves open the transactions that have timed out since Kafka wrote them."""
    server = BrokerProcess(directory, {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "86400000"})
    unpack(server.data)
    configs = ("--topic-config", "*:retention.ms=-1", "--topic-config", "s-compact:cleanup.policy=compact")
    run("import", "--log-dirs", str(server.data), *configs, "--yes")
    server.start()
    return server
