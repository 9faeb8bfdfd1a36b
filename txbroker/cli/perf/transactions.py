"""The transactions of `perf-produce`: one after the other, each of about --transaction-duration-ms (Kafka's ProducerPerformance)."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from txbroker.client.client_errors import ClientError
from txbroker.client.producer_transactions import ProducerTransactions


class Transactions:
    """A transaction begins with the first batch after the one before, and ends when it has lasted `duration_s` and all is acknowledged."""

    def __init__(self, producer: ProducerTransactions, duration_s: float) -> None:
        self.producer = producer
        self.committed = 0
        self._duration_s = duration_s
        self._begun_s: float | None = None

    @property
    def is_open(self) -> bool:
        return self._begun_s is not None

    def begin(self, topic: str, partitions: Iterable[int], now_s: float) -> None:
        """Begin a transaction in these partitions; ClientError."""
        self.producer.begin(topic, partitions)
        self._begun_s = now_s

    def left_s(self, now_s: float) -> float:
        """How long the open transaction has to last; 0 or less when it is to be committed."""
        return self._duration_s if self._begun_s is None else self._begun_s + self._duration_s - now_s

    def commit(self) -> None:
        """Commit the open transaction; ClientError."""
        self.producer.end(commit=True)
        self._begun_s = None
        self.committed += 1

    def close(self) -> None:
        """Abort a transaction that the load has left open after a failure, if the coordinator answers, and close the connection."""
        if self.is_open:
            with suppress(ClientError):
                self.producer.end(commit=False, retry_for_s=0)
        self.producer.close()
