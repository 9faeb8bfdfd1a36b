"""Cleaning and retention on demand, and the cleaning status as JSON, for admin clients (`api/topic_operations.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from twisted.internet.defer import Deferred

from txbroker.errors import BrokerError, ErrorCode
from txbroker.log.cleaner.cleaning_status import CleaningStatus, Totals
from txbroker.log.log_expiry import Expired
from txbroker.maintenance.log_cleaner import LogCleaner
from txbroker.maintenance.retention import Retention
from txbroker.names import TopicPartition

# Admin clients retry these errors for a minute, although a retry cannot succeed.
_NOT_RETRIED = {ErrorCode.CORRUPT_MESSAGE: ErrorCode.UNKNOWN_SERVER_ERROR}


class OnDemandMaintenance:
    """The `LogMaintenance` of this broker's logs."""

    def __init__(self, cleaner: LogCleaner, retention: Retention) -> None:
        self._cleaner = cleaner
        self._retention = retention

    def check_cleanable(self, topic_partition: TopicPartition) -> None:
        """BrokerError when `clean_now` would fail at once: POLICY_VIOLATION when it is not compacted, or the cleaner is off."""
        self._cleaner.check_can_clean(topic_partition)

    def clean_now(self, topic_partition: TopicPartition, *, roll: bool) -> Deferred[None]:
        """Fires when all is clean that can be. BrokerError; a damaged log is UNKNOWN_SERVER_ERROR, and the message says so."""

        async def clean() -> None:
            try:
                await self._cleaner.clean_now(topic_partition, roll=roll)
            except BrokerError as error:
                raise BrokerError(_NOT_RETRIED.get(error.code, error.code), error.message) from None

        return Deferred.fromCoroutine(clean())

    def expire_now(self, topic_partition: TopicPartition) -> Deferred[None]:
        """Fires when all that has expired is deleted, after a pass of the cleaner that is running. KAFKA_STORAGE_ERROR."""
        return self._cleaner.until_pass_ended(topic_partition).addCallback(lambda _: self._expire(topic_partition))

    def _expire(self, topic_partition: TopicPartition) -> Deferred[None]:
        done: Deferred[None] = Deferred()

        def expired(outcome: Expired | None) -> None:
            if outcome is None:
                done.errback(BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "its log cannot be read or written: see the broker's log"))
            else:
                done.callback(None)

        self._retention.expire(topic_partition, expired)
        return done

    def status(self, topic_partition: TopicPartition) -> Mapping[str, Any]:
        """`CleaningStatus` as JSON values. KAFKA_STORAGE_ERROR when the log cannot be read."""
        found = self._cleaner.status(topic_partition)
        if found is None:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {topic_partition} cannot be read: see the broker's log")
        return as_json(found)


def as_json(status: CleaningStatus) -> dict[str, Any]:
    """The fields by their names. `why` is the reason why no pass is due (`cleanable.Why`), `why_not_now` the same as a sentence."""
    why = status.why_not_now
    return {
        "state": status.state.value,
        "dirty_ratio": round(status.dirty_ratio, 4),
        "first_dirty_offset": status.first_dirty_offset,
        "first_uncleanable_offset": status.first_uncleanable_offset,
        "clean_bytes": status.clean_bytes,
        "cleanable_bytes": status.cleanable_bytes,
        "overdue_ms": status.overdue_ms,
        "progress": None if status.progress is None else list(status.progress),
        "last_ms": status.last_ms,
        "last": None if status.last is None else _totals(status.last),
        "next_run_ms": status.next_run_ms,
        "why": None if why is None else why.why.value,
        "why_not_now": None if why is None else why.sentence,
        "expected_s": None if status.expected_s is None else round(status.expected_s, 3),
        "uncleanable_reason": status.uncleanable_reason,
    }


def _totals(totals: Totals) -> dict[str, Any]:
    removed = {"records_removed": totals.records_before - totals.records_after, "bytes_freed": totals.bytes_before - totals.bytes_after}
    return {**removed, **asdict(totals), "seconds": round(totals.seconds, 3)}
