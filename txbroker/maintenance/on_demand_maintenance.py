"""Cleaning and retention as admin clients ask for them (`api/topic_operations.py`): begun now, told as values that JSON can say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from twisted.internet.defer import Deferred

from txbroker.errors import BrokerError, ErrorCode
from txbroker.log.cleaner.cleaning_status import CleaningStatus, Totals
from txbroker.log.log_expiry import Expired
from txbroker.maintenance.cleaning import Cleaning
from txbroker.maintenance.retention import Retention
from txbroker.names import TopicPartition

# Admin clients try again by themselves on these, for a minute, though nothing would be another then.
_NOT_TRIED_AGAIN = {ErrorCode.CORRUPT_MESSAGE: ErrorCode.UNKNOWN_SERVER_ERROR}


class Care:
    """The `Caretaker` of this broker's logs."""

    def __init__(self, cleaning: Cleaning, retention: Retention) -> None:
        self._cleaning = cleaning
        self._retention = retention

    def check_cleanable(self, topic_partition: TopicPartition) -> None:
        """POLICY_VIOLATION when it is not compacted, or the cleaner is off."""
        self._cleaning.check_askable(topic_partition)

    def clean_now(self, topic_partition: TopicPartition, *, roll: bool) -> Deferred[None]:
        """Done when all is clean that may be; BrokerError. What is damaged is UNKNOWN_SERVER_ERROR, and its message says so."""

        async def clean() -> None:
            try:
                await self._cleaning.clean_now(topic_partition, roll=roll)
            except BrokerError as error:
                raise BrokerError(_NOT_TRIED_AGAIN.get(error.code, error.code), error.message) from None

        return Deferred.fromCoroutine(clean())

    def expire_now(self, topic_partition: TopicPartition) -> Deferred[None]:
        """Done when all that has expired is gone, after a pass of the cleaner that is under way; KAFKA_STORAGE_ERROR."""
        return self._cleaning.over(topic_partition).addCallback(lambda _: self._expire(topic_partition))

    def _expire(self, topic_partition: TopicPartition) -> Deferred[None]:
        done: Deferred[None] = Deferred()

        def expired(outcome: Expired | None) -> None:
            if outcome is None:
                done.errback(BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "its log cannot be used, see the broker's log"))
            else:
                done.callback(None)

        self._retention.expire(topic_partition, expired)
        return done

    def status(self, topic_partition: TopicPartition) -> Mapping[str, Any]:
        """`CleaningStatus` as JSON has it; KAFKA_STORAGE_ERROR when its disk fails."""
        found = self._cleaning.status(topic_partition)
        if found is None:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {topic_partition} cannot be used, see the broker's log")
        return as_json(found)


def as_json(status: CleaningStatus) -> dict[str, Any]:
    """The fields by their names; why a pass is not due as a word (`why`, see `choosing.Why`) and in a sentence (`why_not_now`)."""
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
        "last": None if status.last is None else _won(status.last),
        "next_run_ms": status.next_run_ms,
        "why": None if why is None else why.why.value,
        "why_not_now": None if why is None else why.sentence,
        "expected_s": None if status.expected_s is None else round(status.expected_s, 3),
        "put_aside": status.put_aside,
    }


def _won(totals: Totals) -> dict[str, Any]:
    won = {"records_won": totals.records_before - totals.records_after, "bytes_won": totals.bytes_before - totals.bytes_after}
    return {**won, **asdict(totals), "seconds": round(totals.seconds, 3)}
