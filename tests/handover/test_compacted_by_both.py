"""The same log compacted by Apache Kafka and by txbroker keeps the same offsets, and each broker reads the other's result."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commands import run
from tests.handover.compacting import TOPICS, append_more, fill, now_ms, segment_bases, table, until_clean
from tests.handover.comparing import assert_same_logs, compare_varied
from tests.handover.feeding import Content, content
from tests.support.broker import BrokerProcess
from tests.support.dump import dump_directory
from tests.support.kafka import KafkaOldProcess
from tests.support.server import Server
from tests.support.waiting import until
from txbroker.log.cleaner.cleaning_history_file import FILE_NAME, parse_histories
from txbroker.names import TopicPartition

pytestmark = pytest.mark.process
DAY_MS = 86_400_000


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[KafkaOldProcess]:
    server = KafkaOldProcess(tmp_path / "kafka", {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"})
    yield server
    server.close()


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[BrokerProcess]:
    server = BrokerProcess(tmp_path / "ours", {"offsets.topic.num.partitions": "2"})
    yield server
    server.close()
    assert "Traceback" not in server.log(), server.log_tail()


def cleaned(server: Server, began_ms: int, *, again: bool) -> tuple[Content, dict[str, int]]:
    """Clean once, or again after more appends; the remaining content and the checkpoint."""
    server.start()
    ends = until_clean(server)
    if again:
        server.stop()
        server.overrides["log.cleaner.enable"] = "false"  # a pass in the middle would take other tombstones for old
        server.start()
        append_more(server, began_ms)
        server.stop()
        server.overrides["log.cleaner.enable"] = "true"
        server.start()
        ends = until_clean(server)
    found = content(server, TOPICS)
    server.stop()
    return found, ends


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("delete_retention_ms", "again"), [(DAY_MS, False), (0, True)], ids=["tombstones-stay", "tombstones-go"])
def test_both_cleaners_agree(kafka: KafkaOldProcess, ours: BrokerProcess, delete_retention_ms: int, again: bool) -> None:
    began_ms = now_ms()
    kafka.overrides["log.cleaner.enable"] = "false"
    kafka.start()
    fill(kafka, began_ms, delete_retention_ms=delete_retention_ms)
    before = content(kafka, TOPICS)
    kafka.stop()
    shutil.copytree(kafka.data, ours.data)

    kafka.overrides["log.cleaner.enable"] = "true"
    theirs, ends = cleaned(kafka, began_ms, again=again)
    run("import", "--log-dirs", str(ours.data), "--zookeeper", kafka.zookeeper)
    mine, our_ends = cleaned(ours, began_ms, again=again)

    assert our_ends == ends
    assert_same_logs(ours, kafka, TOPICS, ends)
    assert (mine.starts, mine.stable, mine.records) == (theirs.starts, theirs.stable, theirs.records)
    for topic in TOPICS:
        assert len(mine.records["read_uncommitted", topic, 0]) < len(before.records["read_uncommitted", topic, 0]) // 2, "it is clean"
        if not again:
            committed = ("read_committed", topic, 0)
            assert table(mine.records[committed]) == table(before.records[committed])

    run("export", "--log-dirs", str(ours.data), "--zookeeper", kafka.zookeeper)
    kafka.data = ours.data
    kafka.overrides["log.cleaner.enable"] = "false"
    kafka.start()
    found = content(kafka, TOPICS)
    assert (found.records, found.starts) == (mine.records, mine.starts)


@pytest.mark.timeout(900)
def test_both_cleaners_agree_on_random_logs(kafka: KafkaOldProcess, ours: BrokerProcess) -> None:
    compare_varied(kafka, ours, seed=1, count=6)


def until_passed(server: Server) -> None:
    """Wait until the generational schedule has cleaned everything up to the active segments."""
    wanted = {TopicPartition(topic, 0): segment_bases(server.partition_directory(topic))[-1] for topic in TOPICS}
    path = server.data / FILE_NAME

    def passed() -> bool:
        known = parse_histories(path.read_bytes()) if path.exists() else {}
        return all(topic in known and known[topic].clean_end >= end for topic, end in wanted.items())

    until(passed, f"cleaned up to {wanted}", every_s=0.2)


@pytest.mark.timeout(900)
def test_kafka_continues_after_the_generational_schedule(kafka: KafkaOldProcess, ours: BrokerProcess) -> None:
    began_ms = now_ms()
    kafka.overrides["log.cleaner.enable"] = "false"
    kafka.start()
    fill(kafka, began_ms, delete_retention_ms=0)
    append_more(kafka, began_ms)
    before = content(kafka, TOPICS)
    kafka.stop()

    ours.data = kafka.data
    ours.overrides["log.cleaner.schedule"] = "generational"
    run("import", "--log-dirs", str(ours.data), "--zookeeper", kafka.zookeeper)
    ours.start()
    until_passed(ours)
    append_more(ours, began_ms)
    until_passed(ours)
    mine = content(ours, TOPICS)
    ours.stop()
    run("export", "--log-dirs", str(ours.data), "--zookeeper", kafka.zookeeper)
    dump_directory(ours.data)

    kafka.overrides["log.cleaner.enable"] = "true"
    theirs, _ = cleaned(kafka, began_ms, again=True)
    for topic in TOPICS:
        committed = ("read_committed", topic, 0)
        assert table(mine.records[committed]) == table(before.records[committed])
        assert table(theirs.records[committed]) == table(before.records[committed])
        assert len(mine.records[committed]) < len(before.records[committed]) // 2
