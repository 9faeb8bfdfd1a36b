"""Reads the records of a partition of `__transaction_state`."""

from __future__ import annotations

from txbroker.coordinators.replay import Replay
from txbroker.names import TRANSACTIONS_TOPIC
from txbroker.transactions.transaction_record import TransactionRecord, read_key, read_value
from txbroker.wire.control import Marker
from txbroker.wire.records import Record


class TransactionReplay(Replay):
    """The last state of each transactional id of one partition."""

    def __init__(self) -> None:
        super().__init__(TRANSACTIONS_TOPIC)
        self.records: dict[str, TransactionRecord] = {}

    def record(self, record: Record, producer_id: int | None) -> bool:
        """The state of a transactional id, or its removal."""
        transactional_id = read_key(record.key)
        if transactional_id is None:
            return False
        if record.value is None:
            self.records.pop(transactional_id, None)
        else:
            self.records[transactional_id] = read_value(record.value)
        return True

    def marker(self, producer_id: int, marker: Marker) -> None:
        """The coordinator does not write its state in transactions."""
