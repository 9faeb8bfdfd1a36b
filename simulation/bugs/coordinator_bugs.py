"""Mistakes of transactions and groups: their coordinators, and what read_committed sees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from simulation.bugs.patching import Patch
from txbroker.errors import ErrorCode
from txbroker.groups.group import Group
from txbroker.groups.group_offsets import GroupOffsets, Write
from txbroker.log.log import Log
from txbroker.names import TopicPartition
from txbroker.transactions.coordinator import TransactionCoordinator
from txbroker.transactions.transaction import Transaction
from txbroker.transactions.verification import TransactionVerifier


def open_transactions_are_readable() -> list[Patch]:
    """The last stable offset is the high watermark: read_committed returns records of open transactions."""
    return [Patch(Log, "last_stable_offset", lambda self, high_watermark: high_watermark)]


def aborted_transactions_not_listed() -> list[Patch]:
    """A fetch with read_committed does not name the aborted transactions: their records are read."""
    return [Patch(Log, "aborted_transactions", lambda self, start, end: [])]


def prepared_transactions_left_by_a_new_coordinator() -> list[Patch]:
    """A new coordinator does not go on with the transactions that its predecessor has decided: markers are missing for ever."""
    return [Patch(TransactionCoordinator, "activated", lambda self, shard: None)]


def transactions_do_not_time_out() -> list[Patch]:
    """A transaction whose producer is gone is not aborted after its timeout: nothing after it becomes stable."""
    return [Patch(TransactionCoordinator, "abort_timed_out", lambda self: None)]


def transaction_epochs_not_compared() -> list[Patch]:
    """The coordinator does not compare epochs: a producer that was replaced ends the transaction of its successor."""
    return [Patch(Transaction, "_check_producer", lambda self, producer: None)]


def partitions_not_verified() -> list[Patch]:
    """A leader does not ask the coordinator before the first batch of a transaction (KIP-890): nothing ends it there."""
    return [Patch(TransactionVerifier, "is_needed", lambda self, partition, claim: False)]


def aborted_offsets_committed() -> list[Patch]:
    """The offsets of an aborted transaction are committed: its input is skipped."""
    end_transaction = GroupOffsets.end_transaction

    def broken(self: GroupOffsets, producer_id: int, committed: bool) -> None:
        end_transaction(self, producer_id, True)

    return [Patch(GroupOffsets, "end_transaction", broken)]


def offsets_visible_before_they_are_replicated() -> list[Patch]:
    """A committed offset is fetched as soon as the coordinator has appended it: a failover takes it back."""
    begin = GroupOffsets.begin

    def broken(self: GroupOffsets, offsets: Mapping[TopicPartition, Any], producer_id: int | None = None) -> Write:
        write = begin(self, offsets, producer_id)
        if producer_id is None:
            for partition, offset in offsets.items():
                self._put(partition, write.order, offset)
        return write

    return [Patch(GroupOffsets, "begin", broken)]


def commits_of_older_generations() -> list[Patch]:
    """A commit is accepted from a member of an older generation: it undoes what the next owner of the partition has committed."""

    def broken(self: Group, *_: Any) -> ErrorCode:
        return ErrorCode.NONE

    return [Patch(Group, "check_commit", broken)]


BUGS: dict[str, Callable[[], list[Patch]]] = {
    bug.__name__: bug
    for bug in (
        open_transactions_are_readable,
        aborted_transactions_not_listed,
        prepared_transactions_left_by_a_new_coordinator,
        transactions_do_not_time_out,
        transaction_epochs_not_compared,
        partitions_not_verified,
        aborted_offsets_committed,
        offsets_visible_before_they_are_replicated,
        commits_of_older_generations,
    )
}
