"""The data of `--processes`: from one process to several and back, what is refused, and commands on the directories."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tests.cli.commands import command, run
from tests.support.broker import BrokerProcess
from tests.support.processes import PROCESSES, Processes
from tests.support.server import Server, ServerFailed, free_port
from tests.support.waiting import PATIENCE_S, until
from txbroker.cluster.tree.sqlite import FILE_NAME
from txbroker.log import meta_properties

pytestmark = pytest.mark.process

PARTITIONS = 4
RECORDS = 40


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    server = Processes(tmp_path / "server")
    server.port = free_port()
    yield server
    server.close()
    assert "Traceback" not in server.log(), server.log()


def fill(server: Server, topic: str, start: int = 0) -> None:
    """Add RECORDS records, round robin."""
    with KafkaProducer(bootstrap_servers=server.address, acks="all") as producer:
        sent = [producer.send(topic, b"%d" % n, key=b"k%d" % (n % 10), partition=n % PARTITIONS) for n in range(start, start + RECORDS)]
        for future in sent:
            future.get(PATIENCE_S)


def values(server: Server, topic: str, count: int) -> list[int]:
    """The numbers in all partitions, sorted; waits for `count` records."""
    consumer = KafkaConsumer(bootstrap_servers=server.address, auto_offset_reset="earliest", consumer_timeout_ms=PATIENCE_S * 1000)
    try:
        consumer.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
        found: list[int] = []
        while len(found) < count:
            found.append(int(next(consumer).value))
        return sorted(found)
    finally:
        consumer.close()


def reassign(server: Server, directory: Path, moves: dict[tuple[str, int], int]) -> None:
    """Move partitions to brokers, and wait until they are there."""
    plan = {"version": 1, "partitions": [{"topic": topic, "partition": number, "replicas": [to]} for (topic, number), to in moves.items()]}
    file = directory / "move.json"
    file.write_text(json.dumps(plan))
    flags = ("reassign-partitions", "--bootstrap-server", server.address, "--reassignment-json-file", str(file))
    run(*flags, "--execute")

    def complete() -> bool:
        verified = subprocess.run(command(*flags, "--verify"), capture_output=True, text=True, check=False)
        return verified.stdout.count("is completed") == len(moves)

    until(complete, "the replicas have moved")


def logs(data: Path, number: int, topic: str) -> list[str]:
    """The partitions of a topic in the directory of a process."""
    return sorted(path.name for path in (data / f"process.{number}").glob(f"{topic}-?"))


def move_up(data: Path, number: int, *, down: bool) -> None:
    """Move what a broker has in its log directory into the directory of a process, or the other way round, as docs/processes.md says."""
    inner = data / f"process.{number}"
    inner.mkdir(exist_ok=True)
    source, target = (data, inner) if down else (inner, data)
    for path in source.iterdir():
        if not path.name.startswith(FILE_NAME) and path != inner:
            path.rename(target / path.name)
    if not down:
        inner.rmdir()


def test_one_process_becomes_several_and_again_one(processes: Processes, tmp_path: Path, name: str) -> None:
    alone = BrokerProcess(processes.directory)
    alone.port = processes.port
    alone.start()
    run("topics", "--bootstrap-server", alone.address, "--create", "--topic", name, "--partitions", str(PARTITIONS))
    fill(alone, name)
    assert alone.stop() == 0
    with pytest.raises(ServerFailed, match=r"has the data of one process \(meta.properties\): start it without --processes, or move"):
        processes.start()
    assert not (processes.data / "process.0").exists(), "nothing has changed"

    move_up(processes.data, 0, down=True)
    processes.start()
    first = int((processes.data / "process.0" / meta_properties.FILE_NAME).read_text().partition("broker.id=")[2].split()[0])
    reassign(processes, tmp_path, {(name, number): first + 1 for number in (1, 3)})
    fill(processes, name, RECORDS)
    assert values(processes, name, 2 * RECORDS) == list(range(2 * RECORDS))
    assert (logs(processes.data, 0, name), logs(processes.data, 1, name)) == ([f"{name}-0", f"{name}-2"], [f"{name}-1", f"{name}-3"])
    assert processes.stop() == 0

    processes.count = 1
    with pytest.raises(ServerFailed, match=rf"process.1/{name}-\d is a log of process 1: use --processes 2 or more, or move all their"):
        processes.start()
    processes.count = PROCESSES
    processes.start()
    reassign(processes, tmp_path, {(name, number): first for number in (1, 3)})
    assert processes.stop() == 0
    processes.count = 1
    processes.start()
    until(lambda: f"1 process serving clients: {processes.address}" in processes.log(), "it says so after it has written the ready file")
    assert values(processes, name, 2 * RECORDS) == list(range(2 * RECORDS))
    assert processes.stop() == 0

    with pytest.raises(ServerFailed, match="has the data of several processes"):
        alone.start()
    shutil.rmtree(processes.data / "process.1")
    move_up(processes.data, 0, down=False)
    alone.start()
    assert values(alone, name, 2 * RECORDS) == list(range(2 * RECORDS))
    assert alone.stop() == 0


def test_replicas_without_their_data_are_refused(processes: Processes, name: str) -> None:
    processes.start()
    run("topics", "--bootstrap-server", processes.address, "--create", "--topic", name, "--partitions", str(PARTITIONS))
    assert processes.stop() == 0
    gone = processes.directory / "elsewhere"
    (processes.data / "process.1").rename(gone)
    with pytest.raises(ServerFailed, match=rf"broker 1 has 2 replicas, such as {name}-\d, and no directory of log.dirs has its data"):
        processes.start()
    processes.count = 1
    with pytest.raises(ServerFailed, match=rf"broker 1 has 2 replicas, such as {name}-\d: use --processes 2 or more"):
        processes.start()
    gone.rename(processes.data / "process.1")
    processes.count = PROCESSES
    processes.overrides["broker.id"] = "7"
    with pytest.raises(ServerFailed, match=r"process.0/meta.properties belongs to broker 0, but broker.id is 7; correct broker.id"):
        processes.start()


def test_commands_know_the_directories(processes: Processes, name: str) -> None:
    processes.start()
    created = ("--create", "--topic", name, "--partitions", str(PARTITIONS), "--config", "cleanup.policy=compact")
    run("topics", "--bootstrap-server", processes.address, *created)
    fill(processes, name)
    data = str(processes.data)
    doctor, _ = run("doctor", "--bootstrap-server", processes.address, "--topic", name, "--log-dir", data)
    assert "has no partition of it" not in doctor, doctor
    live, _ = run("audit", "keys", "--bootstrap-server", processes.address, "--topic", name, "--no-groups", "--json")
    assert processes.stop() == 0

    verified, _ = run("log", "verify", data)
    assert f"{PARTITIONS} partitions" in verified, verified
    extracted, _ = run("log", "extract", data, "--topic", name)
    assert len(extracted.splitlines()) == RECORDS
    stats, _ = run("log", "stats", data, "--topic", name)
    assert all(f"{name}-{number}" in stats for number in range(PARTITIONS))
    stored, _ = run("audit", "keys", "--log-dir", data, "--topic", name, "--no-groups", "--json")
    assert sorted(stored.splitlines()) == sorted(live.splitlines())
    one, _ = run("audit", "keys", "--log-dir", f"{data}/process.1", "--topic", name, "--no-groups", "--json")
    assert 0 < len(one.splitlines()) < len(stored.splitlines())
    for directory, partitions in ((data, PARTITIONS), (f"{data}/process.1", PARTITIONS // PROCESSES)):
        dry, complaint = run("log-cleaner", "--dry-run", "--log-dir", directory, "--topic", name, "--roll")
        assert sum(f"{name}-{number}" in dry + complaint for number in range(PARTITIONS)) == partitions
        assert "assumed" not in dry + complaint, "the configuration is found in the metadata above the directory"
    flags = ("--override", f"log.dirs={data}", "--override", f"listeners=PLAINTEXT://{processes.address}")
    run("config", "--check", *flags, "--processes", "2")
    _, complaint = run("config", "--check", *flags, "--processes", "1", status=1)
    assert "is a log of process 1" in complaint
    _, complaint = run("config", "--check", *flags, status=1)
    assert "has the data of several processes" in complaint
    _, complaint = run("config", "--check", *flags, "--override", "zookeeper.connect=localhost", "--processes", "2", status=1)
    assert "zookeeper.connect is set" in complaint
    _, complaint = run("export", "--log-dirs", data, "--zookeeper", "127.0.0.1:1", status=1)
    assert "has the data of several processes: make it that of one process first" in complaint
