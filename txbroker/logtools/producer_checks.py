"""Checks transaction indexes and producer snapshots against the batches of the log, from its first batch on."""

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

# Above this number the half with the oldest timestamps is dropped and not compared any more.
PRODUCERS_MAX = 200_000
# Per segment; the transaction index of a segment with more is not compared.
ABORTED_MAX = 400_000
NEVER_MS = 2**62


class ProducerTracker:
    """The producer state of a broker at the current position in the log.

    `aborted`: the aborted transactions that ended in the current segment. `begun`: the base offsets of their batches. `lost`: the state is
    incomplete. `too_many`: the segment has more aborted transactions than are tracked.
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
        """Begin a segment: `aborted` is of one segment."""
        self.aborted = []
        self.begun = {}
        self.too_many = False

    def batch(self, entry: Entry) -> None:
        """Add a valid batch."""
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
            states.clear()  # all have open transactions or the same timestamp, which does not occur in real logs


def check_txn_index(content: bytes | None, tracker: ProducerTracker, base_offset: int, end_offset: int) -> str:
    """The problem of a transaction index, "" without one. `tracker`: at the end of the segment.

    The index may have transactions that are not in the log, because compaction removed their records; it must have those in the log. An
    entry may begin later than in the log, if an earlier marker was lost, but only with a batch of its producer.
    """
    expected, begun = tracker.aborted, tracker.begun
    try:
        found = parse_entries(content or b"")
    except CorruptRecords as error:
        return error.message or str(error)
    by_end = {(entry.producer_id, entry.last_offset): entry for entry in found}
    for transaction in expected:
        entry = by_end.get((transaction.producer_id, transaction.last_offset))
        if entry is None:
            what = f"producer {transaction.producer_id}, offsets {transaction.first_offset} to {transaction.last_offset}"
            aborted = f"the aborted transaction of {what}"
            return f"it lacks {aborted}" if content is not None else f"it is missing, but the segment has {aborted}"
        if entry.first_offset > transaction.first_offset and entry.first_offset not in begun.get(transaction, ()):
            what = f"the transaction of producer {transaction.producer_id} with the last offset {transaction.last_offset}"
            return f"it has {entry.first_offset} as the first offset of {what}, but in the log that is {transaction.first_offset}"
    for entry in found:
        # The last stable offset may be above the marker: a follower of Apache Kafka computes it for all batches of a fetch at once.
        if not base_offset <= entry.last_offset < end_offset or entry.last_stable_offset < 0:
            return f"its entry {entry} is impossible in a segment with the offsets {base_offset} to {end_offset - 1}"
    return ""


def check_snapshot(content: bytes, offset: int, tracker: ProducerTracker | None) -> str:
    """The problem of the producer snapshot at `offset`, "" without one. `tracker` None: the log before it is not completely known."""
    try:
        states = parse_snapshot(content)
    except CorruptRecords as error:
        return error.message or str(error)
    if len({state.producer_id for state in states}) != len(states):
        return "it has a producer twice"
    for state in states:
        if state.last_offset >= offset or state.txn_first_offset >= offset:
            known = max(state.last_offset, state.txn_first_offset)
            return f"it is of offset {offset}, but has offset {known} of producer {state.producer_id}"
        seen = tracker.states.get(state.producer_id) if tracker is not None else None
        problem = _differs(state, seen) if seen is not None else ""
        if problem:
            return problem
    return ""


def _differs(state: ProducerState, seen: ProducerState) -> str:
    """How a snapshot is behind the log. It may be ahead, with state from batches that were lost or compacted."""
    who = f"of producer {state.producer_id}"
    if state.epoch < seen.epoch:
        return f"it has {state.epoch} as the epoch {who}, but the log has {seen.epoch}"
    if state.epoch > seen.epoch or not seen.batches:
        return ""
    if state.last_offset < seen.last_offset or (state.last_offset == seen.last_offset and state.last_sequence != seen.last_sequence):
        said = f"offset {state.last_offset} and sequence {state.last_sequence}"
        return f"it has {said} for the last record {who}, but the log has {seen.last_offset} and {seen.last_sequence}"
    if state.last_offset == seen.last_offset and state.txn_first_offset >= 0 and seen.txn_first_offset < 0:
        return f"it has an open transaction {who} from offset {state.txn_first_offset} on, but in the log it has ended"
    return ""
