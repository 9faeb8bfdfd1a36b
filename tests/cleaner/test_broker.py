"""The log cleaner of a real broker: readers, groups, killed and stopped workers, topics that are deleted or moved, Kafka's dump tool."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from kafka import KafkaConsumer
from kafka.protocol.admin import AlterReplicaLogDirsRequest, DeleteTopicsRequest

from tests.cleaner.keyed import Keyed, cleaned_to, read_all, workers_of
from tests.cli.commands import run
from tests.metrics.scraping import ON, Scrape
from tests.support.broker import BrokerProcess
from tests.support.dump import dump_directory
from tests.support.raw import RawConnection
from tests.support.raw_admin import create_topic, delete_records, until_leaders
from tests.support.server import Server
from tests.support.waiting import PATIENCE_S, until

Start = Callable[[dict[str, str]], Server]

QUICK = {"log.cleaner.backoff.ms": "20"}
# A pass takes some seconds, so that tests can interfere.
SLOW = {**QUICK, "log.cleaner.io.max.bytes.per.second": "40000"}
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "16384", "min.cleanable.dirty.ratio": "0.01", "file.delete.delay.ms": "0"}


@pytest.fixture(autouse=True)
def only_ours(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--broker") != BrokerProcess.kind:
        pytest.skip("workers, and how soon they begin, are txbroker's")


def write(server: Server, keyed: Keyed, batches: int) -> None:
    with RawConnection(server.address) as connection:
        for _ in range(batches):
            keyed.send(connection)


def last_closed(server: Server, topic: str) -> int:
    """The base offset of the active segment, up to which a log can be cleaned."""
    return max(int(path.stem) for path in server.partition_directory(topic).glob("*.log"))


def until_clean(server: Server, topic: str) -> None:
    until(lambda: cleaned_to(server, topic) >= last_closed(server, topic) > 0, f"{topic} is clean up to its active segment")


def until_cleaning(server: Server, topic: str, start: int) -> None:
    until(lambda: f"cleaning {topic}-0:" in server.log(start), f"a pass over {topic} has begun")
    until(lambda: list(server.data.glob(f"{topic}-0/*.cleaned")), "the pass writes")


def kept_of(server: Server, topic: str) -> int:
    with RawConnection(server.address) as connection:
        return len(read_all(connection, topic)[0])


def test_consumers_get_the_latest_values(start_broker: Start, name: str) -> None:
    server = start_broker(QUICK)
    create_topic(server, name, configs=COMPACTED)
    keyed = Keyed(name)
    write(server, keyed, 150)
    until_clean(server, name)
    with RawConnection(server.address) as connection:
        found, end = read_all(connection, name)
        table = keyed.check(found, end)
        assert end == keyed.end == 3000
        assert len(found) < 1500
        for start in (1, 77, 1500, 2999):  # a consumer may start at any offset
            some, _ = read_all(connection, name, start, bytes_max=2000)
            assert [record.offset for record in some] == [record.offset for record in found if record.offset >= start]
    consumer = KafkaConsumer(name, bootstrap_servers=server.address, auto_offset_reset="earliest", consumer_timeout_ms=10_000)
    theirs: dict[bytes, bytes | None] = {}
    for message in consumer:
        theirs[message.key] = message.value
        if message.offset == end - 1:
            break
    consumer.close()
    assert {key: value for key, value in theirs.items() if value is not None} == table
    own = Consumer({"bootstrap.servers": server.address, "group.id": name, "check.crcs": True})
    own.assign([TopicPartition(name, 0, OFFSET_BEGINNING)])
    theirs.clear()
    while True:
        message = own.poll(PATIENCE_S)
        assert message is not None
        assert message.error() is None
        theirs[message.key()] = message.value()
        if message.offset() == end - 1:
            break
    own.close()
    assert {key: value for key, value in theirs.items() if value is not None} == table
    assert server.stop() == 0
    dumped = dump_directory(server.data)[f"{name}-0"]
    assert dumped.offsets == [record.offset for record in found]
    server.start()
    until_leaders(server, name, 1)
    with RawConnection(server.address) as connection:
        assert read_all(connection, name)[0] == found


def test_tombstones_are_removed_after_delete_retention_ms(start_broker: Start, name: str) -> None:
    server = start_broker(QUICK)
    create_topic(server, name, configs={**COMPACTED, "delete.retention.ms": "100"})
    keyed = Keyed(name, deletions=0.0)
    write(server, keyed, 10)
    producer = Producer({"bootstrap.servers": server.address})
    for number in range(1, 41):
        producer.produce(name, None, b"key %d" % number, 0)
    producer.flush()

    def all_gone() -> bool:
        # Each pass needs something new to clean.
        for _ in range(2):
            for number in range(100):
                producer.produce(name, b"x" * 100, b"filler %d" % (number % 3), 0)
            assert producer.flush() == 0
        with RawConnection(server.address) as connection:
            return all((record.key or b"").startswith(b"filler") for record in read_all(connection, name)[0])

    until(all_gone, "all records of the deleted keys are removed", every_s=0.2)


def test_groups_keep_their_offsets_in_a_compacted_topic(start_broker: Start, name: str) -> None:
    server = start_broker({**QUICK, "offsets.topic.segment.bytes": "4096", "offsets.topic.num.partitions": "1"})
    create_topic(server, name, configs={"cleanup.policy": "delete"})
    groups = [f"{name}-{number}" for number in range(3)]
    consumers = [Consumer({"bootstrap.servers": server.address, "group.id": group}) for group in groups]
    for offset in range(1, 121):
        for consumer in consumers:
            consumer.commit(offsets=[TopicPartition(name, 0, offset)], asynchronous=False)

    def compacted() -> bool:
        # Beside a slow disk a segment stays active when it is full, and the first commit after the sync of its name closes it.
        consumers[0].commit(offsets=[TopicPartition(name, 0, 120)], asynchronous=False)
        return cleaned_to(server, "__consumer_offsets") > 200

    until(compacted, "the offsets are compacted", every_s=0.2)
    for consumer in consumers:
        consumer.close()
    *closed, _ = sorted(server.data.glob("__consumer_offsets-0/*.log"))
    size = sum(path.stat().st_size for path in closed if int(path.stem) < 200)
    assert size < 360 * 60, "360 commits take more than that"
    server.kill()
    server.start()
    until_leaders(server, name, 1)
    for group in groups:
        consumer = Consumer({"bootstrap.servers": server.address, "group.id": group})
        assert [found.offset for found in consumer.committed([TopicPartition(name, 0)], timeout=PATIENCE_S)] == [120]
        consumer.close()
    assert server.stop() == 0
    dump_directory(server.data)


def test_readers_see_the_latest_record_of_each_key_during_passes(start_broker: Start, name: str) -> None:
    server = start_broker(QUICK)
    create_topic(server, name, configs={**COMPACTED, "file.delete.delay.ms": "60000"})
    keyed = Keyed(name, deletions=0.0)
    write(server, keyed, 20)
    done = Event()
    problems: list[BaseException] = []
    scans = 0

    def read() -> None:
        nonlocal scans
        try:
            with RawConnection(server.address) as connection:
                while not done.is_set():
                    written = dict(keyed.written)  # what readers must find
                    found, end = read_all(connection, name, bytes_max=3000)
                    so_far = Keyed(name)
                    so_far.written = dict(keyed.written)
                    so_far.unanswered = [list(records) for records in list(keyed.unanswered)]
                    so_far.check(found, min(end, max(written) + 1))
                    scans += 1
        except BaseException as problem:
            problems.append(problem)

    readers = [Thread(target=read, daemon=True) for _ in range(2)]
    for reader in readers:
        reader.start()
    with RawConnection(server.address) as connection:
        until(lambda: (keyed.send(connection), scans >= 12 and server.log().count("is clean up to") >= 4)[1],
              "a dozen scans and four passes", every_s=0.01)  # fmt: skip
    done.set()
    for reader in readers:
        reader.join(PATIENCE_S)
    assert problems == []


def test_the_worker_starts_with_the_first_pass_and_ends_with_the_broker(start_broker: Start, name: str) -> None:
    server = start_broker(SLOW)
    create_topic(server, name, configs=COMPACTED)
    assert workers_of(server) == []
    maps = Path(f"/proc/{server.pid}/maps")
    write(server, Keyed(name), 100)
    until_cleaning(server, name, 0)
    (worker,) = workers_of(server)
    assert "numpy" not in maps.read_text(), "the broker does not import numpy"
    assert "numpy" in Path(f"/proc/{worker}/maps").read_text()
    assert os.getpriority(os.PRIO_PROCESS, worker) > os.getpriority(os.PRIO_PROCESS, server.pid)
    server.kill()
    until(lambda: not Path(f"/proc/{worker}").exists(), "the worker has ended")
    server.start()
    until_leaders(server, name, 1)
    assert not list(server.data.glob(f"{name}-0/*.cleaned")) or workers_of(server)
    until(lambda: workers_of(server), "it is cleaned again")
    (worker,) = workers_of(server)
    assert server.stop() == 0
    until(lambda: not Path(f"/proc/{worker}").exists(), "the worker has ended")


def test_a_killed_worker_is_replaced(start_broker: Start, name: str) -> None:
    server = start_broker(SLOW)
    create_topic(server, name, configs=COMPACTED)
    keyed = Keyed(name)
    write(server, keyed, 60)
    until_cleaning(server, name, 0)
    (worker,) = workers_of(server)
    os.kill(worker, signal.SIGKILL)
    until(lambda: "killed by signal 9" in server.log(), "the broker says so")
    until_clean(server, name)
    with RawConnection(server.address) as connection:
        keyed.check(*read_all(connection, name))
    assert not list(server.data.glob(f"{name}-0/*.cleaned"))


def test_a_worker_that_hangs_is_killed_and_after_the_second_one_the_partition_is_uncleanable(start_broker: Start, name: str) -> None:
    server = start_broker({**SLOW, **ON, "txbroker.log.cleaner.worker.timeout.ms": "6000"})
    create_topic(server, name, configs=COMPACTED)
    keyed = Keyed(name)
    write(server, keyed, 60)
    for _ in range(2):
        start = server.log_size()
        until_cleaning(server, name, 0)
        until(lambda: workers_of(server), "a worker is there")
        (worker,) = workers_of(server)
        os.kill(worker, signal.SIGSTOP)
        until(lambda start=start: "reported no progress for 6 s" in server.log(start), "the broker has lost the worker")
        until(lambda worker=worker: not Path(f"/proc/{worker}").exists(), "the worker is killed")
    until(lambda: "is uncleanable" in server.log(), "the partition is uncleanable")
    scrape = Scrape(server)
    assert scrape("txbroker_cleaner_failures_total", kind="hung") == 2
    assert scrape("kafka_log_logcleanermanager_uncleanable_partitions_count", logDirectory=str(server.data)) == 1
    assert workers_of(server) == [] and not list(server.data.glob(f"{name}-0/*.cleaned"))
    output, _ = run("log-cleaner", "--bootstrap-server", server.address, "--describe", "--topic", name, "--json")
    status = json.loads(output)
    assert (status["state"], "2 workers in a row" in status["uncleanable_reason"]) == ("uncleanable", True)
    run("log-cleaner", "--bootstrap-server", server.address, "--compact-now", name, "--wait")
    assert cleaned_to(server, name) >= last_closed(server, name)
    with RawConnection(server.address) as connection:
        keyed.check(*read_all(connection, name))


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_lost_when_broker_or_worker_are_killed_during_passes(start_broker: Start, name: str, seed: int) -> None:
    chance = random.Random(seed)
    server = start_broker({**QUICK, "log.cleaner.io.max.bytes.per.second": "300000", "log.flush.offset.checkpoint.interval.ms": "150"})
    create_topic(server, name, configs={**COMPACTED, "file.delete.delay.ms": "100"})
    keyed = Keyed(name, seed=seed)
    for number in range(8):
        start = server.log_size()
        with RawConnection(server.address) as connection:
            for _ in range(40):
                keyed.send(connection)
        what = chance.choice(["cleaned", "swapped", "done", "worker"])
        if what == "worker":
            until_cleaning(server, name, start)
            for worker in workers_of(server):
                os.kill(worker, signal.SIGKILL)
        elif what == "cleaned":
            until_cleaning(server, name, start)
        elif what == "swapped":
            until(lambda: list(server.partition_directory(name).glob("*.deleted")), "a group is swapped in", every_s=0.001)
        else:
            until(lambda start=start: "is clean up to" in server.log(start), "a pass has ended", every_s=0.001)
        server.kill()
        server.start()
        until_leaders(server, name, 1)
        with RawConnection(server.address) as connection:
            found, end = read_all(connection, name)
            assert end >= keyed.end, f"round {number}, {what}"
            keyed.check(found, end)
    write(server, keyed, 10)
    until_clean(server, name)
    with RawConnection(server.address) as connection:
        found, end = read_all(connection, name)
        table = keyed.check(found, end)
    latest = {sample.key: sample.value for _, sample in sorted(keyed.written.items())}
    assert table == {key: value for key, value in latest.items() if value is not None}
    assert server.stop() == 0
    assert dump_directory(server.data)[f"{name}-0"].offsets == [record.offset for record in found]


def test_a_topic_is_deleted_and_created_again_while_it_is_cleaned(start_broker: Start, name: str) -> None:
    server = start_broker(SLOW)
    for _ in range(2):
        start = server.log_size()
        create_topic(server, name, configs=COMPACTED)
        write(server, Keyed(name), 60)
        until_cleaning(server, name, start)
        with RawConnection(server.address) as connection:
            answer = connection.call(DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000), 3)
            assert [response.error_code for response in answer.responses] == [0]
        assert cleaned_to(server, name) == 0
    create_topic(server, name, configs=COMPACTED)
    keyed = Keyed(name, seed=9)
    write(server, keyed, 40)
    until_clean(server, name)
    with RawConnection(server.address) as connection:
        keyed.check(*read_all(connection, name))
    assert not list(server.data.glob(f"{name}-0/*.cleaned"))


def test_records_are_deleted_while_a_log_is_cleaned(start_broker: Start, name: str) -> None:
    server = start_broker({**SLOW, "log.retention.check.interval.ms": "50"})
    create_topic(server, name, configs={**COMPACTED, "cleanup.policy": "compact,delete", "retention.ms": "-1"})
    keyed = Keyed(name)
    write(server, keyed, 60)
    until_cleaning(server, name, 0)
    delete_records(server, name, 700)
    with RawConnection(server.address) as connection:
        found, end = read_all(connection, name, 700)
        keyed.check(found, end, start=700)
    until_clean(server, name)
    until(lambda: min(int(path.stem) for path in server.partition_directory(name).glob("*.log")) > 0, "the deleted records are removed")
    with RawConnection(server.address) as connection:
        found, end = read_all(connection, name, 700)
        keyed.check(found, end, start=700)


def test_a_log_moves_to_another_directory_while_it_is_cleaned(start_broker: Start, name: str, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    server = start_broker({**SLOW, "log.dirs": f"{first},{second}"})
    create_topic(server, name, configs=COMPACTED)
    keyed = Keyed(name)
    write(server, keyed, 60)
    here, there = (first, second) if (first / f"{name}-0").exists() else (second, first)
    until(lambda: list(here.glob(f"{name}-0/*.cleaned")), "a pass writes")
    directories = AlterReplicaLogDirsRequest.AlterReplicaLogDir
    request = AlterReplicaLogDirsRequest(dirs=[
        directories(path=str(there), topics=[directories.AlterReplicaLogDirTopic(name=name, partitions=[0])])])
    with RawConnection(server.address) as connection:
        connection.call(request, 1)
    until(lambda: (there / f"{name}-0").exists() and not (here / f"{name}-0").exists(), "the log has moved")
    write(server, keyed, 20)
    with RawConnection(server.address) as connection:
        keyed.check(*read_all(connection, name))
        active = lambda: max(int(path.stem) for path in (there / f"{name}-0").glob("*.log"))  # noqa: E731
        until(lambda: cleaned_to(server, name, directory=there) >= active(), "it is cleaned there")
        found, end = read_all(connection, name)
        keyed.check(found, end)
    assert cleaned_to(server, name, directory=here) == 0
    assert len(found) < 1000
    assert server.stop() == 0
    dump_directory(there)
