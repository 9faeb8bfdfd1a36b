"""Compares two copies of a log directory that were compacted by two brokers."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.cli.commands import run
from tests.handover.compacting import fill_varied, segment_bases, until_clean
from tests.handover.feeding import content
from tests.support.broker import BrokerProcess
from tests.support.dump import DumpedLog, dump_directory
from tests.support.kafka import KafkaOldProcess
from tests.support.server import Server


def assert_same_logs(mine: Server, theirs: Server, topics: Iterable[str], ends: Mapping[str, int]) -> None:
    """Check that segments, batches, offsets and aborted transactions are equal, and that Kafka's tool accepts both.

    `ends`: up to where a pass has gone. The batch that ends there stays here when it has lost its records, so that the end of the log is
    never lost with it: that is Kafka's rule too, but younger than the release that is compared with (KAFKA-17076). Batches without records
    that a producer may send again stay here, too.
    """
    judgement, reference = dump_directory(mine.data), dump_directory(theirs.data)
    for topic in topics:
        ours, kafkas = judgement[f"{topic}-0"], reference[f"{topic}-0"]
        assert ours.offsets == kafkas.offsets, topic
        end = ends.get(topic, 0)
        repeatable = {batch for batch in ours.batches if batch[3] >= 0 and _is_empty(batch, ours)} - {*kafkas.batches}
        assert [batch for batch in ours.batches if batch not in repeatable and not _marks_end(batch, ours, end)] == [
            batch for batch in kafkas.batches if not _marks_end(batch, kafkas, end)
        ], topic
        assert segment_bases(mine.partition_directory(topic)) == segment_bases(theirs.partition_directory(topic)), topic
        assert _aborted(mine.partition_directory(topic)) == _aborted(theirs.partition_directory(topic)), topic


def _is_empty(batch: tuple[int, int, str, int], log: DumpedLog) -> bool:
    base, last, _, _ = batch
    return not any(base <= offset <= last for offset in log.offsets)


def _marks_end(batch: tuple[int, int, str, int], log: DumpedLog, end: int) -> bool:
    return batch[1] + 1 == end and _is_empty(batch, log)


def _aborted(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.glob("*.txnindex") if path.stat().st_size}


def compare_varied(kafka: KafkaOldProcess, ours: BrokerProcess, seed: int, count: int) -> str:
    """Compact copies of a random directory with both brokers; AssertionError when they differ. A description of the input."""
    kafka.overrides["log.cleaner.enable"] = "false"
    kafka.start()
    topics = fill_varied(kafka, seed, count)
    *_, unfinished = topics
    stable = {unfinished: content(kafka, topics).stable[unfinished, 0]}
    kafka.stop()
    shutil.copytree(kafka.data, ours.data)
    kafka.overrides["log.cleaner.enable"] = "true"
    kafka.start()
    ends = until_clean(kafka, topics, stable)
    theirs = content(kafka, topics)
    kafka.stop()
    run("import", "--log-dirs", str(ours.data), "--zookeeper", kafka.zookeeper)
    ours.start()
    assert until_clean(ours, topics, stable) == ends
    mine = content(ours, topics)
    ours.stop()
    assert_same_logs(ours, kafka, topics, ends)
    assert (mine.starts, mine.stable, mine.records) == (theirs.starts, theirs.stable, theirs.records)
    left = sum(len(mine.records["read_uncommitted", topic, 0]) for topic in topics)
    written = sum(end for _, end in mine.starts.values())
    return f"seed {seed}: of {written} offsets in {count} topics, {left} records are left by both"
