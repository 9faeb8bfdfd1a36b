"""Metrics of the log cleaner: Kafka's, under Kafka's names, and totals of each partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from txbroker.log.cleaner.cleaning_status import CleaningStatus, State, Totals
from txbroker.metrics.families import Piece, Sample, counters, gathered, gauge, gauges, labels
from txbroker.metrics.sources import MetricSources
from txbroker.names import TopicPartition


def cleaner(sources: MetricSources) -> Iterator[Piece]:
    """kafka.log:type=LogCleaner, of the last pass of each worker, and type=LogCleanerManager."""
    counts = sources.cleaner.counts
    last = list(counts.recent)[-max(sources.cleaner.threads, 1) :]
    read, written = (sum(getattr(facts.totals, name) for facts in last) for name in ("bytes_read", "bytes_written"))
    prefix = "kafka_log_logcleaner"
    recopied = 100 * written // max(read, 1)
    yield from gauge(f"{prefix}_cleaner_recopy_percent", "Bytes written by the last passes, in percent of the bytes read", recopied)
    seconds = max((facts.totals.seconds for facts in last), default=0.0)
    yield from gauge(f"{prefix}_max_clean_time_secs", "Longest duration of the last passes, in seconds", int(seconds))
    used = max((facts.map_used for facts in last), default=0.0)
    documentation = "Largest utilization of the map of keys in the last passes, in percent"
    yield from gauge(f"{prefix}_max_buffer_utilization_percent", documentation, int(100 * used))
    delay_ms = max((facts.overdue_ms for facts in last), default=0)
    documentation = "Time by which records exceeded max.compaction.lag.ms when the last passes began, in seconds"
    yield from gauge(f"{prefix}_max_compaction_delay_secs", documentation, delay_ms // 1000)
    yield from gauge(f"{prefix}_deadthreadcount", "Cleaner workers that hang and cannot be killed", sources.cleaner.stuck_workers)
    yield from _manager(sources)
    failures: list[Sample] = [(labels(kind=kind), count) for kind, count in counts.failures.items()]
    yield from counters("txbroker_cleaner_failures", "Aborted cleaner passes, by reason", failures)
    yield from gauge("txbroker_cleaner_passes_running", "Running cleaner passes", len(sources.cleaner.running))


def _manager(sources: MetricSources) -> Iterator[Piece]:
    cleaner = sources.cleaner
    partitions = dict.fromkeys(sources.directories.online(), 0)
    bytes_ = dict(partitions)
    for topic_partition in cleaner.uncleanable:
        status, bad = cleaner.status(topic_partition), sources.directories.get(topic_partition)
        if status is not None and bad is not None and status.state is State.UNCLEANABLE:
            directory = bad.directory.rpartition("/")[0]
            partitions[directory] = partitions.get(directory, 0) + 1
            bytes_[directory] = bytes_.get(directory, 0) + status.cleanable_bytes
    prefix = "kafka_log_logcleanermanager"
    documentation = "Largest dirty ratio of a log at the last check, in percent"
    yield from gauge(f"{prefix}_max_dirty_percent", documentation, int(100 * cleaner.dirtiest_ratio))
    documentation = "Time since the cleaner last checked for logs to clean, in milliseconds"
    yield from gauge(f"{prefix}_time_since_last_run_ms", documentation, cleaner.since_round_ms)
    of_directories: list[Sample] = [(labels(logDirectory=path), count) for path, count in partitions.items()]
    yield from gauges(f"{prefix}_uncleanable_partitions_count", "Uncleanable partitions, by log directory", of_directories)
    of_directories = [(labels(logDirectory=path), count) for path, count in bytes_.items()]
    yield from gauges(f"{prefix}_uncleanable_bytes", "Cleanable bytes of uncleanable partitions, by log directory", of_directories)


_COUNTS: tuple[tuple[str, str, Callable[[Totals], float]], ...] = (
    ("passes", "Cleaner passes of the partition", lambda t: t.passes),
    ("records_removed", "Records removed by cleaner passes", lambda t: t.records_before - t.records_after),
    ("bytes_freed", "Bytes freed by cleaner passes", lambda t: t.bytes_before - t.bytes_after),
    ("invalid_headers", "Records whose version header (KIP-280) does not have 8 bytes", lambda t: t.invalid_headers),
    ("missed_keys", "Keys that did not fit into the map and are left to the next pass", lambda t: t.missed_keys),
)


def partitions(sources: MetricSources, labels_max: int) -> Iterator[Piece]:
    """The dirty ratio of each compacted partition on this broker, and the totals of its passes."""
    cleaner = sources.cleaner
    compacted = (partition.topic_partition for partition in sources.replicas if partition.log.config.compact)
    rows: list[tuple[str, TopicPartition, CleaningStatus | None]] = []
    yield from gathered(((_labels(each), each, cleaner.status(each)) for each in islice(compacted, labels_max)), rows)
    ratios = ((text, status.dirty_ratio) for text, _, status in rows if status is not None)
    documentation = "Ratio of cleanable bytes to all bytes that a pass would rewrite, from 0 to 1"
    yield from gauges("txbroker_cleaner_dirty_ratio", documentation, ratios)
    totals_of = [(text, cleaner.counts.of[each]) for text, each, _ in rows if each in cleaner.counts.of]
    for name, documentation, value in _COUNTS:
        yield from counters(f"txbroker_cleaner_{name}", documentation, ((text, value(totals)) for text, totals in totals_of))


def _labels(topic_partition: TopicPartition) -> str:
    return labels(topic=topic_partition.topic, partition=str(topic_partition.partition))
