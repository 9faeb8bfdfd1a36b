"""`txbroker audit keys` on a real broker with real groups, on its log directory, and with files for Spark."""

from __future__ import annotations

import base64
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

from tests.cli.commands import on_terminal, run
from tests.support.raw_admin import create_topic
from tests.support.server import Server

pytestmark = pytest.mark.process
BASE_MS = 1_700_000_000_000
UNPRIVILEGED = 65534


def produce(broker: Server, topic: str, records: list[tuple[int, bytes | None, bytes | None]], codec: str | None = None) -> None:
    """(partition, key, value), with the number of each as its version and in its timestamp."""
    with KafkaProducer(bootstrap_servers=broker.address, compression_type=codec, linger_ms=5, batch_size=2000) as producer:
        sent = [
            producer.send(topic, value, key, [("version", i.to_bytes(8, "big", signed=True))], partition, BASE_MS + i)
            for i, (partition, key, value) in enumerate(records)
        ]
        producer.flush()
        for future in sent:
            future.get(10)


def commit(broker: Server, group: str, topic: str, offsets: dict[int, int]) -> None:
    consumer = KafkaConsumer(bootstrap_servers=broker.address, group_id=group, enable_auto_commit=False)
    consumer.assign([TopicPartition(topic, partition) for partition in offsets])
    consumer.commit({TopicPartition(topic, partition): OffsetAndMetadata(offset, "", -1) for partition, offset in offsets.items()})
    consumer.close()


def rows(*flags: str, status: int = 0) -> tuple[dict[bytes, dict[str, Any]], dict[str, dict[str, Any]], dict[str, Any]]:
    """The keys, the groups and the totals of a run with --json."""
    output, complaint = run("audit", "keys", "--json", *flags, status=status)
    assert complaint == ""
    objects = [json.loads(line) for line in output.splitlines()]
    keys = {name(row["key"]): row for row in objects if "key" in row}
    return keys, {row["group"]: row for row in objects if "group" in row}, objects[-1]


def name(key: str | dict[str, str]) -> bytes:
    return key.encode() if isinstance(key, str) else base64.b64decode(key["base64"])


@pytest.fixture
def topic(broker: Server, name: str) -> str:
    """Two partitions: 40 keys, five values each, and twelve more records; the last value of some keys is a tombstone."""
    create_topic(broker, name, 2)
    records: list[tuple[int, bytes | None, bytes | None]] = [(i % 2, b"key-%02d" % (i % 40), b"v%d" % i) for i in range(200)]
    records += [(i % 2, b"key-%02d" % i, None) for i in range(10)] + [(0, b"\xff\x00", b"binary"), (0, None, b"no key")]
    produce(broker, name, records, codec="gzip")
    return name


def test_written_and_delivered_versions_of_keys(broker: Server, topic: str) -> None:
    commit(broker, f"{topic}-done", topic, {0: 107, 1: 105})
    commit(broker, f"{topic}-behind", topic, {0: 90, 1: 105})
    commit(broker, f"{topic}-half", topic, {0: 30})
    keys, groups, totals = rows("--bootstrap-server", broker.address, "--topic", topic, "--version-header", "version")
    assert len(keys) == 41
    assert totals == {"topic": topic, "keys": 41, "records": 212, "records_without_key": 1}
    four = keys[b"key-04"]
    assert (four["partition"], four["offset"], four["timestamp"], four["version"], four["deleted"]) == (0, 102, BASE_MS + 204, 204, True)
    assert four["groups"] == {
        f"{topic}-done": {"offset": 102, "timestamp": BASE_MS + 204, "version": 204, "deleted": True, "unseen": False},
        f"{topic}-behind": {"offset": 82, "timestamp": BASE_MS + 164, "version": 164, "deleted": False, "unseen": True},
        f"{topic}-half": {"offset": 22, "timestamp": BASE_MS + 44, "version": 44, "deleted": False, "unseen": True},
    }
    assert keys[b"key-05"]["groups"][f"{topic}-half"] == {
        "offset": None, "timestamp": None, "version": None, "deleted": None, "unseen": True,
    }  # fmt: skip
    assert keys[b"\xff\x00"]["offset"] == 105
    assert {group: (row["keys"], row["unseen"], row["never_delivered"]) for group, row in groups.items()} == {
        f"{topic}-done": (41, 0, 0),
        f"{topic}-behind": (41, sum(row["partition"] == 0 and row["offset"] >= 90 for row in keys.values()), 1),
        f"{topic}-half": (41, 41, 21),
    }
    assert groups[f"{topic}-done"]["oldest_unseen_ms"] is None
    assert groups[f"{topic}-half"]["oldest_unseen_ms"] > 0

    some, only, _ = rows("--bootstrap-server", broker.address, "--topic", topic, "--group", f"{topic}-behind", "--unseen")
    assert some.keys() == {key for key, row in keys.items() if row["partition"] == 0 and row["offset"] >= 90}
    assert only.keys() == {f"{topic}-behind"}
    assert only[f"{topic}-behind"]["unseen"] == groups[f"{topic}-behind"]["unseen"]


def test_named_keys_and_samples(broker: Server, topic: str, tmp_path: Path) -> None:
    flags = ("--bootstrap-server", broker.address, "--topic", topic, "--no-groups")
    everything = rows(*flags)[0]
    file = tmp_path / "keys"
    file.write_text("key-01\nkey-02\n")
    named = (b"key-01", b"key-02", b"key-03")
    assert rows(*flags, "--keys-file", str(file), "--key", "key-03")[0] == {key: everything[key] for key in named}
    assert rows(*flags, "--key", "ff00", "--key-encoding", "hex")[0] == {b"\xff\x00": everything[b"\xff\x00"]}
    assert rows(*flags, "--key", "/wA=", "--key-encoding", "base64")[0] == {b"\xff\x00": everything[b"\xff\x00"]}
    sample = rows(*flags, "--sample", "1/3")[0]
    assert sample == rows(*flags, "--sample", "1/3")[0]
    assert 0 < len(sample) < 41
    assert sample.items() <= everything.items()
    output, complaint = run("audit", "keys", *flags, "--key", "missing")
    assert "key missing is not in" in complaint
    assert output.splitlines()[-1].startswith("0 keys in 212 records")


def test_a_table_and_the_summary_alone(broker: Server, topic: str) -> None:
    commit(broker, f"{topic}-g", topic, {0: 107, 1: 90})
    flags = ("audit", "keys", "--bootstrap-server", broker.address, "--topic", topic)
    lines = run(*flags, "--key", "key-01")[0].splitlines()
    assert lines[0].split() == [
        "PARTITION", "KEY", "OFFSET", "TIMESTAMP", "VERSION", "DELETED", "GROUP", "DELIVERED-OFFSET", "DELIVERED-TIMESTAMP",
        "DELIVERED-VERSION", "UNSEEN",
    ]  # fmt: skip
    assert lines[1].split() == ["1", "key-01", "100", str(BASE_MS + 201), "-", "true", f"{topic}-g", "80", str(BASE_MS + 161), "-", "true"]
    assert lines[-1] == "1 key in 212 records, 1 of them without a key"
    assert run(*flags)[0].count("DELIVERED-OFFSET") == 1, "one header for the keys of both partitions"
    summary = run(*flags, "--summary")[0].splitlines()
    assert summary[1].split()[:3] == [f"{topic}-g", "41", "15"]
    assert "key-01" in on_terminal(*flags, "--key", "key-01", columns=200)


def test_files_for_spark(broker: Server, topic: str, tmp_path: Path) -> None:
    commit(broker, f"{topic}-g", topic, {0: 107, 1: 90})
    keys = rows("--bootstrap-server", broker.address, "--topic", topic, "--version-header", "version")[0]
    for suffix in ("arrow", "parquet"):
        path = tmp_path / f"audit.{suffix}"
        flags = ("--bootstrap-server", broker.address, "--topic", topic, "--version-header", "version", "--output", str(path))
        assert "41 keys in 212 records" in run("audit", "keys", *flags)[0]
        table = pyarrow.ipc.open_file(path).read_all() if suffix == "arrow" else pyarrow.parquet.read_table(path)
        read = {row["key"]: row for row in table.to_pylist()}
        assert read.keys() == keys.keys()
        for key, row in keys.items():
            given = row["groups"][f"{topic}-g"]
            found = read[key]
            assert (found["topic"], found["group"], found["partition"]) == (topic, f"{topic}-g", row["partition"])
            assert (found["offset"], found["version"], found["deleted"]) == (row["offset"], row["version"], row["deleted"])
            assert found["timestamp"].timestamp() * 1000 == row["timestamp"]
            assert (found["delivered_offset"], found["delivered_version"]) == (given["offset"], given["version"])
            assert found["unseen"] == given["unseen"]
        assert [each.name for each in tmp_path.iterdir() if each.name.endswith(".partial")] == []


def test_a_log_directory_gives_the_same_results_without_the_broker(start_broker: Callable[..., Server], name: str) -> None:
    broker = start_broker({"log.segment.bytes": str(1 << 20), "offsets.topic.num.partitions": "3"})
    create_topic(broker, name, 2)
    produce(broker, name, [(i % 2, b"key-%02d" % (i % 40), b"v" * 16_000) for i in range(400)])
    commit(broker, f"{name}-g", name, {0: 190, 1: 120})
    asked = rows("--bootstrap-server", broker.address, "--topic", name)
    broker.stop()
    directory = str(next(broker.directory.rglob(f"{name}-0")).parent)
    looked = rows("--log-dir", directory, "--topic", name)
    assert len(list((Path(directory) / f"{name}-0").glob("*.log"))) > 2, "there are several segments"
    assert looked[0] == asked[0]
    assert looked[2] == asked[2]
    assert {group: row["unseen"] for group, row in looked[1].items()} == {group: row["unseen"] for group, row in asked[1].items()}
    assert rows("--log-dir", directory, "--topic", name, "--unseen")[0].keys() == {
        key for key, row in asked[0].items() if row["groups"][f"{name}-g"]["unseen"]
    }


def test_the_latest_value_is_the_one_that_compaction_keeps(start_broker: Callable[..., Server], name: str) -> None:
    """Versions 1, 3 and 2 are written; a group has read version 3."""
    broker = start_broker()
    if broker.kind != "txbroker":
        pytest.skip("compaction.strategy (KIP-280) is not in Apache Kafka")
    server = ("--bootstrap-server", broker.address)
    create_topic(broker, name, 1, {"cleanup.policy": "compact", "compaction.strategy": "header", "compaction.strategy.header": "v"})
    with KafkaProducer(bootstrap_servers=broker.address) as producer:
        for at, version in enumerate((1, 3, 2)):
            headers = [("v", version.to_bytes(8, "big"))]
            producer.send(name, b"%d" % version, b"key", headers, 0, BASE_MS - at).get(10)
    commit(broker, f"{name}-g", name, {0: 2})
    keys, groups, _ = rows(*server, "--topic", name)
    key = keys[b"key"]
    assert (key["offset"], key["version"], key["groups"][f"{name}-g"]["unseen"]) == (1, 3, False)
    assert groups[f"{name}-g"]["unseen"] == 0
    assert rows(*server, "--topic", name, "--unseen")[0] == {}
    chosen = {each: rows(*server, "--topic", name, "--compaction-strategy", each)[0] for each in ("offset", "timestamp", "header")}
    assert {strategy: found[b"key"]["offset"] for strategy, found in chosen.items()} == {"offset": 2, "timestamp": 0, "header": 1}
    assert chosen["offset"][b"key"]["groups"][f"{name}-g"]["unseen"] is True
    broker.stop()
    directory = str(next(broker.directory.rglob(f"{name}-0")).parent)
    assert rows("--log-dir", directory, "--topic", name)[0] == keys
    problem = run("audit", "keys", "--log-dir", directory, "--topic", "__consumer_offsets", "--compaction-strategy", "header", status=2)[1]
    assert "--compaction-strategy header needs --version-header" in problem


@pytest.mark.parametrize("inner", [False, True])
def test_a_directory_without_permission(inner: bool, tmp_path: Path) -> None:
    directory = Path(tempfile.mkdtemp())
    try:
        partition = directory / "topic-0"
        partition.mkdir()
        (partition / f"{0:020d}.log").write_bytes(b"")
        directory.chmod(0o755)
        (partition if inner else directory).chmod(0)
        run("audit", "keys", "--log-dir", str(tmp_path), "--topic", "topic", status=1)  # imports modules that another user cannot read
        user = os.geteuid()
        os.seteuid(UNPRIVILEGED if user == 0 else user)
        try:
            complaint = run("audit", "keys", "--log-dir", str(directory), "--topic", "topic", status=1)[1]
        finally:
            os.seteuid(user)
        where = f"{partition}" if inner else f"{directory}"
        assert f"{where} cannot be read: Permission denied; run this as the user that the broker runs as" in complaint
    finally:
        directory.chmod(0o755)
        (directory / "topic-0").chmod(0o755)
        shutil.rmtree(directory)


def test_invalid_combinations_of_arguments(broker: Server, topic: str, tmp_path: Path) -> None:
    server = ("--bootstrap-server", broker.address)

    def complaint(*flags: str, status: int) -> str:
        return run("audit", "keys", *flags, status=status)[1]

    assert "does not exist" in complaint(*server, "--topic", "nowhere", status=1)
    assert "exactly one of --bootstrap-server and --log-dir" in complaint("--topic", topic, status=2)
    assert "cannot be combined" in complaint(*server, "--topic", topic, "--sample", "1/2", "--key", "a", status=2)
    assert "must end with .arrow or .parquet" in complaint(*server, "--topic", topic, "--output", "x.csv", status=2)
    assert "is not hex" in complaint(*server, "--topic", topic, "--key", "xyz", "--key-encoding", "hex", status=2)
    assert "has no committed offset" in complaint(*server, "--topic", topic, "--group", f"{topic}-none", status=1)
    assert "leave out --unseen, which is about groups" in complaint(*server, "--topic", topic, "--unseen", status=1)
    assert "no partition of" in complaint("--log-dir", str(tmp_path), "--topic", topic, status=1)
    missing = tmp_path / "missing" / "x.parquet"
    assert "cannot be written" in complaint(*server, "--topic", topic, "--output", str(missing), status=1)


def test_a_missing_pyarrow_is_reported(broker: Server, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    flags = ("--bootstrap-server", broker.address, "--topic", topic, "--output", str(tmp_path / "x.parquet"))
    assert "-m pip install pyarrow" in run("audit", "keys", *flags, status=1)[1]
