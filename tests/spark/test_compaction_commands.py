"""`txbroker spark compaction-check` on brokers: every strategy, delete horizons, segment files beside the broker's answers, exit status."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer

from tests.cli.commands import run
from tests.spark.compaction_logs import without
from tests.support.broker import BrokerProcess
from tests.support.raw_admin import KEEP, create_topic
from tests.support.server import Server
from tests.support.waiting import until
from txbroker.log.checkpoints import CLEANER_OFFSETS, parse_offsets
from txbroker.names import TopicPartition
from txbroker.spark.compaction.digest import NO_HORIZON

pytestmark = pytest.mark.usefixtures("commands_share_the_session")

SEGMENT_BYTES = 1 << 20  # the least that Apache Kafka 4 accepts
KEYS, RECORDS = 7, 70
BIG = 40_000  # random bytes: three segments, and the rest in the active one


def fill(server: Server, topic: str) -> None:
    """Records whose versions and timestamps go up and down; key 6 is deleted in between, and for good at last."""
    producer = KafkaProducer(bootstrap_servers=server.address, batch_size=200_000, linger_ms=5)
    for i in range(RECORDS):
        value = None if i % KEYS == 6 and i % 3 == 0 else os.urandom(BIG)
        headers = [("version", struct.pack(">q", (i * 37) % 101))]
        producer.send(topic, value, b"key %d" % (i % KEYS), headers, 0, 1_800_000_000_000 + (i * 53) % 89)
    producer.send(topic, None, b"key 6", [("version", struct.pack(">q", 1000))], 0, 1_800_000_001_000)
    for _ in range(30):  # closes the segment of the last tombstone
        producer.send(topic, os.urandom(BIG), b"key 0", [("version", struct.pack(">q", 1))], 0, 1_800_000_000_000)
    producer.close()


def clean(server: Server, topics: list[str]) -> None:
    """Let the broker's cleaner work, and wait until it has cleaned all closed segments."""
    for topic in topics:
        change = ("--entity-type", "topics", "--entity-name", topic, "--alter", "--add-config", "min.cleanable.dirty.ratio=0.01")
        run("configs", "--bootstrap-server", server.address, *change)
    path = server.data / CLEANER_OFFSETS

    def is_clean() -> bool:
        found = parse_offsets(path.read_bytes()) if path.exists() else {}
        bases = {topic: max(int(log.stem) for log in server.partition_directory(topic).glob("*.log")) for topic in topics}
        return all(found.get(TopicPartition(topic, 0), 0) >= base > 0 for topic, base in bases.items())

    until(is_clean, "the topics are compacted")


def check(step: str, state: Path, *flags: str, status: int = 0) -> tuple[str, str, dict[str, Any]]:
    """Run the command: standard output and error, and the report."""
    report = state.parent / "report.json"
    found = run("spark", "compaction-check", f"--{step}", "--state", str(state), "--json", str(report), *flags, status=status)
    return *found, json.loads(report.read_text()) if report.exists() else {}


def horizons(spark: Any, state: Path) -> list[int]:
    return [row.horizon for row in spark.read.parquet(f"{state}/horizons").orderBy("offset").collect()]


def test_what_a_broker_compacts(spark: Any, broker: Server, name: str, tmp_path: Path) -> None:
    strategies = {f"{name}-{strategy}": {"compaction.strategy": strategy, "compaction.strategy.header": "version"}
                  for strategy in ("offset", "timestamp", "header")}
    if broker.kind != BrokerProcess.kind:
        strategies = {f"{name}-offset": {}}
    configs = {**KEEP, "cleanup.policy": "compact", "segment.bytes": str(SEGMENT_BYTES), "min.cleanable.dirty.ratio": "1",
               "message.timestamp.after.max.ms": str(2**62)}
    for topic, strategy in strategies.items():
        create_topic(broker, topic, configs={**configs, **strategy})
        fill(broker, topic)
    topics = list(strategies)
    source = ("--bootstrap-server", broker.address, "--include", f"{name}-.*")
    with_files = ("--bootstrap-server", broker.address, "--topic", topics[0], "--log-dir", f"one={broker.data}")
    output, _, report = check("before", tmp_path / "a", *source)
    assert f"{topics[0]}-0 [0, 101): " in output and "snapshot of " in output and report["step"] == "before"
    assert set(horizons(spark, tmp_path / "a")) == {NO_HORIZON}
    check("before", tmp_path / "b", *with_files)
    assert "has a snapshot already" in check("before", tmp_path / "b", *with_files, status=2)[1]
    assert "was taken without --log-dir" in check("after", tmp_path / "a", *with_files, status=2)[1]

    clean(broker, topics)
    for state, flags, checked in (("a", source, topics), ("b", with_files, topics[:1])):
        output, complaint, report = check("after", tmp_path / state, *flags)
        assert "all is well" in output and "WARN" not in complaint
        assert report["ok"] and not report["violations"] and not report["files"] and not report["differences"]
        assert [one["topic"] for one in report["partitions"]] == sorted(checked)
        assert all(one["rows_before"] == 101 and one["compacted"] > 40 for one in report["partitions"]), report
        assert all(one["kept"] + one["compacted"] == 101 for one in report["partitions"]), report
    check("before", tmp_path / "c", "--bootstrap-server", broker.address, "--topic", topics[0])
    (horizon,) = horizons(spark, tmp_path / "c")
    assert horizon > 1_800_000_000_000 / 2, "the one tombstone that is left has a delete horizon"


def test_what_a_broker_lost(spark: Any, start_broker: Any, name: str, tmp_path: Path) -> None:
    """Its files lose the latest record of a key, while it does not run."""
    server = start_broker()
    create_topic(server, name, configs={**KEEP, "cleanup.policy": "compact"})
    producer = KafkaProducer(bootstrap_servers=server.address)
    for i in range(9):
        producer.send(name, b"value %d" % i, b"key %d" % (i % 5), partition=0)
        producer.flush()
    producer.close()
    source = ("--bootstrap-server", server.address, "--topic", name)
    check("before", tmp_path / "state", *source)
    server.stop()
    cut(server.partition_directory(name))
    server.start()
    output, complaint, report = check("after", tmp_path / "state", *source, status=1)
    (found,) = report["violations"]
    # Apache Kafka does not show how far its cleaner has come.
    kind = "above_checkpoint" if server.kind == BrokerProcess.kind else "lost"
    assert (found["kind"], found["records"], found["first_offset"], found["examples"][0]["key"]) == (kind, 1, 7, "key 2")
    assert "something is wrong" in output and ": 1 record, offset 7 (key 2)" in complaint
    check("after", tmp_path / "nothing", *source, status=2)


def cut(directory: Path) -> None:
    """Remove record 7, and the indexes."""
    from txbroker.wire.entries import Scan, read_records
    from txbroker.wire.records import build

    (path,) = directory.glob("*.log")
    content = path.read_bytes()
    kept = [(header, without(7)(list(read_records(content, at, header, 10**9)))) for at, header in Scan(content)]
    path.write_bytes(b"".join(build(records, leader_epoch=header.leader_epoch) for header, records in kept if records))
    for index in (*directory.glob("*.index"), *directory.glob("*.timeindex")):
        index.unlink()
