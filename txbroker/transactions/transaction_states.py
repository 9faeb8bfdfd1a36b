"""The states of a transactional id (Kafka's TransactionState), and which state may follow which."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class TransactionState(IntEnum):
    """The values are those of `TransactionLogValue.transaction_status`."""

    EMPTY = 0  # no transaction since the producer's initialization
    ONGOING = 1
    PREPARE_COMMIT = 2  # decided; markers are being written
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4  # every partition has its marker
    COMPLETE_ABORT = 5
    DEAD = 6  # expired: the id is being removed
    PREPARE_EPOCH_FENCE = 7  # never stored: a new epoch has been chosen to fence the producer of an ongoing transaction

    @property
    def is_prepared(self) -> bool:
        """Whether the transaction is decided, and markers are being written."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is open: the producer may be initialized, and the id may expire."""
        return self in (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)

    @property
    def title(self) -> str:
        """The name in Kafka's tools, such as `PrepareCommit`."""
        return self.name.title().replace("_", "")


_S = TransactionState

BEFORE: Final[dict[TransactionState, frozenset[TransactionState]]] = {
    _S.EMPTY: frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.ONGOING: frozenset({_S.ONGOING, _S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    # Without a transaction: a producer that aborts one without partitions (KIP-890).
    _S.PREPARE_ABORT: frozenset({_S.ONGOING, _S.PREPARE_EPOCH_FENCE, _S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
    _S.DEAD: frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.PREPARE_EPOCH_FENCE: frozenset({_S.ONGOING}),
}
"""For each state the states that it may follow; a state that is missing in a value follows nothing."""
