"""The producers that a log remembers are those of its batches (I10, I9): last epochs, last sequences and open transactions.

Checked where a log is read or cut: after a start, a truncation, an election, and at the end.
"""

from __future__ import annotations

from dataclasses import dataclass

from simulation.invariants.batches import batches
from txbroker.log.log import Log
from txbroker.wire.batch import BatchHeader

NOTHING = -1
SEQUENCES = 2**31


@dataclass(slots=True)
class _Producer:
    """As the batches say. `run`: sequence numbers in a row, without a marker between. `open`: the first offset of its open transaction."""

    epoch: int = NOTHING
    sequence: int = NOTHING
    run: int = 0
    last_offset: int = NOTHING
    open: int = NOTHING

    def add(self, header: BatchHeader) -> None:
        if header.producer_epoch != self.epoch:
            self.epoch, self.sequence, self.run = header.producer_epoch, NOTHING, 0
        if header.control:
            self.open, self.run = NOTHING, 0
            return
        self.last_offset = header.last_offset
        if header.base_sequence >= 0:
            self.run = (self.run if header.base_sequence == (self.sequence + 1) % SEQUENCES else 0) + header.last_offset_delta + 1
            self.sequence = (header.base_sequence + header.last_offset_delta) % SEQUENCES
        if header.transactional and self.open == NOTHING:
            self.open = header.base_offset


def problem(log: Log) -> str | None:
    """What the log's producers are and should not be; None if all is well."""
    expected: dict[int, _Producer] = {}
    for header in batches(log):
        if header.producer_id >= 0:
            expected.setdefault(header.producer_id, _Producer()).add(header)
    known = log.producers.states()
    whole = not log.config.compact and not log.log_start_offset
    for producer_id, producer in expected.items():
        state = known.get(producer_id)
        if state is None:
            return f"producer {producer_id} is forgotten, and its last batch ends at {producer.last_offset}"
        if (state.epoch, state.last_sequence) != (producer.epoch, producer.sequence) and (whole or producer.sequence >= 0):
            return (f"producer {producer_id} is known with epoch {state.epoch} and sequence {state.last_sequence}, "
                    f"and its last batch has epoch {producer.epoch} and sequence {producer.sequence}")  # fmt: skip
        if whole and state.run > producer.run:
            return f"producer {producer_id} is known with {state.run} sequence numbers in a row, and its batches have {producer.run}"
        if whole and state.txn_first_offset != producer.open:
            return (f"the open transaction of producer {producer_id} begins at {state.txn_first_offset}, "
                    f"and its batches say {producer.open}")  # fmt: skip
    others = [producer_id for producer_id in known if producer_id not in expected]
    if whole and others:
        return f"producer {others[0]} is known, and no batch in the log is its own"
    return None
