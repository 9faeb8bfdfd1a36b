"""The requests of `txbroker transactions`, in kafka-python's messages: to coordinators of transactions and to leaders of partitions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from txbroker.cli import clients
from txbroker.cli.broker_settings import broker_ids
from txbroker.cli.partition_flags import partitions_of
from txbroker.console.failures import CommandFailed, broker_error
from txbroker.errors import ErrorCode
from txbroker.names import TopicPartition

NO_OFFSET = -1
TIMEOUT_MS = 30_000


class OpenTransaction(NamedTuple):
    """A transaction that the leader of a partition has as open. `last_ms`: when its producer last wrote to the partition."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_ms: int


class Transaction(NamedTuple):
    """A transactional id as its coordinator describes it. `start_ms`: -1 if no transaction was begun."""

    coordinator: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int
    partitions: frozenset[TopicPartition]


def leader_of(admin: Any, partition: TopicPartition) -> int:
    """The leader's id; CommandFailed."""
    leader = partitions_of(admin.describe_topics([partition.topic])).get(partition)
    if leader is None:
        raise broker_error(f"partition {partition}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
    if leader < 0:
        raise broker_error(f"partition {partition}", ErrorCode.LEADER_NOT_AVAILABLE, None)
    return leader


def producers_of(admin: Any, broker: int, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, list[Any]]:
    """The producer states that a broker has of its partitions; CommandFailed."""
    from kafka.protocol.admin import DescribeProducersRequest

    topics: dict[str, list[int]] = defaultdict(list)
    for partition in partitions:
        topics[partition.topic].append(partition.partition)
    wanted = [DescribeProducersRequest.TopicRequest(name=name, partition_indexes=indexes) for name, indexes in topics.items()]
    found = {}
    for topic in clients.send(admin, DescribeProducersRequest(topics=wanted), broker).topics:
        for answer in topic.partitions:
            partition = TopicPartition(topic.name, answer.partition_index)
            if answer.error_code:
                what = f"cannot describe the producers of {partition} on broker {broker}"
                raise broker_error(what, answer.error_code, answer.error_message)
            found[partition] = list(answer.active_producers)
    return found


def open_transactions(admin: Any, broker: int, partitions: Sequence[TopicPartition]) -> list[OpenTransaction]:
    """The transactions that a broker has as open in these partitions."""
    return [
        OpenTransaction(
            partition,
            producer.producer_id,
            producer.producer_epoch,
            producer.coordinator_epoch,
            producer.current_txn_start_offset,
            producer.last_timestamp,
        )
        for partition, producers in producers_of(admin, broker, partitions).items()
        for producer in producers
        if producer.current_txn_start_offset != NO_OFFSET
    ]


def list_transactions(admin: Any, *, duration_ms: int = -1, producer_ids: Sequence[int] = ()) -> list[tuple[int, Any]]:
    """Every transactional id that passes the filters, with the id of its coordinator; CommandFailed."""
    from kafka.protocol.admin import ListTransactionsRequest

    found = []
    for broker in broker_ids(admin):
        request = ListTransactionsRequest(state_filters=[], producer_id_filters=list(producer_ids), duration_filter=duration_ms)
        answer = clients.send(admin, request, broker)
        if answer.error_code:
            raise broker_error(f"cannot list the transactions of broker {broker}", answer.error_code, None)
        found += [(broker, state) for state in answer.transaction_states]
    return found


def describe(admin: Any, transactional_id: str) -> Transaction | None:
    """A transactional id; None if its coordinator does not know it. CommandFailed."""
    from kafka.protocol.admin import DescribeTransactionsRequest

    def ask() -> tuple[int, Any]:
        coordinator = _coordinator(admin, transactional_id)
        (state,) = clients.send(admin, DescribeTransactionsRequest(transactional_ids=[transactional_id]), coordinator).transaction_states
        if state.error_code not in (ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
            _raise(state.error_code)
        return coordinator, state

    coordinator, state = clients.retried(ask, TIMEOUT_MS)
    if state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        return None
    return Transaction(
        coordinator,
        transactional_id,
        state.producer_id,
        state.producer_epoch,
        state.transaction_state,
        state.transaction_timeout_ms,
        state.transaction_start_time_ms,
        frozenset(TopicPartition(topic.topic, index) for topic in state.topics for index in topic.partitions),
    )


def write_abort_marker(admin: Any, transaction: OpenTransaction) -> None:
    """End an open transaction in one partition by an abort marker; CommandFailed."""
    from kafka.protocol.producer import WriteTxnMarkersRequest

    markers = WriteTxnMarkersRequest.WritableTxnMarker
    topic = markers.WritableTxnMarkerTopic(name=transaction.partition.topic, partition_indexes=[transaction.partition.partition])
    marker = markers(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_result=False,
        topics=[topic],
        coordinator_epoch=transaction.coordinator_epoch,
    )
    answer = clients.send(admin, WriteTxnMarkersRequest(markers=[marker]), leader_of(admin, transaction.partition))
    codes = [partition.error_code for found in answer.markers for topic in found.topics for partition in topic.partitions]
    if len(codes) != 1:
        raise CommandFailed(f"the leader of {transaction.partition} did not answer for it; try again")
    if codes[0]:
        what = f"cannot abort the transaction of producer {transaction.producer_id} in {transaction.partition}"
        raise broker_error(what, codes[0], None)


def _coordinator(admin: Any, transactional_id: str) -> int:
    """The broker that coordinates a transactional id; a kafka.errors.KafkaError, which may be retriable."""
    from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest

    request = FindCoordinatorRequest(key=transactional_id, key_type=CoordinatorType.TRANSACTION, coordinator_keys=[transactional_id])
    answer = clients.send(admin, request)
    found = answer.coordinators[0] if answer.coordinators else answer
    if found.error_code:
        _raise(found.error_code)
    node_id: int = found.node_id
    return node_id


def _raise(code: int) -> None:
    from kafka.errors import for_code

    raise for_code(code)
