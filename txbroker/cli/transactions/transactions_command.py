"""`txbroker transactions`: transactional ids and their transactions; hanging ones are found and ended (Kafka's kafka-transactions)."""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Iterable, Sequence
from typing import Any

from txbroker.cli import clients
from txbroker.cli.arguments import INT16_MAX, INT32_MAX, add_client, number
from txbroker.cli.broker_settings import broker_ids
from txbroker.cli.partition_flags import partitions_of
from txbroker.cli.results import Column, Results, Row, results
from txbroker.cli.transactions.transaction_requests import (
    NO_OFFSET,
    OpenTransaction,
    Transaction,
    describe,
    leader_of,
    list_transactions,
    open_transactions,
    producers_of,
    write_abort_marker,
)
from txbroker.console.failures import DONE, BadUsage, CommandFailed, broker_error
from txbroker.errors import ErrorCode
from txbroker.names import TopicPartition

DESCRIPTION = """\
List and describe transactions, and find and abort those that hang. The flags of the connection come before the action.

  txbroker transactions --bootstrap-server 127.0.0.1:9092 list
  txbroker transactions --bootstrap-server 127.0.0.1:9092 describe --transactional-id orders-1
  txbroker transactions --bootstrap-server 127.0.0.1:9092 describe-producers --topic orders --partition 0
  txbroker transactions --bootstrap-server 127.0.0.1:9092 find-hanging --broker-id 1
  txbroker transactions --bootstrap-server 127.0.0.1:9092 abort --topic orders --partition 0 --start-offset 42

A transaction hangs in a partition if its coordinator does not know it, or has ended it: nothing will end it there, and consumers with
isolation.level=read_committed get no record behind its start.
"""

MINUTE_MS = 60_000
HANGING_AFTER_MINUTES = 15  # Kafka's default, and that of transaction.max.timeout.ms
PARTITIONS_PER_REQUEST = 500
NONE = "None"

LISTED = (
    Column("transactional_id", "TransactionalId"), Column("coordinator", "Coordinator"), Column("producer_id", "ProducerId"),
    Column("state", "TransactionState"),
)  # fmt: skip
DESCRIBED = (
    Column("coordinator", "CoordinatorId"), Column("transactional_id", "TransactionalId"), Column("producer_id", "ProducerId"),
    Column("producer_epoch", "ProducerEpoch"), Column("state", "TransactionState"), Column("timeout_ms", "TransactionTimeoutMs"),
    Column("start_ms", "CurrentTransactionStartTimeMs"), Column("duration_ms", "TransactionDurationMs"),
    Column("partitions", "TopicPartitions"),
)  # fmt: skip
PRODUCERS = (
    Column("producer_id", "ProducerId"), Column("producer_epoch", "ProducerEpoch"), Column("coordinator_epoch", "LatestCoordinatorEpoch"),
    Column("last_sequence", "LastSequence"), Column("last_timestamp", "LastTimestamp"),
    Column("start_offset", "CurrentTransactionStartOffset"),
)  # fmt: skip
HANGING = (
    Column("topic", "Topic"), Column("partition", "Partition"), Column("producer_id", "ProducerId"),
    Column("producer_epoch", "ProducerEpoch"), Column("coordinator_epoch", "CoordinatorEpoch"), Column("start_offset", "StartOffset"),
    Column("last_timestamp", "LastTimestamp"), Column("duration_min", "Duration(min)"),
)  # fmt: skip


def add_parser(subparsers: Any) -> None:
    """Add the subcommand, with its actions."""
    parser = subparsers.add_parser("transactions", help="transactions, and what ends those that hang", description=DESCRIPTION)
    add_client(parser)
    actions = parser.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)

    listing = actions.add_parser("list", help="list transactional ids")
    duration_help = "only transactions that are open for longer than this"
    listing.add_argument("--duration-filter", type=number(0), default=-1, metavar="MS", help=duration_help)
    pattern_help = "only ids that match this regular expression as a whole"
    listing.add_argument("--transactional-id-pattern", metavar="REGEX", help=pattern_help)
    listing.set_defaults(command=run_list)

    describing = actions.add_parser("describe", help="describe a transactional id")
    describing.add_argument("--transactional-id", required=True, metavar="ID", help="the id")
    describing.set_defaults(command=run_describe)

    producers = actions.add_parser("describe-producers", help="describe the producers of a partition")
    _add_partition(producers, required=True)
    producers.add_argument("--broker-id", type=number(0, INT32_MAX), metavar="ID", help="ask this replica (default: the leader)")
    producers.set_defaults(command=run_describe_producers)

    hanging = actions.add_parser("find-hanging", help="find transactions that hang")
    hanging.add_argument("--broker-id", type=number(0, INT32_MAX), metavar="ID", help="in the partitions that this broker leads")
    timeout_help = f"only those without a record for so long (default: {HANGING_AFTER_MINUTES})"
    default = HANGING_AFTER_MINUTES
    hanging.add_argument("--max-transaction-timeout", type=number(0), default=default, metavar="MINUTES", help=timeout_help)
    _add_partition(hanging, required=False)
    hanging.set_defaults(command=run_find_hanging)

    aborting = actions.add_parser("abort", help="abort a transaction in one partition")
    _add_partition(aborting, required=True)
    aborting.add_argument("--start-offset", type=number(0), metavar="OFFSET", help="the transaction that begins here, see find-hanging")
    aborting.add_argument("--producer-id", type=number(0), metavar="ID", help="instead of --start-offset")
    aborting.add_argument("--producer-epoch", type=number(0, INT16_MAX), metavar="EPOCH", help="with --producer-id")
    aborting.add_argument("--coordinator-epoch", type=number(-1, INT32_MAX), metavar="EPOCH", help="with --producer-id")
    aborting.set_defaults(command=run_abort)


def _add_partition(parser: argparse.ArgumentParser, *, required: bool) -> None:
    parser.add_argument("--topic", required=required, metavar="NAME", help="the topic")
    parser.add_argument("--partition", required=required, type=number(0, INT32_MAX), metavar="N", help="the partition")


def run_list(arguments: argparse.Namespace) -> int:
    """List transactional ids."""
    try:
        pattern = re.compile(arguments.transactional_id_pattern or ".*", re.DOTALL)
    except re.error as error:
        problem = f"--transactional-id-pattern {arguments.transactional_id_pattern!r} is not a regular expression: {error}"
        raise BadUsage(problem) from None
    with clients.administering(arguments) as admin:
        found = list_transactions(admin, duration_ms=arguments.duration_filter)
    rows = [
        {
            "transactional_id": state.transactional_id,
            "coordinator": broker,
            "producer_id": state.producer_id,
            "state": state.transaction_state,
        }
        for broker, state in found
        if pattern.fullmatch(state.transactional_id)
    ]
    results(arguments).rows(LISTED, sorted(rows, key=lambda row: row["transactional_id"]))
    return DONE


def run_describe(arguments: argparse.Namespace) -> int:
    """Describe a transactional id."""
    with clients.administering(arguments) as admin:
        found = describe(admin, arguments.transactional_id)
    if found is None:
        problem = f"there is no transactional id {arguments.transactional_id}; see `txbroker transactions list`"
        raise CommandFailed(problem, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    shown = results(arguments)
    shown.rows(DESCRIBED, [_described(found, shown.as_json)])
    return DONE


def _described(found: Transaction, as_json: bool) -> Row:
    is_begun = found.start_ms >= 0
    nothing = None if as_json else NONE
    partitions = [str(partition) for partition in sorted(found.partitions)]
    return {
        "coordinator": found.coordinator,
        "transactional_id": found.transactional_id,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "state": found.state,
        "timeout_ms": found.timeout_ms,
        "start_ms": found.start_ms if is_begun else nothing,
        "duration_ms": max(0, _now_ms() - found.start_ms) if is_begun else nothing,
        "partitions": partitions if as_json else ",".join(partitions),
    }


def run_describe_producers(arguments: argparse.Namespace) -> int:
    """Describe the producers of a partition."""
    partition = TopicPartition(arguments.topic, arguments.partition)
    shown = results(arguments)
    nothing = None if shown.as_json else NONE
    with clients.administering(arguments) as admin:
        leader = leader_of(admin, partition)
        broker = leader if arguments.broker_id is None else _known_broker(admin, arguments.broker_id)
        producers = producers_of(admin, broker, [partition])[partition]
    rows = [
        {
            "producer_id": state.producer_id,
            "producer_epoch": state.producer_epoch,
            "coordinator_epoch": nothing if state.coordinator_epoch < 0 else state.coordinator_epoch,
            "last_sequence": state.last_sequence,
            "last_timestamp": state.last_timestamp,
            "start_offset": nothing if state.current_txn_start_offset == NO_OFFSET else state.current_txn_start_offset,
        }
        for state in producers
    ]
    shown.rows(PRODUCERS, rows)
    return DONE


def run_find_hanging(arguments: argparse.Namespace) -> int:
    """Find hanging transactions."""
    if arguments.broker_id is None and arguments.topic is None:
        raise BadUsage("specify --topic or --broker-id: where to look")
    if arguments.partition is not None and arguments.topic is None:
        raise BadUsage("--partition needs --topic")
    shown = results(arguments)
    with clients.administering(arguments) as admin:
        led = _wanted(admin, arguments)
        since_ms = _now_ms() - arguments.max_transaction_timeout * MINUTE_MS
        found = [transaction for leader, partitions in led for transaction in open_transactions(admin, leader, partitions)]
        hanging = hanging_transactions(admin, [transaction for transaction in found if transaction.last_ms <= since_ms])
    _show_hanging(shown, hanging)
    return DONE


def _wanted(admin: Any, arguments: argparse.Namespace) -> Iterable[tuple[int, list[TopicPartition]]]:
    """The partitions in which to look, by leader, in portions."""
    topics = admin.describe_topics(None if arguments.topic is None else [arguments.topic])
    for topic in topics:
        if arguments.topic is not None and topic["error_code"]:
            raise broker_error(f"topic {arguments.topic}", topic["error_code"], None)
    leaders = partitions_of(topics)
    if arguments.broker_id is not None:
        _known_broker(admin, arguments.broker_id)
    if arguments.partition is not None and TopicPartition(arguments.topic, arguments.partition) not in leaders:
        what = f"partition {TopicPartition(arguments.topic, arguments.partition)}"
        raise broker_error(what, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
    for leader in sorted({leader for leader in leaders.values() if leader >= 0}):
        if arguments.broker_id not in (None, leader):
            continue
        partitions = [p for p, its_leader in leaders.items() if its_leader == leader and arguments.partition in (None, p.partition)]
        for first in range(0, len(partitions), PARTITIONS_PER_REQUEST):
            yield leader, partitions[first : first + PARTITIONS_PER_REQUEST]


def hanging_transactions(admin: Any, candidates: Sequence[OpenTransaction]) -> list[OpenTransaction]:
    """Those whose producer has no transactional id, or whose transaction does not have the partition: nothing will end them."""
    if not candidates:
        return []
    listed = list_transactions(admin, producer_ids=sorted({candidate.producer_id for candidate in candidates}))
    ids = {state.producer_id: state.transactional_id for _, state in listed}
    described = {producer_id: describe(admin, transactional_id) for producer_id, transactional_id in ids.items()}

    def is_known(candidate: OpenTransaction) -> bool:
        known = described.get(candidate.producer_id)
        return known is not None and known.producer_id == candidate.producer_id and candidate.partition in known.partitions

    return [candidate for candidate in candidates if not is_known(candidate)]


def _show_hanging(shown: Results, hanging: Sequence[OpenTransaction]) -> None:
    rows = [
        {
            "topic": one.partition.topic,
            "partition": one.partition.partition,
            "producer_id": one.producer_id,
            "producer_epoch": one.producer_epoch,
            "coordinator_epoch": one.coordinator_epoch,
            "start_offset": one.start_offset,
            "last_timestamp": one.last_ms,
            "duration_min": max(0, _now_ms() - one.last_ms) // MINUTE_MS,
        }
        for one in hanging
    ]
    shown.rows(HANGING, rows)


def run_abort(arguments: argparse.Namespace) -> int:
    """Write an abort marker for a producer into one partition."""
    by_producer = (arguments.producer_id, arguments.producer_epoch, arguments.coordinator_epoch)
    if (arguments.start_offset is None) == (arguments.producer_id is None):
        raise BadUsage("specify --start-offset, or --producer-id with --producer-epoch and --coordinator-epoch")
    if arguments.start_offset is None and None in by_producer:
        raise BadUsage("--producer-id needs --producer-epoch and --coordinator-epoch; `describe-producers` shows them")
    partition = TopicPartition(arguments.topic, arguments.partition)
    with clients.administering(arguments) as admin:
        if arguments.start_offset is None:
            transaction = OpenTransaction(partition, *by_producer, NO_OFFSET, -1)
            found = open_transactions(admin, leader_of(admin, partition), [partition])
            if not any(one.producer_id == transaction.producer_id for one in found):
                problem = f"producer {transaction.producer_id} has no open transaction in {partition}"
                raise CommandFailed(f"{problem}; see `txbroker transactions describe-producers`")
        else:
            transaction = _beginning_at(admin, partition, arguments.start_offset)
        write_abort_marker(admin, transaction)
    sentence = f"Aborted the transaction of producer {transaction.producer_id} in {partition}."
    results(arguments).done(sentence, topic=partition.topic, partition=partition.partition, producer_id=transaction.producer_id)
    return DONE


def _beginning_at(admin: Any, partition: TopicPartition, offset: int) -> OpenTransaction:
    found = open_transactions(admin, leader_of(admin, partition), [partition])
    for transaction in found:
        if transaction.start_offset == offset:
            return transaction
    others = ", ".join(str(start) for start in sorted(transaction.start_offset for transaction in found))
    there = f"the open ones begin at {others}" if found else "none is open there"
    raise CommandFailed(f"no open transaction of {partition} begins at offset {offset}: {there}; see `txbroker transactions find-hanging`")


def _known_broker(admin: Any, broker: int) -> int:
    known = broker_ids(admin)
    if broker not in known:
        raise CommandFailed(f"there is no broker {broker}; the brokers are {','.join(map(str, known))}")
    return broker


def _now_ms() -> int:
    return int(time.time() * 1000)
