"""The settings of the transaction coordinator, by the names and defaults of Kafka."""

from __future__ import annotations

from txbroker.lazy_dataclass import lazy_dataclass


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig:
    """Settings of transactions, with their keys. Times in milliseconds."""

    timeout_max_ms: int = 900_000  # transaction.max.timeout.ms
    id_expiration_ms: int = 604_800_000  # transactional.id.expiration.ms
    abort_interval_ms: int = 10_000  # transaction.abort.timed.out.transaction.cleanup.interval.ms
    expiration_interval_ms: int = 3_600_000  # transaction.remove.expired.transaction.cleanup.interval.ms
