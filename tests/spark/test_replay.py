"""`replay`: the target has every record of the source once, with everything that it had, in the order of each partition."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer

from tests.cli.commands import ENVIRONMENT, run
from tests.spark.producing import produce
from tests.spark.replays import received, until_written
from tests.support import cache
from tests.support.cache import CHECKOUT
from tests.support.java import SHORT_LIVED
from tests.support.raw_admin import KEEP, create_topic, delete_records
from tests.support.records import Received, Sample, assert_same, samples
from tests.support.server import Server
from tests.support.waiting import until
from txbroker.console.failures import BadUsage, CommandFailed
from txbroker.spark.brokers import Brokers
from txbroker.spark.load import LoadOptions, load
from txbroker.spark.loaded_table import LoadedTable
from txbroker.spark.replay import ReplayOptions, ReplayReport, Span, replay
from txbroker.spark.topic_source import TopicSource
from txbroker.wire.compression import Codec

ANY_TIME = {"retention.ms": "-1", "message.timestamp.before.max.ms": str(2**63 - 1), "message.timestamp.after.max.ms": str(2**63 - 1)}
RECORDS = 6000  # of a run that is killed
BASE_MS = 1_600_000_000_000
Replay = Callable[..., ReplayReport]


@pytest.fixture
def replaying(spark: Any, broker: Server, name: str) -> Replay:
    """Replay `name` into `name`-to."""
    def replaying(**options: Any) -> ReplayReport:
        given = ReplayOptions(TopicSource(broker.address, [name]), Brokers.of(broker.address), f"{name}-to", batch_records=7)
        return replay(spark, replace(given, **options))

    return replaying


def send(server: Server, topic: str, records: list[Sample], partitions: int) -> list[tuple[int, Sample]]:
    producer = KafkaProducer(bootstrap_servers=server.address, linger_ms=5)
    for number, one in enumerate(records):
        producer.send(topic, one.value, one.key, list(one.headers), number % partitions, one.timestamp)
    producer.close()
    return [(number % partitions, one) for number, one in enumerate(records)]


def test_everything_of_a_record_is_kept(spark: Any, broker: Server, name: str, tmp_path: Path, replaying: Replay) -> None:
    """From a topic and from a table; and a run continues what the one before has written."""
    for topic in (name, f"{name}-to", f"{name}-table"):
        create_topic(broker, topic, 3, ANY_TIME)
    sent = send(broker, name, [*samples(60, seed=3), Sample(b"", b"", (), 0), Sample(None, b"v", (("h", b""), ("h", b"x")), 10**15)], 3)
    report = replaying(codec=Codec.LZ4)
    assert sum(report.written.values()) == len(sent)
    assert_same(sent, received(broker, f"{name}-to"))
    assert replaying().ranges == []
    load(spark, LoadOptions(TopicSource(broker.address, [name]), str(tmp_path / "raw")))
    table = {"source": LoadedTable(str(tmp_path / "raw")), "topic": f"{name}-table"}
    replaying(**table)
    assert_same(sent, received(broker, f"{name}-table"))

    more = send(broker, name, samples(10, seed=4), 3)
    assert sum(replaying().written.values()) == 10
    load(spark, LoadOptions(TopicSource(broker.address, [name]), str(tmp_path / "raw")))
    assert sum(replaying(**table).written.values()) == 10
    for topic in (f"{name}-to", f"{name}-table"):
        assert_same([*sent, *more], received(broker, topic))


def test_ranges(broker: Server, name: str, replaying: Replay) -> None:
    create_topic(broker, name, 2, ANY_TIME)
    send(broker, name, [Sample(b"k", b"%d" % number, (), BASE_MS + number) for number in range(40)], 2)
    delete_records(broker, name, 2, 0)
    for topic, options in {"spans": {"spans": {0: Span(5, 9), 1: Span(18, None)}},
                           "times": {"since_ms": BASE_MS + 10, "until_ms": BASE_MS + 20},
                           "never": {"since_ms": BASE_MS + 1000}}.items():
        create_topic(broker, f"{name}-{topic}", 2, ANY_TIME)
        replaying(topic=f"{name}-{topic}", **options)
        values = [int(one.value or b"") for one in received(broker, f"{name}-{topic}")]
        assert values == {"spans": [10, 12, 14, 16, 37, 39], "times": [10, 12, 14, 16, 18, 11, 13, 15, 17, 19], "never": []}[topic]
    # A run that continues reads nothing but these records either, and refuses others.
    send(broker, name, [Sample(b"k", b"%d" % number, (), BASE_MS + number) for number in (*range(40, 44), 1000, 1001)], 2)
    for topic, options, more in (("spans", {"spans": {0: Span(5, 12), 1: Span(18, 21)}}, [18, 20, 22, 41]),
                                 ("never", {"since_ms": BASE_MS + 1000}, [1000, 1001])):
        before = len(received(broker, f"{name}-{topic}"))
        assert sum(replaying(topic=f"{name}-{topic}", **options).written.values()) == len(more)
        values = sorted(int(one.value or b"") for one in received(broker, f"{name}-{topic}"))
        assert len(values) == before + len(more) and set(more) <= set(values)
    for other in ({"spans": {0: Span(6, 12), 1: Span(18, 21)}}, {"since_ms": BASE_MS + 1000}, {}):
        with pytest.raises(CommandFailed, match=r"progress of another replay .* --since or the starts of --range differ"):
            replaying(topic=f"{name}-spans", **other)
    with pytest.raises(CommandFailed, match=r"begins at offset 2: offsets from 0 on were deleted; correct --range"):
        replaying(topic=f"{name}-spans", spans={0: Span(0, None)})
    with pytest.raises(BadUsage, match="has no partition 7"):
        replaying(topic=f"{name}-spans", spans={7: Span(0, None)})


def test_another_number_of_partitions(broker: Server, name: str, replaying: Replay) -> None:
    create_topic(broker, name, 3, ANY_TIME)
    create_topic(broker, f"{name}-to", 2, ANY_TIME)
    with KafkaProducer(bootstrap_servers=broker.address) as producer:  # Java's function
        for number in range(120):
            producer.send(name, b"%d" % number, b"key %d" % (number % 40), timestamp_ms=BASE_MS + number - 15 * (number % 2))
        producer.send(name, b"no key", partition=2, timestamp_ms=BASE_MS)
    with pytest.raises(CommandFailed, match=r"has no partition 2, which .* has; add partitions, or specify --partitioner auto"):
        replaying()
    report = replaying(partitioner="auto")
    assert (report.partitioner, report.explained["murmur2"], report.sampled) == ("murmur2", 40, 40)
    assert replaying(partitioner="auto").ranges == []
    found = received(broker, f"{name}-to")
    assert len(found) == 121
    by_key: dict[bytes | None, list[Received]] = {}
    for one in found:
        by_key.setdefault(one.key, []).append(one)
    assert by_key[None][0].partition == 0
    for key, records in by_key.items():
        assert len({one.partition for one in records}) == 1
        if key is not None:
            number = int(key.split()[1])
            assert [int(one.value or b"") for one in records] == [number, number + 40, number + 80], "in order"
    with pytest.raises(CommandFailed, match=r"progress of another replay .* \(source, partitioner, number"):
        replaying(partitioner="crc32")

    create_topic(broker, f"{name}-2", 3, ANY_TIME)
    produce(broker, f"{name}-2", 30)  # round robin
    with pytest.raises(CommandFailed, match="no known function explains the partitions of 30 sampled keys"):
        replaying(source=TopicSource(broker.address, [f"{name}-2"]), id="other", partitioner="auto")


def test_speed(spark: Any, broker: Server, name: str, replaying: Replay) -> None:
    """The time that it takes is a lower bound: records are never early."""
    create_topic(broker, name, 2, ANY_TIME)
    create_topic(broker, f"{name}-to", 2, ANY_TIME)
    times = [0, 0, 1000, 500, 200_000, 2000, 1000, 202_000]  # they go back in partition 0
    sent = send(broker, name, [Sample(b"k", b"%d" % number, (), BASE_MS + ms) for number, ms in enumerate(times)], 2)
    started_s = time.monotonic()
    report = replaying(speed=2.0, max_gap_ms=1000)
    assert sum(report.written.values()) == len(times)
    assert time.monotonic() - started_s >= (1000 + 1000 + 1000 + 1000) / 1000 / 2
    assert_same(sent, received(broker, f"{name}-to"))
    for topic in (f"{name}-wide", f"{name}-wide2"):
        create_topic(broker, topic, 3, ANY_TIME)
    produce(broker, f"{name}-wide", 3)
    with pytest.raises(CommandFailed, match=r"--speed needs 3 tasks at the same time, .* and the master has 2"):
        replaying(source=TopicSource(broker.address, [f"{name}-wide"]), speed=1.0, topic=f"{name}-wide2")
    with pytest.raises(BadUsage, match="--max-gap needs --speed"):
        replaying(max_gap_ms=5)


@pytest.mark.parametrize(("configs", "problem"), [
    ({"message.timestamp.type": "LogAppendTime"}, "by which the timestamps are lost; set it to CreateTime"),
    ({"message.timestamp.before.max.ms": "60000"}, "refuses records that are older than 1 min, and there are some of 2020-09-13 12:26:40"),
    ({"retention.ms": "604800000"}, "deletes records after 7 d, .* set its retention.ms=-1 for the time being"),
])  # fmt: skip
def test_targets_that_would_not_keep_the_records(
    broker: Server, name: str, configs: dict[str, str], problem: str, replaying: Replay
) -> None:
    create_topic(broker, name, 1, ANY_TIME)
    create_topic(broker, f"{name}-to", 1, {**ANY_TIME, **configs})
    send(broker, name, [Sample(b"k", b"v", (), BASE_MS)], 1)
    with pytest.raises(CommandFailed, match=problem):
        replaying()


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(child) for child in task.read_text().split()]
    return found


def descendants(pid: int, command: str) -> list[int]:
    """Those below it whose command line has this text."""
    found = []
    for child in children(pid):
        with contextlib.suppress(OSError):
            if command in Path(f"/proc/{child}/cmdline").read_text():
                found.append(child)
        found += descendants(child, command)
    return found


@pytest.mark.parametrize("seed", [1])
def test_kill_9_of_workers_and_of_the_driver(spark: Any, spark_jars: Path, broker: Server, name: str, replaying: Replay, seed: int) -> None:
    """The Python processes that write are killed, then the driver, at random moments. Its JVM and its workers go on for a while beside the
    next run."""
    chance = random.Random(seed)
    create_topic(broker, name, 2, KEEP)
    create_topic(broker, f"{name}-to", 2, KEEP)
    produce(broker, name, RECORDS, 2)
    command = [sys.executable, "-m", "tests.spark.killed_replay", spark_jars, cache.pyspark(), "local[2,9]", broker.address, name,
               f"{name}-to"]
    environment = {**ENVIRONMENT, "JAVA_TOOL_OPTIONS": " ".join(SHORT_LIVED)}
    driver = subprocess.Popen(list(map(str, command)), cwd=CHECKOUT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              text=True)  # fmt: skip
    try:
        for moment in sorted(chance.sample(range(RECORDS // 2), 2)):
            until_written(broker, f"{name}-to", moment, driver)
            workers = descendants(driver.pid, "pyspark.daemon")[1:]  # the first one starts the others
            assert workers
            os.kill(chance.choice(workers), signal.SIGKILL)
        until_written(broker, f"{name}-to", chance.randrange(RECORDS // 2, RECORDS * 3 // 4), driver)
        assert driver.poll() is None, "the driver is still at work"
    finally:
        driver.kill()
        driver.communicate()

    def replayed() -> bool:
        try:
            replaying()
        except CommandFailed as failure:
            assert "another run of this replay writes to" in str(failure)
            return False
        return True

    until(replayed, "the workers of the killed driver have ended")
    found = received(broker, f"{name}-to")
    assert [(one.partition, one.key, one.value) for one in found] == [
        (number % 2, b"key %d" % number, b"value %d" % number) for start in (0, 1) for number in range(start, RECORDS, 2)]


def test_the_command(broker: Server, name: str, tmp_path: Path, commands_share_the_session: None) -> None:
    create_topic(broker, name, 2, KEEP)
    create_topic(broker, f"{name}-to", 2, KEEP)
    produce(broker, name, 10, 2)
    written = tmp_path / "report.json"
    source = ("spark", "replay", "--bootstrap-server", broker.address, "--topic", name)
    arguments = (*source, "--to-topic", f"{name}-to", "--json", str(written))
    output, _ = run(*arguments, "--partitioner", "source", "--range", "0:1-3", "--range", "1:2-")
    group = f"txbroker-replay-{name}-{name}-to"
    assert output.splitlines() == [f"{name}-to-0: 2 records", f"{name}-to-1: 3 records",
                                   f"5 records of 5 offsets of {name} written to {name}-to (group {group})"]
    report = json.loads(written.read_text())
    assert (report["job"], report["ok"], report["written"][1]) == ("replay", True, {"partition": 1, "records": 3})
    assert run(*arguments, "--range", "0:1-3")[0] == f"nothing left to replay (group {group})\n"
    _, complaint = run(*source, "--to-topic", name, status=2)
    assert "is the source itself" in complaint
    run(*arguments, "--from-table", "x", status=2)
    for wrong in (("--range", "0:3-1"), ("--range", "0"), ("--speed", "0")):
        with pytest.raises(SystemExit, match="2"):
            run(*arguments, *wrong)
