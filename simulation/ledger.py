"""What the clients of a run have sent, and what they saw: everything that a client could complain about is checked here, at once."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from simulation.group_ledger import GroupLedger
from simulation.history import Recorder
from simulation.transaction_ledger import Sent, TransactionLedger
from txbroker.names import TopicPartition

Report = Callable[[str, str], None]

# The invariants that the anomalies of a history violate.
ANOMALIES = {
    "duplicate": "I10", "nonmonotonic-send": "I10", "inconsistent-offsets": "I3", "unexpected": "I3", "nonmonotonic-poll": "I3",
    "int-nonmonotonic-poll": "I3", "poll-skip": "I3", "int-poll-skip": "I3", "G1a": "I9", "precommitted-read": "I9",
    "torn-transaction": "I9", "lost-commit": "I8", "unexpected-commit": "I8", "lost-latest": "I13", "lost-write": "I1", "unseen": "I1",
}  # fmt: skip


class Observed:
    """One partition, as all clients together have seen it."""

    def __init__(self) -> None:
        self.sent: set[bytes] = set()
        self.values: dict[int, bytes] = {}  # by offset
        self.offsets: dict[bytes, int] = {}
        self.acknowledged: dict[int, bytes] = {}  # with acks=all, by offset
        self.unplaced: set[bytes] = set()  # acknowledged without an offset
        self.latest: list[tuple[int, int]] = []  # leader epochs and offsets that ListOffsets has returned
        self.stable: list[tuple[int, int]] = []  # the same for read_committed
        self.start = 0  # records below may have been deleted
        self.compacted = False


class Ledger:
    """`report(invariant, text)` ends the run. `now_ms`: for the timestamps of records. `committed` is called with acknowledged offsets.

    `acting_coordinator(group, broker)`: the leader epoch in which this broker is the coordinator of the group, None if it is not.
    `leads(partition, broker)`: whether this broker is the leader.
    """

    def __init__(self, report: Report, now_ms: Callable[[], int], seconds: Callable[[], float]) -> None:
        self.now_ms = now_ms
        self.history = Recorder(seconds)
        self.partitions: dict[TopicPartition, Observed] = {}
        self.producer_ids: set[int] = set()
        self.records_read = 0
        self.exactly_once = False  # all producers are idempotent
        self.transactions = TransactionLedger(report)
        self.groups = GroupLedger(report)
        self._report = report
        self.committed: Callable[[TopicPartition, int], None] = lambda partition, offset: None
        self.acting_coordinator: Callable[[str, int], int | None] = lambda group, broker_id: None
        self.leads: Callable[[TopicPartition, int], bool] = lambda partition, broker_id: True

    def of(self, partition: TopicPartition) -> Observed:
        """What was seen of a partition."""
        found = self.partitions.get(partition)
        if found is None:
            found = self.partitions[partition] = Observed()
        return found

    def run(self, what: str, work: Coroutine[Any, Any, None]) -> None:
        """Run a client's work; it must not fail."""
        Deferred.fromCoroutine(work).addErrback(lambda failure: self._failed(what, failure))

    def _failed(self, what: str, failure: Failure) -> None:
        self._report("I12", f"client {what} failed: {failure.getTraceback()}")

    # Producers

    def new_producer(self, producer_id: int) -> None:
        """InitProducerId has returned an id."""
        if producer_id in self.producer_ids:
            self._report("I10", f"producer id {producer_id} was given twice")
        self.producer_ids.add(producer_id)

    def sent(
        self,
        producer: str,
        partition: TopicPartition,
        values: Sequence[bytes],
        *,
        exact: bool,
        keyed: bool,
        transaction: Sent | None = None,
    ) -> None:
        """Values are about to be sent for the first time."""
        self.of(partition).sent.update(values)
        name = None if transaction is None else transaction.name
        self.history.sent(producer, partition, values, exact=exact, keyed=keyed, transaction=name)
        if transaction is not None:
            self.transactions.sent(transaction, partition, values)

    def acknowledged(self, partition: TopicPartition, values: Sequence[bytes], base_offset: int, *, all_in_sync: bool) -> None:
        """A batch is acknowledged. `base_offset` is -1 if it is not known."""
        self.history.acknowledged(values, base_offset, all_in_sync=all_in_sync)
        seen = self.of(partition)
        for index, value in enumerate(values):
            if base_offset < 0:
                seen.unplaced.add(value)
            elif all_in_sync:
                self._placed(seen, partition, base_offset + index, value, "acknowledged")
                seen.acknowledged[base_offset + index] = value
        if base_offset >= 0 and all_in_sync:
            self.committed(partition, base_offset + len(values) - 1)

    def refused(self, producer: str, partition: TopicPartition, sequence: int, problem: str) -> None:
        """A batch failed with an error that no correct cluster gives."""
        self._report("I10", f"{producer}: the batch with sequence {sequence} for {partition} failed with {problem}")

    def commit_lost(self, committer: str, text: str) -> None:
        """A committed offset is not fetched."""
        self._report("I8", f"{committer}: {text}")

    def check_history(self) -> None:
        """The end of the run: no anomaly in what the clients have recorded."""
        seen = self.partitions.items()
        compacted = {name.topic for name, one in seen if one.compacted}
        for anomaly in self.history.anomalies(compacted=compacted, deleted=[(name, one.start) for name, one in seen if one.start]):
            self._report(ANOMALIES[anomaly.kind], f"the history of the clients: {anomaly}")

    # Consumers

    def read(self, consumer: str, partition: TopicPartition, offset: int, value: bytes, expected: int) -> None:
        """A record was read. `expected`: the offset of the next record if none is missing."""
        seen = self.of(partition)
        self.records_read += 1
        if seen.values.get(offset) != value:
            if value not in seen.sent:
                self._report("I3", f"{consumer} read {value!r} at {partition}@{offset}, which was not sent there")
            self._placed(seen, partition, offset, value, f"read by {consumer}")
        if offset != expected and not seen.compacted and expected >= seen.start:
            self._report("I3", f"{consumer} read {partition}@{offset} after {expected - 1}: the records between are missing")

    def _placed(self, seen: Observed, partition: TopicPartition, offset: int, value: bytes, how: str) -> None:
        before = seen.values.setdefault(offset, value)
        if before != value:
            self._report("I3", f"{partition}@{offset} was {before!r}, and is {value!r} now ({how})")
        other = seen.offsets.setdefault(value, offset)
        if other != offset and self.exactly_once:
            self._report("I10", f"{value!r} is at {partition}@{other} and at {offset} ({how})")

    def out_of_range(self, consumer: str, partition: TopicPartition, position: int) -> None:
        """A leader has no such offset."""
        seen = self.of(partition)
        if position >= seen.start and not seen.compacted:
            self._report("I1", f"{consumer} cannot read {partition}@{position}: OFFSET_OUT_OF_RANGE, and it was readable before")

    def not_fenced(self, consumer: str, partition: TopicPartition, asked: int, answered: int) -> None:
        """A leader has answered a request that was made for another leader epoch."""
        self._report("I4", f"{consumer} asked {partition} in leader epoch {asked}, and the leader of epoch {answered} has answered")

    def latest_seen(self, partition: TopicPartition, *, stable: bool) -> int:
        """How many answers of `latest` there were when a question begins."""
        seen = self.of(partition)
        return len(seen.stable if stable else seen.latest)

    def latest(self, consumer: str, partition: TopicPartition, answer: tuple[int, int], begun: int, *, stable: bool) -> None:
        """A leader's latest offset; `answer` is its epoch and the offset, `begun` the result of `latest_seen` before.

        `stable`: the last stable offset.
        """
        seen = self.of(partition)
        answers = seen.stable if stable else seen.latest
        epoch, offset = answer
        before = max((other for other_epoch, other in answers[:begun] if other_epoch <= epoch), default=0)
        if offset < before:
            what = "last stable offset" if stable else "latest offset"
            self._report("I3", f"{consumer}: the {what} of {partition} is {offset} in epoch {epoch}, and was {before} before")
        answers.append(answer)
