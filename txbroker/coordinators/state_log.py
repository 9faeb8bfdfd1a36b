"""The interface through which a coordinator reads and writes the log of its internal topic."""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeAlias

from twisted.internet.defer import Deferred

Pair: TypeAlias = tuple[bytes, bytes | None]  # a record's key and value; None is a tombstone


class TransactionalProducer(NamedTuple):
    """The producer of a transaction, whose marker decides whether its records count."""

    id: int
    epoch: int


class StateLog(Protocol):
    """The log of `__consumer_offsets` or of `__transaction_state`."""

    def append(
        self, partition_index: int, records: list[Pair], now_ms: int, producer: TransactionalProducer | None = None
    ) -> Deferred[None]:
        """Append one batch of records with the timestamp `now_ms`, in the order of the calls; with `producer`, in its transaction.

        Fires when all in-sync replicas have it. Fails with BrokerError; REQUEST_TIMED_OUT after a time that the log knows. After a failure
        the batch may be in the log.
        """

    def committed(self, partition_index: int, end: int) -> Deferred[None]:
        """Fires when all in-sync replicas have the records below the offset `end`, which may be at once. BrokerError; may be cancelled."""

    def read(self, partition_index: int, offset: int) -> Deferred[bytes | memoryview]:
        """Whole record batches from the one that contains `offset`, or from the log start if that is later. Empty at the log end."""
