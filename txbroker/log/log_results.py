"""Arguments and results of the log that other packages use."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, Protocol

from txbroker.errors import BrokerError, ErrorCode
from txbroker.lazy_dataclass import lazy_dataclass
from txbroker.log.region import Region
from txbroker.names import amount


class Origin(Enum):
    """Who appends, which determines what is validated (Kafka's AppendOrigin)."""

    CLIENT = 1  # everything is checked
    COORDINATOR = 2  # a coordinator of this broker: control batches are allowed, sequences are not checked
    MIRROR = 3  # `txbroker mirror --same-offsets`: the batch has its offsets


class Appended(NamedTuple):
    """The result of an append. Offsets of the first and last record; for a duplicate those of the original append.

    A duplicate whose offsets are not known any more has -1 as the first, and as the last one at least its own.
    `append_time_ms` is -1 unless the topic stamps LogAppendTime.
    """

    first_offset: int
    last_offset: int
    append_time_ms: int
    log_start_offset: int
    duplicate: bool = False


@lazy_dataclass(slots=True)
class Read:
    """The result of a read: whole batches; the last one may be incomplete, which clients ignore.

    `end_offset` is larger than every offset of the region (exclusive, an upper bound). `first_batch_bytes` is the size of the batch
    that holds the requested offset: 0 when there is none below the reader's end, and more than requested when the region is
    empty because that batch did not fit.
    """

    region: Region
    end_offset: int
    first_batch_bytes: int


class TimestampOffset(NamedTuple):
    """A record's timestamp and offset, and the leader epoch of its batch (-1 for old message formats)."""

    timestamp: int
    offset: int
    leader_epoch: int


class EpochEnd(NamedTuple):
    """The end (exclusive) of the largest leader epoch that is not above the requested one; (-1, -1) when none is known."""

    epoch: int
    end_offset: int


class AbortedTransaction(NamedTuple):
    """A transaction that was aborted: offsets of its first record and of its abort marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class RecordError(NamedTuple):
    """Why one record was refused; `batch_index` is its index in the batch (KIP-467)."""

    batch_index: int
    message: str


class RejectedRecords(BrokerError):
    """A batch was refused because of some of its records (INVALID_RECORD, INVALID_TIMESTAMP)."""

    def __init__(self, code: ErrorCode, record_errors: list[RecordError]) -> None:
        first = record_errors[0]
        others = len(record_errors) - 1
        more = f" (and {amount(others, 'other record')})" if others else ""
        super().__init__(code, f"the record at index {first.batch_index} was refused{more}: {first.message}")
        self.record_errors = record_errors


class Later(Protocol):
    """Runs `work` in a worker once `delay_ms` have passed, then `done` in the logs' thread (the reactor's).

    `done` is not called when `work` raised an error; the log directory handles the error.
    """

    def __call__(self, delay_ms: int, work: Callable[[], None], done: Callable[[], None] | None = None) -> None: ...


def at_once(delay_ms: int, work: Callable[[], None], done: Callable[[], None] | None = None) -> None:
    """A `Later` that does not wait, for tools and tests."""
    work()
    if done is not None:
        done()


def no_jitter(below: int) -> int:
    """A `random_below` for tools and tests."""
    return 0
