"""Metrics of the transaction coordinator, of markers and verification, and of transactions that hang."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from txbroker.cluster.partition import Partition
from txbroker.coordinators.load_times import LoadTimes
from txbroker.metrics.families import Piece, gauge, gauges, labels, quantiles, untyped
from txbroker.metrics.sources import MetricSources
from txbroker.transactions.transaction_states import TransactionState
from txbroker.transactions.verification import TIMES_KEPT

LATE_BUFFER_MS = 300_000  # above transaction.max.timeout.ms, as in Kafka (KIP-664)


def states(sources: MetricSources) -> Iterator[Piece]:
    """kafka.coordinator.transaction, kafka.server:type=AddPartitionsToTxnManager, late transactions, and transactional ids by state."""
    now_ms = sources.now_ms()
    records = [hosted.transaction.record for hosted in sources.transactions]
    counts = Counter(record.state for record in records)
    by_state = [(labels(state=state.title), counts[state]) for state in TransactionState if state is not TransactionState.DEAD]
    yield from gauges("txbroker_transactional_ids", "Transactional ids that this broker coordinates, by their state", by_state)
    open_since = [record.start_ms for record in records if record.state is TransactionState.ONGOING or record.state.is_prepared]
    documentation = "How long ago the oldest transaction began that this broker coordinates and that has not ended, in milliseconds"
    yield from gauge("txbroker_transactions_oldest_open_ms", documentation, max(0, now_ms - min(open_since, default=now_ms)))
    yield from gauge(
        "kafka_server_replicamanager_partitionswithlatetransactionscount",
        "Partitions led by this broker with a transaction that is open for 5 minutes longer than transaction.max.timeout.ms: it may hang",
        sum(_is_late(partition, now_ms, sources.transaction_max_ms) for partition in sources.replicas if partition.is_leader),
    )
    prefix = "kafka_coordinator_transaction_transactionmarkerchannelmanager"
    documentation = "Transactions with markers for partitions without a leader, or that are sent again"
    yield from gauge(f"{prefix}_unknowndestinationqueuesize", documentation, sources.marker_queues.unsent_count)
    documentation = "Transactions whose end could not be written to __transaction_state, and is written again"
    yield from gauge(f"{prefix}_logappendretryqueuesize", documentation, sources.transactions.retry_count)
    prefix = "kafka_server_addpartitionstotxnmanager"
    asked = sources.verifications
    documentation = "Partitions whose transaction a coordinator did not confirm"
    yield from untyped(f"{prefix}_verificationfailurerate_count", documentation, [("", asked.failed)])
    documentation = f"Duration of verifications in milliseconds, quantiles of the last {TIMES_KEPT}"
    yield from gauges(f"{prefix}_verificationtimems", documentation, quantiles(tuple(asked.times_s), 1000))
    yield from untyped(f"{prefix}_verificationtimems_count", "Number of verifications", [("", asked.requests)])


def load_times(sources: MetricSources) -> Iterator[Piece]:
    """kafka.server:type=transaction-coordinator-metrics and type=group-coordinator-metrics; without samples if nothing was loaded."""
    yield from _load_times("transaction", "__transaction_state", sources.transactions.load_times)
    yield from _load_times("group", "__consumer_offsets", sources.coordinator.load_times)


def _load_times(coordinator: str, topic: str, times: LoadTimes) -> Iterator[Piece]:
    recent = [took_s * 1000 for took_s in times.recent_s()]
    prefix = f"kafka_server_{coordinator}_coordinator_metrics_partition_load_time"
    documentation = f"time in milliseconds to load a partition of {topic}, of those loaded in the last 30 seconds"
    yield from gauges(f"{prefix}_max", f"Longest {documentation}", [("", max(recent))] if recent else [])
    yield from gauges(f"{prefix}_avg", f"Average {documentation}", [("", sum(recent) / len(recent))] if recent else [])


def _is_late(partition: Partition, now_ms: int, transaction_max_ms: int) -> bool:
    oldest_ms = partition.log.producers.oldest_open_ms
    return oldest_ms is not None and now_ms - oldest_ms > transaction_max_ms + LATE_BUFFER_MS
