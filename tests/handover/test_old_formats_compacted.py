"""Logs of formats v0 and v1, also mixed with v2, compacted by both brokers: the results are equal."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commands import run
from tests.handover.compacting import changes, now_ms, until_clean
from tests.handover.comparing import assert_same_logs
from tests.handover.feeding import Content, content
from tests.support.broker import BrokerProcess
from tests.support.kafka import KafkaOldProcess
from tests.support.raw import RawConnection
from tests.support.raw_admin import until_leaders
from tests.support.raw_log import batch, produce
from tests.support.records import Sample
from tests.support.server import Server

pytestmark = pytest.mark.process
GOLDEN = Path(__file__).parent.parent / "golden"
CONFIGS = ("cleanup.policy=compact", "segment.bytes=16384", "min.cleanable.dirty.ratio=0.01", "retention.ms=-1")
# Kafka's coordinator would end its open transaction in one of the copies.
LEFT_OUT = ("s-txn", "__transaction_state", "__consumer_offsets")


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[KafkaOldProcess]:
    server = KafkaOldProcess(tmp_path / "kafka")
    yield server
    server.close()


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[BrokerProcess]:
    server = BrokerProcess(tmp_path / "ours")
    yield server
    server.close()
    assert "Traceback" not in server.log(), server.log_tail()


def rolled_and_cleaned(server: Server, topics: list[str], more: list[Sample]) -> tuple[Content, dict[str, int]]:
    """Append records that close the last segment, wait until it is compacted; the remaining content."""
    server.start()
    for topic in topics:
        until_leaders(server, topic, 1)
        with RawConnection(server.address) as connection:
            for at in (0, len(more) // 2):  # together larger than a segment
                assert produce(connection, topic, batch(more[at : at + len(more) // 2])).error_code == 0
    ends = until_clean(server, topics)
    found = content(server, topics)
    server.stop()
    return found, ends


@pytest.mark.timeout(900)
def test_both_cleaners_agree_on_old_formats(kafka: KafkaOldProcess, ours: BrokerProcess) -> None:
    kafka.data.mkdir()
    with tarfile.open(GOLDEN / "logs" / "kafka-3.9.1.tar.xz") as archive:
        archive.extractall(kafka.data)  # a trusted archive; `filter` needs Python 3.11.4
    shutil.copytree(GOLDEN / "kafka-3.9.1" / "data", kafka.data, dirs_exist_ok=True)
    for directory in [path for path in kafka.data.iterdir() if path.name.startswith(LEFT_OUT)]:
        shutil.rmtree(directory)
    (kafka.data / "cleaner-offset-checkpoint").unlink()
    topics = sorted(path.name.removesuffix("-0") for path in kafka.data.glob("s-*"))
    assert {"s-v0-none", "s-v0-lz4", "s-v1-gzip", "s-mixed"} < set(topics)
    configs = [argument for config in CONFIGS for argument in ("--topic-config", f"*:{config}")]
    run("import", "--log-dirs", str(kafka.data), *configs)
    shutil.copytree(kafka.data, ours.data)
    kafka.start_zookeeper()
    run("export", "--log-dirs", str(kafka.data), "--zookeeper", kafka.zookeeper)

    more = changes(140, start=0, keys=10, began_ms=now_ms())
    theirs, ends = rolled_and_cleaned(kafka, topics, more)
    mine, our_ends = rolled_and_cleaned(ours, topics, more)
    assert our_ends == ends and all(ends.values())
    assert_same_logs(ours, kafka, topics, ends)
    assert (mine.starts, mine.records) == (theirs.starts, theirs.records)
