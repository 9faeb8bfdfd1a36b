"""`txbroker log-cleaner --dry-run`: prints which records a pass of the log cleaner would remove, and why."""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from txbroker.broker.settings import log_config
from txbroker.cli import clients
from txbroker.cli.progress import Progress
from txbroker.cli.results import Column, Results, Row, results
from txbroker.config.resolve import BrokerConfig
from txbroker.config.topic_keys import TOPIC_KEYS
from txbroker.config.topics import topic_settings, validate_topic_configs
from txbroker.console.failures import DONE, BadUsage, CommandFailed, broker_error, no_topic, warn
from txbroker.console.texts import json_value, size_text
from txbroker.errors import BrokerError, ErrorCode, StorageError
from txbroker.log.cleaner.cleaning_job import Removable
from txbroker.log.log_config import LogConfig
from txbroker.log.os_disk import OsDisk
from txbroker.logtools.compaction_dry_run import (
    DEDUPE_BUFFER_BYTES,
    DryRun,
    DryRunFailed,
    DryRunReport,
    PartitionLog,
    cleaning_settings,
    find_partitions,
    read_checkpoints,
)
from txbroker.logtools.process_directories import data_directories
from txbroker.logtools.stored_configs import NotReadable, broker_configs, topic_configs
from txbroker.names import TopicPartition, amount

# The table on a terminal is printed once all of its rows are known.
TABLE_ROWS_MAX = 1_000
KEY_SHOWN_MAX = 100

COLUMNS = (
    Column("partition", "PARTITION"), Column("offset", "OFFSET"), Column("timestamp", "TIMESTAMP"), Column("key", "KEY"),
    Column("size", "SIZE"), Column("reason", "REASON"), Column("kept_offset", "KEPT-OFFSET"),
)  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Print the dry run of the topic's partitions; BadUsage, CommandFailed.

    Arguments: log_dir, topic, partition, roll, topic_config, dedupe_buffer_size, json; bootstrap_server and command_config of a broker
    to read the topic's configuration from, or None.
    """
    disk = OsDisk()
    directories = [os.path.abspath(each.strip()) for each in arguments.log_dir.split(",")]
    logs = _partitions(disk, directories, arguments)
    config, assumed = _topic_config(disk, directories, arguments)
    if not config.compact:
        warn(f"cleanup.policy of {arguments.topic} does not contain compact: without it the log cleaner removes none of these records")
    settings = cleaning_settings(config, arguments.dedupe_buffer_size or DEDUPE_BUFFER_BYTES)
    checkpoints = {each: read_checkpoints(disk, each, _warn_of_ignored) for each in {log.data_directory for log in logs}}
    printed = results(arguments)
    for log in logs:
        shown = _Shown(printed, log.topic_partition)
        now_ms, seed, known = time.time_ns() // 1_000_000, random.getrandbits(64), checkpoints[log.data_directory]
        try:
            report = _run_one(DryRun(disk, log, config, settings, known, roll=arguments.roll, now_ms=now_ms, seed=seed), shown)
        except DryRunFailed as failed:
            raise _failure(log, failed) from None
        shown.finish(report, roll=arguments.roll, assumed=assumed)
    return DONE


def _run_one(dry_run: DryRun, shown: _Shown) -> DryRunReport:
    progress = Progress(sys.stderr if sys.stderr.isatty() else None, time.monotonic, dry_run.bytes_to_read)

    def on_read(done: int) -> None:
        progress.add(done - progress.bytes, 0)

    def on_removable(found: Removable) -> None:
        progress.records += 1
        shown.removable(found)

    try:
        return dry_run.run(on_removable, on_read, monotonic=time.monotonic, sleep=time.sleep)
    finally:
        progress.finish()


def _partitions(disk: OsDisk, directories: Sequence[str], arguments: argparse.Namespace) -> list[PartitionLog]:
    try:
        found = find_partitions(disk, data_directories(disk, directories), arguments.topic, arguments.partition)
    except StorageError as error:
        raise CommandFailed(f"{error}; --log-dir must be one of the broker's log.dirs, or a comma-separated list of them") from None
    if not found:
        what = arguments.topic if arguments.partition is None else f"{arguments.topic}-{arguments.partition}"
        raise CommandFailed(f"no log of {what} in {arguments.log_dir}; specify all log.dirs of the broker as a comma-separated list")
    return found


def _warn_of_ignored(path: str, error: Exception) -> None:
    warn(f"{path} is ignored: {error}")


def _failure(log: PartitionLog, failed: DryRunFailed) -> CommandFailed:
    hint = "a running broker may have changed the log: try again"
    if failed.damaged:
        hint = f"see `txbroker log verify {log.path}`; {hint}"
    return CommandFailed(f"{log.topic_partition} cannot be read: {failed}; {hint}")


# The topic's configuration


def _topic_config(disk: OsDisk, directories: Sequence[str], arguments: argparse.Namespace) -> tuple[LogConfig, bool]:
    """The topic's configuration, and whether it is assumed, i.e. from --topic-config alone. BadUsage: no source has it."""
    if arguments.bootstrap_server:
        return _resolved(BrokerConfig({}), {**_described(arguments), **arguments.topic_config}), False
    config, overrides, problem = BrokerConfig({}), None, ""
    try:
        overrides = topic_configs(disk, directories, arguments.topic)
        stored = broker_configs(disk, directories)
        config.set_dynamic(stored.broker, stored.default)
    except NotReadable as error:
        problem = str(error).rstrip(".")
    if overrides is not None:
        return _resolved(config, {**overrides, **arguments.topic_config}), False
    if not arguments.topic_config:
        reason = problem or f"{arguments.log_dir} has no metadata of topic {arguments.topic}"
        advice = "specify all log.dirs, the broker with --bootstrap-server, or --topic-config, e.g. compaction.strategy=offset"
        raise BadUsage(f"the topic's configuration is unknown: {reason}; {advice}")
    return _resolved(config, {"cleanup.policy": "compact", **arguments.topic_config}), True


def _described(arguments: argparse.Namespace) -> Mapping[str, str]:
    """The effective configuration of the topic, from a broker."""
    from kafka.protocol.admin import DescribeConfigsRequest

    with clients.administering(arguments) as admin:
        request = DescribeConfigsRequest(resources=[(2, arguments.topic, None)], min_version=1)
        (found,) = clients.send(admin, request).results
    if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise no_topic(arguments.topic)
    if found.error_code != ErrorCode.NONE:
        raise broker_error(f"topic {arguments.topic} cannot be described", found.error_code, found.error_message)
    return {config.name: config.value for config in found.configs if config.name in TOPIC_KEYS and config.value is not None}


def _resolved(config: BrokerConfig, overrides: Mapping[str, str]) -> LogConfig:
    try:
        validate_topic_configs(config, overrides)
    except BrokerError as error:
        raise BadUsage(f"--topic-config: {error}") from None
    return log_config(topic_settings(config, overrides))


# Output


class _Shown:
    """Prints one partition: each record as it is found, or, on a terminal, a table of the first TABLE_ROWS_MAX; then a summary."""

    def __init__(self, printed: Results, topic_partition: TopicPartition) -> None:
        self._printed = printed
        self._topic_partition = topic_partition
        self._rows: list[Row] = []
        self._left_out = 0

    def removable(self, found: Removable) -> None:
        row = {
            "topic": self._topic_partition.topic,
            "partition": self._topic_partition.partition,
            "offset": found.offset,
            "timestamp": found.timestamp,
            "key": json_value(found.key),
            "size": found.size,
            "reason": found.reason,
            "kept_offset": None if found.kept_offset < 0 else found.kept_offset,
        }
        if self._printed.as_json:
            self._printed.json(row)
        elif self._printed.width is None:
            self._printed.line(_line(row))
        elif len(self._rows) < TABLE_ROWS_MAX:
            self._rows.append({**row, "key": _key(row)})
        else:
            self._left_out += 1

    def finish(self, report: DryRunReport, *, roll: bool, assumed: bool) -> None:
        if self._rows:
            self._printed.rows(COLUMNS, self._rows)
        if self._left_out:
            self._printed.line(f"... and {self._left_out} more: --json or a pipe prints all")
        self._printed.either(self._summary(report, assumed), partial(self._sentences, report, roll, assumed))

    def _summary(self, report: DryRunReport, assumed: bool) -> Row:
        found, not_now = report.planned.cleanable, report.why_not_now
        return {
            "topic": self._topic_partition.topic,
            "partition": self._topic_partition.partition,
            "records": sum(report.records.values()),
            "bytes": report.bytes,
            "reasons": dict(report.records),
            "first_dirty_offset": found.first_dirty_offset,
            "first_uncleanable_offset": found.first_uncleanable_offset,
            "clean_up_to": report.clean_up_to,
            "dirty_ratio": round(found.dirty_ratio, 4),
            "missed_keys": report.missed_keys,
            "invalid_headers": report.invalid_headers,
            "why_not_now": None if not_now is None else not_now.sentence,
            "strategy": report.config.compaction_strategy.value,
            "assumed": assumed,
        }

    def _sentences(self, report: DryRunReport, roll: bool, assumed: bool) -> list[str]:
        not_now = None if report.why_not_now is None else report.why_not_now.sentence
        lines = []
        if report.planned.job is None:
            hint = "; use --roll to include it" if report.roll_would_help and not roll else ""
            lines.append(f"{self._topic_partition}: no record would be removed: {not_now}{hint}.")
        else:
            lines.append(f"{self._topic_partition}: {_removed(report)}.")
            if report.map_full:
                full = f"The dedupe buffer is full at offset {report.clean_up_to} (--dedupe-buffer-size)"
                lines.append(f"{full}: the next pass continues there.")
            if report.missed_keys:
                lines.append(f"{amount(report.missed_keys, 'key')} did not fit into the dedupe buffer: the next pass cleans them.")
            if report.invalid_headers:
                lines.append(f"Records with an invalid version header (not 8 bytes), which counts as none: {report.invalid_headers:,}.")
            if not_now is not None:
                lines.append(f"The log cleaner would not start this pass now: {not_now}.")
        if assumed:
            strategy = report.config.compaction_strategy.value
            lines.append(f"The topic's configuration is assumed from --topic-config: compaction.strategy={strategy}.")
        return lines


def _removed(report: DryRunReport) -> str:
    total = sum(report.records.values())
    reasons = ", ".join(f"{count} {reason}" for reason, count in report.records.items())
    what = f"{amount(total, 'record')} of {size_text(report.bytes)} would be removed ({reasons})" if total else "no record would be removed"
    return f"{what}; offsets {report.planned.cleanable.first_dirty_offset} to {report.clean_up_to} would become clean"


def _line(row: Row) -> str:
    """A row for scripts."""
    kept = "" if row["kept_offset"] is None else f" kept: {row['kept_offset']}"
    position = f"{row['topic']}-{row['partition']} offset: {row['offset']} timestamp: {row['timestamp']}"
    return f"{position} key: {_key(row)} size: {row['size']} reason: {row['reason']}{kept}"


def _key(row: Row) -> str:
    key: Any = row["key"]
    text = "null" if key is None else key if isinstance(key, str) else f"base64 {key['base64']}"
    return text if len(text) <= KEY_SHOWN_MAX else f"{text[:KEY_SHOWN_MAX]}…"
