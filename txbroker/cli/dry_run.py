"""Which records a cleaning would remove from a topic, and why: found in the files of a log directory, of which nothing is changed."""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from txbroker.cli import clients
from txbroker.cli.failures import DONE, BadUsage, CommandFailed, broker_error, no_topic, warn
from txbroker.cli.progress import Progress, size_text
from txbroker.cli.record_formatter import json_value
from txbroker.cli.results import Column, Results, Row, results
from txbroker.errors import BrokerError, ErrorCode, StartError, StorageError
from txbroker.names import TopicPartition, parse_partition_directory

if TYPE_CHECKING:
    from txbroker.log.cleaner.cleaning_job import CleaningSettings, Event, Removable
    from txbroker.log.disk import Disk
    from txbroker.log.log_config import LogConfig
    from txbroker.logtools.compaction_plan import Planned

DEDUPE_BUFFER_BYTES = 128 << 20  # log.cleaner.dedupe.buffer.size
LOAD_FACTOR = 0.9  # log.cleaner.io.buffer.load.factor
IO_BUFFER_BYTES = 512 << 10  # log.cleaner.io.buffer.size
UNLIMITED = float("inf")
# A table on a terminal is made when all of its rows are there.
TABLE_ROWS_MAX = 1_000
KEY_SHOWN_MAX = 100
ASSUMED: Mapping[str, str] = {"cleanup.policy": "compact"}

COLUMNS = (
    Column("partition", "PARTITION"), Column("offset", "OFFSET"), Column("timestamp", "TIMESTAMP"), Column("key", "KEY"),
    Column("size", "SIZE"), Column("reason", "REASON"), Column("kept_offset", "KEPT-OFFSET"),
)  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """The dry run of all partitions of the topic in a log directory, or of one; BadUsage, CommandFailed.

    For `log-cleaner --dry-run` and `log compact --dry-run`. Asked for: log_dir, topic, partition, roll, topic_config, dedupe_buffer_size,
    json, and bootstrap_server with command_config, of a broker that has the topic's settings, or None.
    """
    from txbroker.log.disk import OsDisk

    places = _places(arguments.log_dir, arguments.topic, arguments.partition)
    stored = _stored_settings(arguments)
    overrides = {**stored, **arguments.topic_config}
    config = _log_config(overrides)
    if not config.compact:
        warn(f"cleanup.policy of {arguments.topic} has no compact, so that no pass will begin; this is what one would do")
    settings = cleaning_settings(config, arguments.dedupe_buffer_size or DEDUPE_BUFFER_BYTES)
    checkpoints = Checkpoints.read(OsDisk(), arguments.log_dir)
    shown = results(arguments)
    for topic_partition in places:
        dry_run = _DryRun(shown, topic_partition, config, assumed=stored is ASSUMED)
        dry_run.go(OsDisk(), arguments.log_dir, settings, checkpoints, roll=arguments.roll)
    return DONE


def cleaning_settings(config: LogConfig, dedupe_buffer_bytes: int) -> CleaningSettings:
    """What a worker would be told that had all the memory."""
    from txbroker.log.cleaner.cleaning_job import CleaningSettings

    return CleaningSettings(
        strategy=config.compaction_strategy,
        header=config.compaction_strategy_header,
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        delete_retention_ms=config.delete_retention_ms,
        max_message_bytes=config.max_message_bytes,
        map_bytes=min(dedupe_buffer_bytes, 2**31 - 1),
        load_factor=LOAD_FACTOR,
        io_buffer_bytes=IO_BUFFER_BYTES,
        io_bytes_per_second=UNLIMITED,
    )


def _places(directory: str, topic: str, partition: int | None) -> list[TopicPartition]:
    try:
        names = os.listdir(directory)
    except OSError as error:
        raise CommandFailed(f"{directory} cannot be read ({error.strerror}); name one of the broker's log.dirs") from None
    found = [parsed for name in names if (parsed := parse_partition_directory(name)) is not None and parsed.topic == topic]
    wanted = sorted(each for each in found if partition is None or each.partition == partition)
    if not wanted:
        what = topic if partition is None else f"{topic}-{partition}"
        raise CommandFailed(f"there is no log of {what} in {directory}; see its directories, and the broker's other log.dirs")
    return wanted


def _stored_settings(arguments: argparse.Namespace) -> Mapping[str, str]:
    """What is configured for the topic: by the broker, or by what a broker that does not run has left; else the defaults."""
    from txbroker.cluster.node_data import MalformedNode, decode_config
    from txbroker.cluster.node_paths import topic_entity
    from txbroker.cluster.tree.sqlite import FILE_NAME
    from txbroker.cluster.tree.sqlite_file import read_nodes
    from txbroker.log.directory import LOCK_FILE
    from txbroker.log.disk import OsDisk

    if arguments.bootstrap_server:
        return _told_settings(arguments)
    assumed = "the settings are assumed to be the defaults, cleanup.policy=compact and those of --topic-config"
    path = os.path.join(arguments.log_dir, FILE_NAME)
    if not os.path.exists(path):
        warn(f"{arguments.log_dir} has no {FILE_NAME}: {assumed}")
        return ASSUMED
    try:
        lock = OsDisk().lock(os.path.join(arguments.log_dir, LOCK_FILE))
        if lock is None:
            warn(f"a broker runs on {arguments.log_dir}: {assumed}; `txbroker log-cleaner --dry-run --bootstrap-server` asks it")
            return ASSUMED
        lock.release()
        entity = topic_entity(arguments.topic)
        data = read_nodes(path, [entity.path]).get(entity.path)
        return {} if data is None else decode_config(data)
    except (StartError, StorageError, MalformedNode) as error:
        warn(f"{path} cannot be read ({error}): {assumed}")
        return ASSUMED


def _told_settings(arguments: argparse.Namespace) -> Mapping[str, str]:
    from kafka.protocol.admin import DescribeConfigsRequest

    from txbroker.config.topic_keys import TOPIC_KEYS

    with clients.administering(arguments) as admin:
        request = DescribeConfigsRequest(resources=[(2, arguments.topic, None)], min_version=1)
        (found,) = clients.ask(admin, request).results
    if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise no_topic(arguments.topic)
    if found.error_code != ErrorCode.NONE:
        raise broker_error(f"topic {arguments.topic} is not described", found.error_code, found.error_message)
    return {config.name: config.value for config in found.configs if config.name in TOPIC_KEYS and config.value is not None}


def _log_config(overrides: Mapping[str, str]) -> LogConfig:
    from txbroker.broker.settings import log_config
    from txbroker.config.resolve import BrokerConfig
    from txbroker.config.topics import topic_settings, validate_topic_configs

    config = BrokerConfig({})
    try:
        validate_topic_configs(config, overrides)
    except BrokerError as error:
        raise BadUsage(f"--topic-config: {error}") from None
    return log_config(topic_settings(config, overrides))


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """What the checkpoint files of a log directory say of its partitions."""

    cleaned: Mapping[TopicPartition, int]
    starts: Mapping[TopicPartition, int]

    @classmethod
    def read(cls, disk: Disk, directory: str) -> Checkpoints:
        """Files that are missing or damaged say nothing, as for a broker."""
        from txbroker.log.checkpoints import CLEANER_OFFSETS, LOG_START_OFFSETS, SIZE_MAX, MalformedCheckpoint, parse_offsets

        def offsets(name: str) -> Mapping[TopicPartition, int]:
            path = os.path.join(directory, name)
            try:
                size = disk.size(path)
                return parse_offsets(disk.read(path) or b"") if size is not None and size <= SIZE_MAX else {}
            except (StorageError, MalformedCheckpoint) as error:
                warn(f"{path} is left out of account: {error}")
                return {}

        return cls(offsets(CLEANER_OFFSETS), offsets(LOG_START_OFFSETS))


@dataclass(slots=True)
class _DryRun:
    """One partition's. `assumed`: nothing has told the topic's settings."""

    shown: Results
    topic_partition: TopicPartition
    config: LogConfig
    assumed: bool
    rows: list[Row] = field(default_factory=list)
    left_out: int = 0
    records: Counter[str] = field(default_factory=Counter)
    bytes: int = 0
    clean_up_to: int = 0
    missed_keys: int = 0
    invalid_headers: int = 0

    def go(self, disk: Disk, log_dir: str, settings: CleaningSettings, checkpoints: Checkpoints, *, roll: bool) -> None:
        """Print what would go, and a summary."""
        from txbroker.logtools.compaction_plan import plan

        try:
            planned = plan(
                disk,
                os.path.join(os.path.abspath(log_dir), str(self.topic_partition)),
                self.topic_partition,
                self.config,
                settings,
                checkpoint=checkpoints.cleaned.get(self.topic_partition),
                log_start_offset=checkpoints.starts.get(self.topic_partition, 0),
                roll=roll,
                now_ms=time.time_ns() // 1_000_000,
                seed=random.getrandbits(64),
            )
        except StorageError as error:
            raise self._failed(str(error)) from None
        if planned is None:
            raise CommandFailed(f"{self.topic_partition} has no segment in {log_dir}; choose another --partition")
        if planned.job is not None:
            self._clean(disk, planned)
        self._summary(planned, roll)

    def _clean(self, disk: Disk, planned: Planned) -> None:
        from txbroker.log.cleaner.compaction_pass import run_job

        assert planned.job is not None
        total = sum(span.size for span in planned.job.segments) + planned.cleanable.cleanable_bytes
        progress = Progress(sys.stderr if sys.stderr.isatty() else None, time.monotonic, total)
        try:
            report = partial(self._reported, progress)
            run_job(planned.job, disk, report, lambda: False, monotonic=time.monotonic, sleep=time.sleep)
        finally:
            progress.finish()

    def _reported(self, progress: Progress, event: Event) -> None:
        from txbroker.log.cleaner import cleaning_job

        match event:
            case cleaning_job.Removable():
                self._removable(event)
                progress.records += 1
            case cleaning_job.Progress():
                progress.add(event.bytes_done - progress.bytes, 0)
            case cleaning_job.Mapped():
                self.clean_up_to, self.missed_keys, self.invalid_headers = event.end_offset, event.missed_keys, event.invalid_headers
            case cleaning_job.Failed():
                raise self._failed(event.reason, damaged=event.kind is cleaning_job.FailureKind.CORRUPT)
            case _:
                pass

    def _failed(self, reason: str, *, damaged: bool = False) -> CommandFailed:
        hint = "a broker may have changed it meanwhile: try again"
        if damaged:
            hint = f"`txbroker log verify` shows what is damaged, unless {hint}"
        return CommandFailed(f"{self.topic_partition} cannot be read: {reason}; {hint}")

    def _removable(self, found: Removable) -> None:
        self.records[found.reason] += 1
        self.bytes += found.size
        row = {
            "topic": self.topic_partition.topic,
            "partition": self.topic_partition.partition,
            "offset": found.offset,
            "timestamp": found.timestamp,
            "key": json_value(found.key),
            "size": found.size,
            "reason": found.reason,
            "kept_offset": None if found.kept_offset < 0 else found.kept_offset,
        }
        if self.shown.as_json:
            self.shown.json(row)
        elif self.shown.width is None:
            self.shown.line(plain(row))
        elif len(self.rows) < TABLE_ROWS_MAX:
            self.rows.append({**row, "key": _key(row)})
        else:
            self.left_out += 1

    def _summary(self, planned: Planned, roll: bool) -> None:
        if self.rows:
            self.shown.rows(COLUMNS, self.rows)
        if self.left_out:
            self.shown.line(f"… and {self.left_out} more, which --json or a pipe shows")
        counted = {"records": sum(self.records.values()), "bytes": self.bytes, "reasons": dict(sorted(self.records.items()))}
        found = planned.cleanable
        dirty = {"first_dirty_offset": found.first_dirty_offset, "first_uncleanable_offset": found.first_uncleanable_offset}
        clean = {"clean_up_to": self.clean_up_to or found.first_dirty_offset, "dirty_ratio": round(found.dirty_ratio, 4)}
        odd = {"missed_keys": self.missed_keys, "invalid_headers": self.invalid_headers}
        place = {"topic": self.topic_partition.topic, "partition": self.topic_partition.partition}
        not_now = _not_now(planned, self.config)
        by = {"strategy": self.config.compaction_strategy.value, "assumed": self.assumed}
        row = {**place, **counted, **dirty, **clean, **odd, "why_not_now": not_now, **by}
        self.shown.either(row, lambda: [*self._sentences(planned, roll, not_now), *self._assumption()])

    def _assumption(self) -> list[str]:
        if not self.assumed:
            return []
        strategy = self.config.compaction_strategy.value
        return [f"The topic's settings are not known: this assumes compaction.strategy={strategy} (--bootstrap-server, --topic-config)."]

    def _sentences(self, planned: Planned, roll: bool, not_now: str | None) -> list[str]:
        from txbroker.log.cleaner.cleanable import Limit
        from txbroker.log.cleaner.cleaning_job import Strategy

        found = planned.cleanable
        lines = []
        if planned.job is None:
            hint = "; --roll shows what would go then" if not roll and found.limit is Limit.ACTIVE else ""
            lines.append(f"{self.topic_partition}: no record would go: {not_now}{hint}.")
            return lines
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(self.records.items()))
        total = sum(self.records.values())
        what = f"{total} records of {size_text(self.bytes)} would go ({reasons})" if total else "no record would go"
        dirty = f"offsets {found.first_dirty_offset} to {self.clean_up_to} are dirty and would be clean"
        lines.append(f"{self.topic_partition}: {what}; {dirty}.")
        # Where the newest record need not be the last, the one at the log's end is judged when another has followed on it.
        at_end = self.config.compaction_strategy is not Strategy.OFFSET and self.clean_up_to == planned.log_end_offset - 1
        if self.clean_up_to < found.first_uncleanable_offset and not at_end:
            lines.append(f"The map of keys is full at offset {self.clean_up_to}: the rest waits for the next pass (--dedupe-buffer-size).")
        if self.missed_keys:
            lines.append(f"{self.missed_keys} keys found no place in the map and wait for the next pass.")
        if self.invalid_headers:
            lines.append(f"{self.invalid_headers} records have a version that is not of 8 bytes, and count as without one.")
        if not_now is not None:
            lines.append(f"The cleaner would not begin now by itself: {not_now}.")
        return lines


def _not_now(planned: Planned, config: LogConfig) -> str | None:
    from txbroker.log.cleaner.cleanable import why_not

    found = why_not(planned.cleanable, config, planned.log_end_offset)
    return None if found is None else found.sentence


def plain(row: Row) -> str:
    """A line for scripts."""
    kept = "" if row["kept_offset"] is None else f" kept: {row['kept_offset']}"
    place = f"{row['topic']}-{row['partition']} offset: {row['offset']} timestamp: {row['timestamp']}"
    return f"{place} key: {_key(row)} size: {row['size']} reason: {row['reason']}{kept}"


def _key(row: Row) -> str:
    key: Any = row["key"]
    text = "null" if key is None else key if isinstance(key, str) else f"base64 {key['base64']}"
    return text if len(text) <= KEY_SHOWN_MAX else f"{text[:KEY_SHOWN_MAX]}…"
