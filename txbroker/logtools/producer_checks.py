"""Transaction indexes and producer snapshots against what the log's batches say: producers are followed through the whole log."""

from __future__ import annotations

from txbroker.errors import CorruptRecords
from txbroker.log.log_results import AbortedTransaction
from txbroker.log.producer_replay import replay_batch
from txbroker.log.producer_snapshots import parse_snapshot
from txbroker.log.producers import NO_PRODUCER_ID, ProducerState, ProducerStates
from txbroker.log.recovery import first_offset_of
from txbroker.log.scan import Entry
from txbroker.log.txn_index import parse_entries
from txbroker.names import TopicPartition
from txbroker.wire.records import INT64_MAX

# Beyond this the half of them that was silent for longest is forgotten, and not compared any more.
PRODUCERS_MAX = 200_000
# In one segment; the transaction index of one with more is not compared.
ABORTED_MAX = 400_000
NEVER_MS = 2**62


class ProducerTracker:
    """What a broker would know of producers at each point of the log.

    `aborted`: transactions that ended in the current segment; `begun`: where else such a one may begin, the batches of its producer.
    """

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.states = ProducerStates(topic_partition, NEVER_MS)
        self.aborted: list[AbortedTransaction] = []
        self.begun: dict[AbortedTransaction, list[int]] = {}
        self.lost = False
        self.too_many = False
        self._batches: dict[int, list[int]] = {}
        self._noted = 0

    def begin_segment(self) -> None:
        """Aborted transactions are those of one segment."""
        self.aborted = []
        self.begun = {}
        self.too_many = False

    def batch(self, entry: Entry) -> None:
        """Take a sound batch."""
        if entry.header.producer_id == NO_PRODUCER_ID:
            return
        ended = replay_batch(self.states, entry.buffer, entry.at, entry.header)
        producer_id = entry.header.producer_id
        if entry.header.control:
            self.states.forget_ended_below(INT64_MAX)
            batches = self._batches.pop(producer_id, [])
            self._noted -= len(batches)
            if ended is not None:
                self._end(ended, batches)
        elif entry.header.transactional:
            self._noted += 1
            self.too_many = self.too_many or self._noted > ABORTED_MAX
            if not self.too_many:
                self._batches.setdefault(producer_id, []).append(first_offset_of(entry.header))
        if len(self.states) > PRODUCERS_MAX:
            self._forget()

    def _end(self, ended: AbortedTransaction, batches: list[int]) -> None:
        self.too_many = self.too_many or len(self.aborted) >= ABORTED_MAX
        if not self.too_many:
            self.aborted.append(ended)
            self.begun[ended] = batches
            self._noted += len(batches)

    def _forget(self) -> None:
        self.lost = True
        times = sorted(state.last_timestamp for state in self.states)
        states = self.states
        states.expiration_ms = 0
        states.expire(times[len(times) // 2])
        states.expiration_ms = NEVER_MS
        if len(states) > PRODUCERS_MAX:
            states.clear()  # so many open transactions, or all at one time: there is no such log


def check_txn_index(content: bytes | None, tracker: ProducerTracker, base_offset: int, end_offset: int) -> str:
    """What is wrong with a transaction index file, "" if nothing is. `tracker` has followed the log to the segment's end.

    It may know of more than the log shows, whose compaction removed what was aborted; it must know of what the log shows. A transaction
    may begin later than the log shows, where a marker before it was lost: but then with a batch of its producer.
    """
    expected, begun = tracker.aborted, tracker.begun
    try:
        found = parse_entries(content or b"")
    except CorruptRecords as error:
        return error.message or str(error)
    by_end = {(entry.producer_id, entry.last_offset): entry for entry in found}
    for wanted in expected:
        entry = by_end.get((wanted.producer_id, wanted.last_offset))
        if entry is None:
            what = f"producer {wanted.producer_id}, offsets {wanted.first_offset} to {wanted.last_offset}"
            return f"it lacks the aborted transaction of {what}" if content is not None else f"it is missing, and there is {what}"
        if entry.first_offset > wanted.first_offset and entry.first_offset not in begun.get(wanted, ()):
            return f"the aborted transaction of producer {wanted.producer_id} that ended at {wanted.last_offset} began at " + (
                f"{wanted.first_offset}, not at {entry.first_offset}"
            )
    for entry in found:
        if not base_offset <= entry.last_offset < end_offset or not 0 <= entry.last_stable_offset <= entry.last_offset + 1:
            return f"its entry {entry} does not belong to a segment of the offsets {base_offset} to {end_offset - 1}"
    return ""


def check_snapshot(content: bytes, offset: int, tracker: ProducerTracker | None) -> str:
    """What is wrong with the producer snapshot at `offset`, "" if nothing is. `tracker` None: the log before it is not all known."""
    try:
        states = parse_snapshot(content)
    except CorruptRecords as error:
        return error.message or str(error)
    if len({state.producer_id for state in states}) != len(states):
        return "it names a producer twice"
    for state in states:
        if state.last_offset >= offset or state.txn_first_offset >= offset:
            known = max(state.last_offset, state.txn_first_offset)
            return f"it is of offset {offset}, and knows of producer {state.producer_id} up to offset {known}"
        seen = tracker.states.get(state.producer_id) if tracker is not None else None
        problem = _differs(state, seen) if seen is not None else ""
        if problem:
            return problem
    return ""


def _differs(state: ProducerState, seen: ProducerState) -> str:
    """What a snapshot does not know and the log does. It may know more, of batches that were lost or compacted."""
    who = f"of producer {state.producer_id}"
    if state.epoch < seen.epoch:
        return f"it says {state.epoch} for the epoch {who}, and the log {seen.epoch}"
    if state.epoch > seen.epoch or not seen.batches:
        return ""
    if state.last_offset < seen.last_offset or (state.last_offset == seen.last_offset and state.last_sequence != seen.last_sequence):
        said = f"offset {state.last_offset} and sequence {state.last_sequence}"
        return f"it says {said} for the last record {who}, and the log {seen.last_offset} and {seen.last_sequence}"
    if state.last_offset == seen.last_offset and state.txn_first_offset >= 0 and seen.txn_first_offset < 0:
        return f"it has a transaction {who} open since offset {state.txn_first_offset}, and in the log it has ended"
    return ""
