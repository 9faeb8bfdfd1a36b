"""Why consumers with isolation.level=read_committed do not get the last records of a topic: open transactions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from txbroker.cli.doctor.cluster_checks import Cluster
from txbroker.cli.doctor.findings import WARNING, Finding, Findings, named
from txbroker.client.blocking_connection import BlockingConnection
from txbroker.client.client_errors import ClientError
from txbroker.client.offset_requests import LATEST, list_offsets
from txbroker.console.texts import duration
from txbroker.errors import ErrorCode
from txbroker.names import amount
from txbroker.wire.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse, TopicRequest
from txbroker.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from txbroker.wire.messages.list_offsets import ListOffsetsRequest
from txbroker.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from txbroker.wire.messages.metadata import MetadataResponsePartition

READ_COMMITTED = 1
ISOLATION_VERSION = 2  # the first version of ListOffsets with an isolation level
NO_OFFSET = -1
ONGOING = "Ongoing"
LATE_MS = 60_000  # Kafka's default of transaction.timeout.ms


class Held(NamedTuple):
    """A partition whose last stable offset is below its high watermark. `producer_id`: of the transaction that begins there, if known."""

    partition: int
    last_stable_offset: int
    high_watermark: int
    producer_id: int | None


class Known(NamedTuple):
    """A transaction as its coordinator, a broker, has it. `start_ms`: -1 if none was begun; `partitions`: of the checked topic."""

    coordinator: int
    transactional_id: str
    state: str
    start_ms: int
    timeout_ms: int
    partitions: frozenset[int]


def check(findings: Findings, cluster: Cluster, topic: str, partitions: Iterable[MetadataResponsePartition], now_ms: int) -> None:
    """Explain each transaction that holds back consumers of the topic."""
    held = _all_held(cluster, topic, partitions)
    for finding in explain(topic, held, _known(cluster, topic, _producer_ids(held)), now_ms):
        findings.add(finding)


def late(cluster: Cluster, topic: str, partitions: Iterable[MetadataResponsePartition], now_ms: int) -> list[Finding]:
    """As `check`, without transactions that are open for less than LATE_MS: the findings. ClientError."""
    held = _all_held(cluster, topic, partitions)
    known = _known(cluster, topic, _producer_ids(held))
    recent = {id_ for id_, transaction in known.items() if transaction.start_ms >= 0 and now_ms - transaction.start_ms < LATE_MS}
    return explain(topic, [one for one in held if one.producer_id is not None and one.producer_id not in recent], known, now_ms)


def _all_held(cluster: Cluster, topic: str, partitions: Iterable[MetadataResponsePartition]) -> list[Held]:
    by_leader: dict[int, list[int]] = {}
    for part in partitions:
        by_leader.setdefault(part.leader_id, []).append(part.partition_index)
    held: list[Held] = []
    for leader, indexes in by_leader.items():
        connection = cluster.connections.get(leader)
        if connection is not None and (connection.version_of(ListOffsetsRequest) or 0) >= ISOLATION_VERSION:
            with suppress(ClientError):
                held += _held(connection, topic, indexes)
    return held


def _producer_ids(held: Iterable[Held]) -> list[int]:
    return sorted({one.producer_id for one in held if one.producer_id is not None})


def explain(topic: str, held: Iterable[Held], known: Mapping[int, Known], now_ms: int) -> list[Finding]:
    """A finding for each transaction, which names its partitions. `known`: by producer id, from the coordinators."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for one in held:
        transaction = known.get(one.producer_id) if one.producer_id is not None else None
        if one.producer_id is None:
            why = "the marker of an ended transaction is not on all in-sync replicas yet"
            reason = why, "wait, or see why replicas are out of sync; if the transaction is open, `txbroker transactions find-hanging`"
        elif transaction is None or one.partition not in transaction.partitions:
            reason = (
                f"the transaction of producer {one.producer_id} hangs: no coordinator knows it, and nothing will end it",
                f"`txbroker transactions abort --topic {topic} --partition {one.partition} --start-offset {one.last_stable_offset}`",
            )
        elif transaction.state == ONGOING:
            reason = _ongoing(transaction, now_ms)
        else:
            reason = (
                f"the transaction of {transaction.transactional_id} is in state {transaction.state}: its markers are being written",
                f"if this lasts, see the log of its coordinator, broker {transaction.coordinator}, and that of the partition's leader",
            )
        records = amount(one.high_watermark - one.last_stable_offset, "offset")
        where = f"partition {one.partition} from offset {one.last_stable_offset} on ({records})"
        reasons.setdefault(reason, []).append(where)
    return [
        Finding(WARNING, f"read_committed on {topic}", f"{why}; consumers do not get {named(places)}", advice)
        for (why, advice), places in reasons.items()
    ]


def _ongoing(transaction: Known, now_ms: int) -> tuple[str, str]:
    open_ms = max(0, now_ms - transaction.start_ms)
    left_ms = transaction.timeout_ms - open_ms
    when = f"in {duration(left_ms)}" if left_ms > 0 else "soon"
    why = f"the transaction of {transaction.transactional_id} is open since {duration(open_ms)}"
    return why, f"its producer has to end it; otherwise its coordinator, broker {transaction.coordinator}, aborts it {when}"


def _held(connection: BlockingConnection, topic: str, indexes: list[int]) -> list[Held]:
    # The end first, as records are produced meanwhile: without transactions a stable offset that is read later is not below it.
    ends = list_offsets(connection.call, topic, indexes, LATEST)
    stable = list_offsets(connection.call, topic, indexes, LATEST, READ_COMMITTED)
    below = [i for i in indexes if not stable[i].error_code and not ends[i].error_code and stable[i].offset < ends[i].offset]
    if not below:
        return []
    producers = _producers(connection, topic, below)
    again = list_offsets(connection.call, topic, below, LATEST, READ_COMMITTED)  # transactions that have ended meanwhile hold nothing back
    still = [i for i in below if again[i].offset == stable[i].offset]
    return [Held(i, stable[i].offset, ends[i].offset, producers.get((i, stable[i].offset))) for i in still]


def _producers(connection: BlockingConnection, topic: str, indexes: list[int]) -> dict[tuple[int, int], int]:
    """The producers of open transactions, by partition and first offset."""
    if connection.version_of(DescribeProducersRequest) is None:
        return {}
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=indexes)])
    answer: DescribeProducersResponse = connection.call(request)
    return {
        (part.partition_index, state.current_txn_start_offset): state.producer_id
        for each in answer.topics
        for part in each.partitions
        for state in part.active_producers
        if state.current_txn_start_offset != NO_OFFSET
    }


def _known(cluster: Cluster, topic: str, producers: list[int]) -> dict[int, Known]:
    """The transactions of these producers, from all brokers that answer."""
    found: dict[int, Known] = {}
    for broker, connection in cluster.connections.items():
        if not producers or connection.version_of(ListTransactionsRequest) is None:
            continue
        with suppress(ClientError):
            listed: ListTransactionsResponse = connection.call(
                ListTransactionsRequest(state_filters=[], producer_id_filters=producers), version_max=0
            )
            ids = [state.transactional_id for state in listed.transaction_states]
            if not ids:
                continue
            described: DescribeTransactionsResponse = connection.call(DescribeTransactionsRequest(transactional_ids=ids))
            for state in described.transaction_states:
                if state.error_code == ErrorCode.NONE:
                    indexes = frozenset(index for each in state.topics if each.topic == topic for index in each.partitions)
                    found[state.producer_id] = Known(
                        broker,
                        state.transactional_id,
                        state.transaction_state,
                        state.transaction_start_time_ms,
                        state.transaction_timeout_ms,
                        indexes,
                    )
    return found
