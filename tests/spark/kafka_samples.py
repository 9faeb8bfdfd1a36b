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


def serve(directory: Path) -> BrokerProcess:
    """A started broker."""
    server = BrokerProcess(directory)
    server.data.mkdir()
    with tarfile.open(GOLDEN / "logs" / "kafka-3.9.1.tar.xz") as archive:
        archive.extractall(server.data)  # a trusted archive
    shutil.copytree(GOLDEN / "kafka-3.9.1" / "data", server.data, dirs_exist_ok=True)
    configs = ("--topic-config", "*:retention.ms=-1", "--topic-config", "s-compact:cleanup.policy=compact")
    run("import", "--log-dirs", str(server.data), *configs, "--yes")
    server.start()
    return server
