"""The log cleaner: Kafka's names, and what is won, partition by partition, under our own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from txbroker.log.cleaner.cleaning_status import CleaningStatus, State, Totals
from txbroker.metrics.families import Piece, Sample, counters, gathered, gauge, gauges, labels
from txbroker.metrics.watched import Watched
from txbroker.names import TopicPartition


def cleaner(watched: Watched) -> Iterator[Piece]:
    """kafka.log:type=LogCleaner, of the last pass of each worker, and type=LogCleanerManager."""
    cleaning = watched.cleaning
    counts = cleaning.counts
    last = list(counts.recent)[-max(cleaning.threads, 1) :]
    read, written = (sum(getattr(facts.totals, name) for facts in last) for name in ("bytes_read", "bytes_written"))
    prefix = "kafka_log_logcleaner"
    recopied = 100 * written // max(read, 1)
    yield from gauge(f"{prefix}_cleaner_recopy_percent", "Bytes that the last passes wrote, of those that they read", recopied)
    seconds = max((facts.totals.seconds for facts in last), default=0.0)
    yield from gauge(f"{prefix}_max_clean_time_secs", "The longest of the last passes", int(seconds))
    used = max((facts.map_used for facts in last), default=0.0)
    documentation = "The used part of the map of keys, at most, in the last passes"
    yield from gauge(f"{prefix}_max_buffer_utilization_percent", documentation, int(100 * used))
    delay_ms = max((facts.overdue_ms for facts in last), default=0)
    documentation = "By how much a record had outlived max.compaction.lag.ms when the last passes began"
    yield from gauge(f"{prefix}_max_compaction_delay_secs", documentation, delay_ms // 1000)
    # A worker that dies is replaced with the next pass.
    yield from gauge(f"{prefix}_deadthreadcount", "Workers that are gone and not replaced", 0)
    yield from _manager(watched)
    failures: list[Sample] = [(labels(kind=kind), count) for kind, count in counts.failures.items()]
    yield from counters("txbroker_cleaner_failures", "Passes that were given up, by reason", failures)
    yield from gauge("txbroker_cleaner_passes_running", "Passes under way", len(cleaning.running))


def _manager(watched: Watched) -> Iterator[Piece]:
    cleaning = watched.cleaning
    aside = dict.fromkeys(watched.directories.online(), 0)
    aside_bytes = dict(aside)
    for topic_partition in cleaning.put_aside:
        status, bad = cleaning.status(topic_partition), watched.directories.get(topic_partition)
        if status is not None and bad is not None and status.state is State.PUT_ASIDE:
            directory = bad.directory.rpartition("/")[0]
            aside[directory] = aside.get(directory, 0) + 1
            aside_bytes[directory] = aside_bytes.get(directory, 0) + status.cleanable_bytes
    prefix = "kafka_log_logcleanermanager"
    documentation = "The largest dirty part of a log, when logs were last looked at"
    yield from gauge(f"{prefix}_max_dirty_percent", documentation, int(100 * cleaning.dirtiest_ratio))
    yield from gauge(f"{prefix}_time_since_last_run_ms", "Since when logs were last looked at", cleaning.since_round_ms)
    of_directories: list[Sample] = [(labels(logDirectory=path), count) for path, count in aside.items()]
    yield from gauges(f"{prefix}_uncleanable_partitions_count", "Partitions that were put aside", of_directories)
    of_directories = [(labels(logDirectory=path), count) for path, count in aside_bytes.items()]
    yield from gauges(f"{prefix}_uncleanable_bytes", "Bytes of those that would be cleaned", of_directories)


_COUNTS: tuple[tuple[str, str, Callable[[Totals], float]], ...] = (
    ("passes", "Passes over a partition", lambda t: t.passes),
    ("records_won", "Records that passes removed", lambda t: t.records_before - t.records_after),
    ("bytes_won", "Bytes that passes freed", lambda t: t.bytes_before - t.bytes_after),
    ("invalid_headers", "Records whose version (KIP-280) is not of 8 bytes", lambda t: t.invalid_headers),
    ("missed_keys", "Keys that found no place in the map, and waited for the next pass", lambda t: t.missed_keys),
)


def partitions(watched: Watched, labels_max: int) -> Iterator[Piece]:
    """What passes have won of each compacted partition here, and what is dirty."""
    cleaning = watched.cleaning
    compacted = (partition.topic_partition for partition in watched.replicas if partition.log.config.compact)
    rows: list[tuple[str, TopicPartition, CleaningStatus | None]] = []
    yield from gathered(((_labels(each), each, cleaning.status(each)) for each in islice(compacted, labels_max)), rows)
    ratios = ((text, status.dirty_ratio) for text, _, status in rows if status is not None)
    yield from gauges("txbroker_cleaner_dirty_ratio", "The cleanable part of what a pass would read, 0 to 1", ratios)
    won = [(text, cleaning.counts.of[each]) for text, each, _ in rows if each in cleaning.counts.of]
    for name, documentation, value in _COUNTS:
        yield from counters(f"txbroker_cleaner_{name}", documentation, ((text, value(totals)) for text, totals in won))


def _labels(topic_partition: TopicPartition) -> str:
    return labels(topic=topic_partition.topic, partition=str(topic_partition.partition))
