"""Directories of Apache Kafka 3.9 with every format and codec: imported without ZooKeeper, and read from a broker."""

from __future__ import annotations

import hashlib
import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE

from tests.cli.commands import run
from tests.handover.feeding import content
from tests.support.broker import BrokerProcess
from txbroker.log.clean_shutdown import FILE_NAME as CLEAN
from txbroker.names import parse_partition_directory

pytestmark = pytest.mark.process
GOLDEN = Path(__file__).parent.parent / "golden"
EXPECTED: dict[str, dict[str, Any]] = json.loads((GOLDEN / "logs" / "kafka-3.9.1.json").read_text())


def digest(records: list[tuple[Any, ...]]) -> dict[str, Any]:
    def text(value: bytes | None) -> str | None:
        return None if value is None else value.hex()

    # Records of format v0 have no timestamp: Kafka's client returns -1, librdkafka a timestamp type.
    lines = "".join(
        f"{offset} {-1 if kind == TIMESTAMP_NOT_AVAILABLE else timestamp} {text(key)} {text(value)}\n"
        for offset, (kind, timestamp), key, value, _ in records
    )
    return {"records": len(records), "digest": hashlib.sha256(lines.encode()).hexdigest()[:16]}


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_all_records_of_the_samples_are_served(tmp_path: Path, clean: bool) -> None:
    server = BrokerProcess(tmp_path / "broker")
    server.data.mkdir()
    with tarfile.open(GOLDEN / "logs" / "kafka-3.9.1.tar.xz") as archive:
        archive.extractall(server.data)  # a trusted archive; `filter` needs Python 3.11.4
    shutil.copytree(GOLDEN / "kafka-3.9.1" / "data", server.data, dirs_exist_ok=True)
    (server.data / CLEAN).unlink(missing_ok=True)
    if clean:
        (server.data / CLEAN).touch()
    else:
        (server.data / "recovery-point-offset-checkpoint").unlink()
    run("import", "--log-dirs", str(server.data), "--topic-config", "*:retention.ms=-1", "--yes")
    server.start()
    try:
        found = content(server)
        for name, expected in EXPECTED.items():
            topic_partition = parse_partition_directory(name)
            assert topic_partition is not None
            if topic_partition.topic.startswith("__"):
                continue
            assert found.starts[topic_partition][1] == expected["end_offset"], name
            for isolation in ("read_uncommitted", "read_committed"):
                if isolation in expected:
                    assert digest(found.records[isolation, *topic_partition]) == expected[isolation], (name, isolation)
    finally:
        server.close()
    assert "Traceback" not in server.log(), server.log_tail()
