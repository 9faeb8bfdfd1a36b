"""The offline tools on directories of Apache Kafka 4.3 (KRaft) and of our broker: Kafka's dump tool says the same, line by line."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support import java
from tests.support.cache import KAFKA_NEW, KAFKA_OLD
from tests.support.kafka import KafkaOldProcess, KafkaProcess
from tests.support.server import Server
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.process

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def txbroker(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "txbroker", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def same_dump(release: str, paths: list[Path], *flags: str) -> str:
    """What both tools print of these files; they must print the same."""
    assert paths
    names = ",".join(map(str, paths))
    theirs = java.run("kafka-dump-log", *flags, "--files", names, release=release)
    ours = txbroker("dump-log", *flags, "--files", names)
    assert ours.stdout.splitlines() == theirs.splitlines()
    return ours.stdout


def fill(address: str) -> None:
    """Topics of every codec, transactions, a compacted topic, a classic group and one of the new protocol, that left."""
    admin = AdminClient({"bootstrap.servers": address})
    made = admin.create_topics([NewTopic(name, num_partitions=1, replication_factor=1) for name in ("plain", "kept")])
    for future in made.values():
        future.result(PATIENCE_S)
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": address, "compression.type": codec, "enable.idempotence": True, "linger.ms": 20})
        for number in range(100):
            headers = [("h", codec.encode()), ("none", None)]
            producer.produce("plain", f"value {number} of {codec}" * 3, f"key-{number % 7}", headers=headers)
        producer.flush(PATIENCE_S)
    for committed in (True, False):
        producer = Producer({"bootstrap.servers": address, "transactional.id": f"t-{committed}"})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("kept", f"committed: {committed}", "k")
        producer.flush(PATIENCE_S)
        (producer.commit_transaction if committed else producer.abort_transaction)(30)


def consume(address: str, group: str, protocol: str) -> None:
    consumer = Consumer({
        "bootstrap.servers": address, "group.id": group, "group.protocol": protocol, "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    })  # fmt: skip
    consumer.subscribe(["plain"])
    seen = 0
    while seen < 500:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert message.error() is None, message.error()
        seen += 1
    consumer.commit(asynchronous=False)
    consumer.close()


@pytest.fixture(scope="module")
def kraft(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data directory of a KRaft node that was stopped."""
    server = KafkaProcess(tmp_path_factory.mktemp("kraft"), {"metadata.log.max.record.bytes.between.snapshots": "2000"})
    server.start()
    try:
        fill(server.address)
        consume(server.address, "classic", "classic")
        consume(server.address, "new", "consumer")
        running = json.loads(txbroker("log", "verify", server.data, "--json").stdout.splitlines()[-1])
        assert running["faults"] == 0, "a running broker's directory"
        server.stop()
        yield server.data
    finally:
        server.kill()


def test_a_kraft_directory_has_no_fault_and_is_only_read(kraft: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in kraft.rglob("*") if path.is_file()}
    verified = txbroker("log", "verify", kraft)
    assert (verified.returncode, verified.stderr) == (0, ""), verified.stdout
    assert "it belongs to a KRaft node" in verified.stdout
    repaired = txbroker("log", "repair", kraft, "--yes")
    assert (repaired.returncode, "is only read" in repaired.stderr) == (1, True)
    records = [json.loads(line) for line in txbroker("log", "extract", kraft / "kept-0", "--committed-only").stdout.splitlines()]
    assert len(records) == 1
    stats = [json.loads(line) for line in txbroker("log", "stats", kraft, "--topic", "plain", "--json").stdout.splitlines()]
    assert (stats[0]["records"], stats[0]["keys"], sorted(stats[0]["codecs"])) == (500, 7, sorted(CODECS))
    assert {path: path.stat().st_mtime_ns for path in kraft.rglob("*") if path.is_file()} == before


def test_the_metadata_log_and_its_snapshots_are_dumped_as_kafka_does(kraft: Path) -> None:
    log = same_dump(KAFKA_NEW, sorted(kraft.glob("__cluster_metadata-0/*.log")), "--cluster-metadata-decoder")
    for name in ("REGISTER_BROKER", "TOPIC", "PARTITION", "FEATURE_LEVEL", "NO_OP", "PRODUCER_IDS"):
        assert f'"type":"{name}_RECORD"' in log
    snapshots = [*sorted(kraft.glob("__cluster_metadata-0/*.checkpoint")), kraft / "bootstrap.checkpoint"]
    dumped = same_dump(KAFKA_NEW, snapshots, "--cluster-metadata-decoder")
    assert "SnapshotHeader {" in dumped
    same_dump(KAFKA_NEW, sorted(kraft.glob("__cluster_metadata-0/*.log")), "--deep-iteration")
    same_dump(KAFKA_NEW, sorted(kraft.glob("__cluster_metadata-0/*index")))


def test_groups_of_both_protocols_are_dumped_as_kafka_does(kraft: Path) -> None:
    dumped = same_dump(KAFKA_NEW, sorted(kraft.glob("__consumer_offsets-*/*.log")), "--offsets-decoder")
    for kind in (1, 2, 3, 5, 6, 7, 8):
        assert f'key: {{"type":"{kind}","data":' in dumped, kind
    # 4.3 prints JSON for these; ours are the lines of 3.9, which scripts know.
    same_dump(KAFKA_OLD, sorted(kraft.glob("__transaction_state-*/*.log")), "--transaction-log-decoder")


def test_every_kind_of_file_is_dumped_as_kafka_does(kraft: Path) -> None:
    for pattern, flags in [
        ("*.log", ["--print-data-log"]), ("*.log", ["--deep-iteration"]), ("*.log", ["--print-data-log", "--skip-record-metadata"]),
        ("*.index", []), ("*.timeindex", []), ("*.timeindex", ["--index-sanity-check"]), ("*.timeindex", ["--verify-index-only"]),
        ("*.snapshot", []), ("*.txnindex", []),
    ]:  # fmt: skip
        same_dump(KAFKA_NEW, sorted(path for topic in ("plain-0", "kept-0") for path in (kraft / topic).glob(pattern)), *flags)


def test_what_is_repaired_is_opened_by_our_broker_and_accepted_by_kafkas_tool(start_broker: Callable[..., Server], name: str) -> None:
    server = start_broker()
    fill_ours(server.address, name, 0, 300)
    server.stop()
    assert txbroker("log", "verify", server.data).returncode == 0
    path = server.partition_directory(name)
    log = path / f"{0:020}.log"
    content = log.read_bytes()
    log.write_bytes(content[:-20])
    (path / f"{0:020}.timeindex").write_bytes(b"nonsense")
    for snapshot in path.glob("*.snapshot"):
        snapshot.write_bytes(b"nonsense")
    assert txbroker("log", "verify", server.data).returncode == 1
    assert txbroker("log", "repair", server.data).returncode == 1
    assert log.read_bytes() == content[:-20]
    repaired = txbroker("log", "repair", server.data, "--yes")
    assert (repaired.returncode, repaired.stderr) == (0, ""), repaired.stdout
    same_dump(KAFKA_OLD, [log], "--print-data-log")
    before = [json.loads(line) for line in txbroker("log", "extract", path).stdout.splitlines()]
    assert 0 < len(before) < 300
    server.start()
    assert txbroker("log", "repair", server.data, "--yes").returncode == 1, "it is in use"
    assert txbroker("log", "verify", server.data).returncode == 0
    consumer = Consumer({"bootstrap.servers": server.address, "group.id": name, "auto.offset.reset": "earliest"})
    consumer.subscribe([name])
    values = [consumer.poll(PATIENCE_S) for _ in before]
    consumer.close()
    assert [message.value().decode() for message in values if message is not None] == [row["value"] for row in before]
    fill_ours(server.address, name, 1000, 10)
    server.stop()
    assert txbroker("log", "verify", server.data).returncode == 0


def fill_ours(address: str, topic: str, start: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": address, "linger.ms": 0, "batch.num.messages": 10, "enable.idempotence": True})
    for number in range(start, start + count):
        producer.produce(topic, f"value {number}", f"key-{number}")
    assert producer.flush(PATIENCE_S) == 0


def test_a_directory_that_a_running_broker_writes_to_is_read_without_harm(start_broker: Callable[..., Server], name: str) -> None:
    server = start_broker({"log.segment.bytes": "100000"})
    fill_ours(server.address, name, 0, 2000)
    for tool in (["verify"], ["stats", "--json"], ["extract"]):
        ran = txbroker("log", *tool, server.data, "--topic", name)
        assert (ran.returncode, ran.stderr) == (0, "")
    fill_ours(server.address, name, 2000, 100)
    copy = shutil.copytree(server.partition_directory(name), server.directory / "copy" / f"{name}-0")
    assert txbroker("log", "verify", copy).returncode == 0


def test_apache_kafka_opens_what_was_repaired(tmp_path: Path, name: str) -> None:
    server = KafkaOldProcess(tmp_path / "kafka")
    server.start()
    try:
        fill_ours(server.address, name, 0, 300)
        server.stop()
        assert txbroker("log", "verify", server.data).returncode == 0
        path = server.partition_directory(name)
        log = path / f"{0:020}.log"
        content = bytearray(log.read_bytes()[:-20])
        content[len(content) // 2] ^= 0x55
        log.write_bytes(content)
        (path / f"{0:020}.index").write_bytes(b"nonsense" * 10)
        for snapshot in path.glob("*.snapshot"):
            snapshot.write_bytes(b"nonsense")
        assert txbroker("log", "verify", server.data).returncode == 1
        repaired = txbroker("log", "repair", server.data, "--yes")
        assert (repaired.returncode, repaired.stderr) == (0, ""), repaired.stdout
        left = [json.loads(line)["value"] for line in txbroker("log", "extract", path).stdout.splitlines()]
        assert 0 < len(left) < 299
        server.start()
        consumer = Consumer({"bootstrap.servers": server.address, "group.id": name, "auto.offset.reset": "earliest"})
        consumer.subscribe([name])
        values = [consumer.poll(PATIENCE_S) for _ in left]
        consumer.close()
        assert [message.value().decode() for message in values if message is not None] == left
        fill_ours(server.address, name, 1000, 10)
        server.stop()
        assert txbroker("log", "verify", server.data).returncode == 0
    finally:
        server.close()
