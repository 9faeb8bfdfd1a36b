"""Expiry of one log: segments by Kafka's rule, then records with `retention.precise`; and the retention lag.

`retention.expired_segments` selects whole segments. On a topic with retention.precise=true and cleanup.policy delete the log's start then
moves to the first record that has not expired (`expiry.py`), also within a segment and within the active one, but never above the high
watermark; bytes are freed with their segment. DeleteRecords moves the start in the same way (`Log.advance_start`). The start is
durable in log-start-offset-checkpoint, written every log.flush.start.offset.checkpoint.interval.ms: after a kill it may be the one
written last, as in Kafka, until the next pass.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from txbroker.errors import OutOfResources, StorageError
from txbroker.log.directory import AGAIN_MS, LogDirectory
from txbroker.log.expiry import ANY_TIME, First, Search, plan
from txbroker.log.flush import FlushPlan
from txbroker.log.log import Log
from txbroker.names import TopicPartition

logger = logging.getLogger("txbroker.log")


class Expired(NamedTuple):
    """The result of one expiry: deleted segments, by how many offsets the start moved, freed bytes, and the log's start."""

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
        """Expire one log. `done` is always called, now or later; with None when the log cannot be used."""
        home = self._find(topic_partition)
        if home is None:
            done(None)
            return
        log = home.logs[topic_partition]
        _Expiry(self, home, log, now_ms, high_watermark, done).run()

    def failed(self, home: LogDirectory, error: StorageError) -> None:
        """The disk of a log failed."""
        self._failed(home, error)


class _Searching:
    """A worker searches or syncs; the expiry continues when it has finished."""


_SEARCHING = _Searching()


class _Expiry:
    """One expiry of one log. Its steps return its result, or that a worker is searching."""

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

    def _guarded(self, step: Callable[[], Expired | _Searching | None]) -> None:
        outcome: Expired | _Searching | None = None
        try:
            outcome = step()
        except StorageError as error:
            self._owner.failed(self._home, error)
        except Exception:
            logger.exception("%s: expiry failed; the next pass tries again", self._log.topic_partition)
        if not isinstance(outcome, _Searching):
            self._done(outcome)

    def _begin(self) -> Expired | _Searching | None:
        return self._delete(self._look)

    def _look(self) -> Expired | _Searching | None:
        log = self._log
        timestamp = _keep_from(log, self._now_ms)
        return self._expired() if timestamp is None or log.log_start_offset >= self._end else self._search(timestamp, 0)

    def _delete(self, then: Callable[[], Expired | _Searching | None]) -> Expired | _Searching | None:
        """Delete segments, one after the other, then go on; a worker makes each deletion durable before the next one."""
        log = self._log
        before = log.size
        deleted = log.expire(self._now_ms, self._end)
        if deleted is None:
            return then()
        self._segments += deleted
        self._bytes += before - log.size
        plan = log.names_plan()

        def sync() -> None:
            plan.sync()

        self._home.ask(sync, lambda error: self._guarded(partial(self._deleted, plan, error, then)))
        return _SEARCHING

    def _deleted(
        self, plan: FlushPlan, error: StorageError | None, then: Callable[[], Expired | _Searching | None]
    ) -> Expired | _Searching | None:
        if isinstance(error, OutOfResources):
            # Also a follower's fetches wait for it, and the next pass is minutes away.
            self._home.later(AGAIN_MS, plan.sync, lambda: self._log.flushed(plan))
        if error is not None:
            raise error
        self._log.flushed(plan)
        return self._delete(then) if self._home.logs.get(self._log.topic_partition) is self._log else None

    def _search(self, timestamp: int, begin: int) -> Expired | _Searching | None:
        log = self._log
        where = plan(log.segments, timestamp, log.log_start_offset, log.config.unpacked_bytes_max, begin=begin)
        if not isinstance(where, Search):
            return self._found(timestamp, where)
        finished = partial(self._searched, timestamp, where.then, log.generation, log.log_start_offset)
        self._home.ask(where.run, lambda first: self._guarded(partial(finished, first)))
        return _SEARCHING

    def _searched(
        self, timestamp: int, then: int, generation: int, start: int, first: First | StorageError | None
    ) -> Expired | _Searching | None:
        log = self._log
        if isinstance(first, StorageError):
            raise first
        if self._home.logs.get(log.topic_partition) is not log:
            return None  # deleted, moved, or offline
        if generation != log.generation or start != log.log_start_offset:
            return self._expired()  # truncated, or its start was moved: the next pass searches again
        return self._search(timestamp, then) if first is None else self._found(timestamp, first)

    def _found(self, timestamp: int, first: First | None) -> Expired | _Searching | None:
        log = self._log
        if timestamp != ANY_TIME and log.advance_start(self._end if first is None else min(first.offset, self._end)):
            return self._delete(partial(self._found_after, timestamp, first))
        return self._found_after(timestamp, first)

    def _found_after(self, timestamp: int, first: First | None) -> Expired:
        log = self._log
        # Offsets below the first record may be missing; below the first one that has not expired there may be others, above the end.
        if first is not None and (timestamp == ANY_TIME or first.offset == log.log_start_offset):
            log.first_known = (log.generation, log.log_start_offset, first.timestamp)
        return self._expired()

    def _expired(self) -> Expired:
        start = self._log.log_start_offset
        return Expired(self._segments, start - self._start, self._bytes, start)


def _keep_from(log: Log, now_ms: int) -> int | None:
    """The smallest timestamp of a record that stays; ANY_TIME to find the age of the first record only; None: no search is needed."""
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
    """How long ago a log's first record expired; 0 if it has not, None if that is not known or nothing expires."""
    config = log.config
    if not config.delete or config.retention_ms < 0:
        return None
    if log.log_start_offset == log.log_end_offset:
        return 0
    timestamp = first_ms(log)
    return None if timestamp is None or timestamp < 0 else max(now_ms - timestamp - config.retention_ms, 0)
