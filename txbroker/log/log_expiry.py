"""Expiry of one log after the other: Kafka's rule for all, then `retention.precise`; and how late it is.

Whole segments go by `retention.expired_segments`. On a topic with retention.precise=true and cleanup.policy delete the log's start then
moves on to the first record that has not expired (`expiry`), within a live segment, the active one too, but never above the high
watermark; bytes are freed when their segment goes. DeleteRecords moves the start by the same way (`Log.advance_start`). A start is
durable by log-start-offset-checkpoint, written every log.flush.start.offset.checkpoint.interval.ms: after a kill it may be back where
it was then, as in Kafka, until the next pass.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from txbroker.errors import StorageError
from txbroker.log.directory import LogDirectory
from txbroker.log.expiry import ANY_TIME, First, Search, plan
from txbroker.log.log import Log
from txbroker.names import TopicPartition

logger = logging.getLogger("txbroker.log")


class Expired(NamedTuple):
    """What one expiry did: segments that went, the offsets by which the start moved, bytes that were freed, and where the log starts."""

    segments: int
    records: int
    bytes: int
    log_start_offset: int


Done = Callable[[Expired | None], None]


class Expirer:
    """Belongs to `LogDirectories`, and to the thread of the logs."""

    def __init__(self, find: Callable[[TopicPartition], LogDirectory | None], failed: Callable[[LogDirectory, StorageError], None]) -> None:
        self._find = find
        self._failed = failed

    def expire(self, topic_partition: TopicPartition, now_ms: int, high_watermark: int, done: Done) -> None:
        """Expire what is due in one log; `done` is called in any case, at once or later, with None where the log cannot be used."""
        home = self._find(topic_partition)
        if home is None:
            done(None)
            return
        log = home.logs[topic_partition]
        _Expiry(self, home, log, now_ms, high_watermark, done).run()

    def failed(self, home: LogDirectory, error: StorageError) -> None:
        """The disk of a log failed."""
        self._failed(home, error)


class _Looking:
    """A worker looks; the rest follows when it is done."""


_LOOKING = _Looking()


class _Expiry:
    """One log's turn. Its steps give what is to be told."""

    def __init__(self, owner: Expirer, home: LogDirectory, log: Log, now_ms: int, high_watermark: int, done: Done) -> None:
        self._owner = owner
        self._home = home
        self._log = log
        self._now_ms = now_ms
        self._end = min(high_watermark, log.log_end_offset)
        self._done = done
        self._start = log.log_start_offset
        self._bytes = 0
        self._segments = 0

    def run(self) -> None:
        self._guarded(self._begin)

    def _guarded(self, step: Callable[[], Expired | _Looking | None]) -> None:
        outcome: Expired | _Looking | None = None
        try:
            outcome = step()
        except StorageError as error:
            self._owner.failed(self._home, error)
        except Exception:
            logger.exception("%s is not expired this time", self._log.topic_partition)
        if not isinstance(outcome, _Looking):
            self._done(outcome)

    def _begin(self) -> Expired | _Looking | None:
        log = self._log
        self._delete()
        wanted = _wanted(log, self._now_ms)
        return self._expired() if wanted is None or log.log_start_offset >= self._end else self._look(wanted, 0)

    def _delete(self) -> None:
        log = self._log
        before = log.size
        self._segments += log.delete_expired(self._now_ms, self._end)
        self._bytes += before - log.size

    def _look(self, timestamp: int, begin: int) -> Expired | _Looking | None:
        log = self._log
        where = plan(log.segments, timestamp, log.log_start_offset, log.config.unpacked_bytes_max, begin=begin)
        if not isinstance(where, Search):
            return self._found(timestamp, where)
        looked = partial(self._looked, timestamp, where.then, log.generation, log.log_start_offset)
        self._home.ask(where.run, lambda first: self._guarded(partial(looked, first)))
        return _LOOKING

    def _looked(
        self, timestamp: int, then: int, generation: int, start: int, first: First | StorageError | None
    ) -> Expired | _Looking | None:
        log = self._log
        if isinstance(first, StorageError):
            raise first
        if self._home.logs.get(log.topic_partition) is not log:
            return None  # deleted, moved, or offline
        if generation != log.generation or start != log.log_start_offset:
            return self._expired()  # truncated, or its start was moved, meanwhile: the next pass looks again
        return self._look(timestamp, then) if first is None else self._found(timestamp, first)

    def _found(self, timestamp: int, first: First | None) -> Expired:
        log = self._log
        if timestamp != ANY_TIME and log.advance_start(self._end if first is None else min(first.offset, self._end)):
            self._delete()
        # Offsets below the first record may be missing; below the first one that has not expired there may be others, above the end.
        if first is not None and (timestamp == ANY_TIME or first.offset == log.log_start_offset):
            log.first_known = (log.generation, log.log_start_offset, first.timestamp)
        return self._expired()

    def _expired(self) -> Expired:
        start = self._log.log_start_offset
        return Expired(self._segments, start - self._start, self._bytes, start)


def _wanted(log: Log, now_ms: int) -> int | None:
    """The smallest timestamp of a record that may stay; ANY_TIME where only the age of the first one is wanted; None: nothing is."""
    config = log.config
    if not config.delete or config.retention_ms < 0:
        return None
    known_ms = first_ms(log)
    if not config.retention_precise:
        return ANY_TIME if known_ms is None else None
    keep_from_ms = now_ms - config.retention_ms
    return None if known_ms is not None and known_ms >= keep_from_ms else max(keep_from_ms, ANY_TIME)


def first_ms(log: Log) -> int | None:
    """The timestamp of a log's first record, if it is known."""
    generation, offset, timestamp = log.first_known
    return timestamp if generation == log.generation and offset == log.log_start_offset else None


def lag_ms(log: Log, now_ms: int) -> int | None:
    """For how long a log's first record has expired; 0 for one that has not, None where that is not known or nothing expires."""
    config = log.config
    if not config.delete or config.retention_ms < 0:
        return None
    if log.log_start_offset == log.log_end_offset:
        return 0
    timestamp = first_ms(log)
    return None if timestamp is None or timestamp < 0 else max(now_ms - timestamp - config.retention_ms, 0)
