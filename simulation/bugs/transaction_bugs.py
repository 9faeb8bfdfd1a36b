"""Mistakes with transactions: the last stable offset, aborted records, markers, epochs, and offsets that are committed with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from simulation.bugs.patching import Patch
from txbroker.groups.group_offsets import GroupOffsets
from txbroker.log.producers import ProducerStates
from txbroker.transactions.transaction import Transaction, Transition
from txbroker.transactions.transaction_states import TransactionState


def stable_before_the_marker_is_replicated() -> list[Patch]:
    """The last stable offset passes a transaction whose marker is above the high watermark (KAFKA-5121)."""
    return [Patch(ProducerStates, "first_unstable_offset", lambda self, high_watermark: next(iter(self._open), None))]


def one_marker_is_enough() -> list[Patch]:
    """A transaction is complete when the first of its partitions has the marker: the others never get it."""

    def broken(self: Transaction, partitions: Iterable[Any]) -> None:
        self.unmarked.clear()

    return [Patch(Transaction, "marked", broken)]


def epoch_kept_by_a_timeout() -> list[Patch]:
    """A transaction that times out is aborted without a new epoch: its producer goes on with half of it (KAFKA-6119)."""

    def broken(self: Transaction, now_ms: int) -> Transition:
        return Transition(replace(self.record, state=TransactionState.PREPARE_ABORT, update_ms=now_ms))

    return [Patch(Transaction, "_fence", broken)]


def pending_offsets_applied_at_once() -> list[Patch]:
    """Offsets that are committed with a transaction count before it has ended."""

    def broken(self: GroupOffsets, producer_id: int, partition: Any, order: int, offset: Any) -> None:
        self._put(partition, order, offset)

    return [Patch(GroupOffsets, "_put_pending", broken)]


BUGS: dict[str, Callable[[], list[Patch]]] = {
    bug.__name__: bug
    for bug in (
        stable_before_the_marker_is_replicated,
        one_marker_is_enough,
        epoch_kept_by_a_timeout,
        pending_offsets_applied_at_once,
    )
}
