"""One partition that is copied: its positions, its batches in memory, and its offset map.

    STARTING ── begin ──► COPYING ── failed ──► PAUSED ── begin, after a while ──► COPYING
        │                    │                     │
        └──────── stop ──────┴──────── stop ───────┘──► STOPPED, for good

Batches go out in order, each with the next sequence of one idempotent producer: the target appends a batch only if it has exactly the
batches before it. Therefore a batch that was sent by an earlier run, and arrives late, doubles nothing: either it is the next one, and
the batch that this run sends is a repetition, or it is refused.

A broker that knows nothing of a producer takes any sequence from it (Kafka's ProducerAppendInfo). It forgets a producer that has expired,
also after each start, and its date is the largest timestamp of its last batch: a copy of old records. Therefore a batch goes out alone if
none is in flight: otherwise the batches after it would be appended in its place if the broker refuses it.

With `keep_offsets` a batch has no sequence. It says instead how many offsets before it have no record (`without_producer`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from enum import Enum, auto
from typing import NamedTuple

from txbroker.mirror.batches import Ready, Tally, records_header, renumber, without_producer
from txbroker.mirror.map_records import RUNS_IN_A_RECORD, Pair, Progress, progress_pair, runs_pair
from txbroker.mirror.offset_map import OffsetMap
from txbroker.names import TopicPartition

PRODUCER_EPOCH = 0
_SEQUENCES = 2**31
_UNKNOWN = -1


class State(Enum):
    """See the module's diagram."""

    STARTING = auto()
    COPYING = auto()
    PAUSED = auto()
    STOPPED = auto()


class Sent(NamedTuple):
    """A batch without an answer, and the offset that it must get in the target."""

    ready: Ready
    target: int


class PartitionCopy:
    """`position`: the next source offset to fetch. `source_end`: the source's last stable offset, as far as it is known.

    `generation` changes when a failure makes answers to earlier requests meaningless. `in_flight`: requests without an answer. `snapshot`:
    the source's end when the mirror began. `problem`: why the partition is paused or stopped.
    """

    def __init__(self, partition: TopicPartition, *, keep_offsets: bool) -> None:
        self.partition = partition
        self.keep_offsets = keep_offsets
        self.state = State.STARTING
        self.problem = ""
        self.failures = 0
        self.generation = 0
        self.in_flight = 0
        self.fetching = False
        self.position = 0
        self.source_start = 0
        self.source_end = _UNKNOWN
        self.high_watermark = _UNKNOWN
        self.snapshot: int | None = None
        self.target_end = 0
        self.map: OffsetMap | None = None
        self.producer_id = _UNKNOWN
        self.sequence_start = 0
        self.queue: deque[Ready] = deque()
        self.sent: deque[Sent] = deque()
        self.buffered = 0
        self.tally = Tally()
        self.bytes = 0
        self._next_target = 0
        self._first_is_in_flight = False
        self._stored: Progress | None = None
        self._parts: list[tuple[int, int]] = []  # first target offset, index of the first run
        self._stored_runs = 0

    def __str__(self) -> str:
        return str(self.partition)

    # --- state ---

    def begin(self, position: int, target_end: int) -> None:
        """Copy from this source offset on; the target ends here. Does nothing if the partition was stopped meanwhile."""
        if self.state is State.STOPPED:
            return
        assert not self.in_flight and not self.sent, "answers are outstanding"
        self.state = State.COPYING
        self.problem = ""
        self.position = position
        self.target_end = self._next_target = target_end
        if self.map is not None:
            self.map.position = position

    def found(self, position: int, target_end: int) -> None:
        """Up to this source offset the target has everything, and it ends here: for the report, also if copying cannot begin."""
        self.position = position
        self.target_end = target_end

    def failed(self, problem: str) -> None:
        """Discard what is in memory and pause."""
        self.generation += 1
        self.queue.clear()
        self.sent.clear()
        self._first_is_in_flight = False
        self.buffered = 0
        if self.state is not State.STOPPED:
            self.state = State.PAUSED
            self.problem = problem
            self.failures += 1

    def stop(self, problem: str) -> None:
        """Copy nothing more."""
        self.failed(problem)
        self.state = State.STOPPED
        self.problem = problem

    @property
    def caught_up(self) -> bool:
        """Whether everything up to the snapshot is in the target."""
        idle = self.state is State.COPYING and not self.queue and not self.sent
        return self.snapshot is not None and self.position >= self.snapshot and idle

    @property
    def lag(self) -> int:
        """Offsets of the source that are not copied yet."""
        return max(self.source_end - self.copied_to, 0)

    @property
    def copied_to(self) -> int:
        """The source's next offset that the target does not have."""
        if self.sent:
            return self.sent[0].ready.runs[0].source
        return self.queue[0].runs[0].source if self.queue else self.position

    # --- batches ---

    def take(self, batches: Sequence[Ready], position: int) -> None:
        """Batches from the source, up to `position`."""
        self.queue.extend(batches)
        self.buffered += sum(len(each.records) for each in batches)
        self.position = position

    @property
    def can_send(self) -> bool:
        """Whether the next batch may go out now, if there is one."""
        return not self._first_is_in_flight

    def send_next(self) -> Ready:
        """The next batch, with its producer and offset; it is in flight from now on."""
        ready = self.queue.popleft()
        self._first_is_in_flight = not self.sent
        if self.keep_offsets:
            header = records_header(ready.records)
            target, following = header.base_offset, header.last_offset + 1
            without_producer(ready.records, target - self._next_target)
        else:
            target, following = self._next_target, self._next_target + ready.count
            renumber(ready.records, self.producer_id, PRODUCER_EPOCH, self.sequence_at(target))
        self.sent.append(Sent(ready, target))
        self._next_target = following
        return ready

    def sequence_at(self, target: int) -> int:
        """The sequence of the producer's record at this offset of the target."""
        return (target - self.sequence_start) % _SEQUENCES

    def acknowledged(self, target: int) -> str:
        """The target has the oldest batch in flight at this offset; an error if another producer writes there."""
        ready, expected = self.sent.popleft()
        self._first_is_in_flight = False
        self.buffered -= len(ready.records)
        if target != expected:
            return f"the target appended at offset {target} what had to be at {expected}: another producer writes to this topic"
        self.bytes += len(ready.records)
        if self.map is None:
            self.target_end = records_header(ready.records).last_offset + 1
        else:
            for source, count in ready.runs:
                self.map.add(source, count)
            self.map.position = ready.position
            self.target_end = self.map.target_end
        self.failures = 0
        return ""

    # --- what is stored ---

    def restore(self, offset_map: OffsetMap, progress: Progress) -> None:
        """Continue with a map that was stored."""
        self.map = offset_map
        self.producer_id = progress.producer_id
        self.sequence_start = progress.sequence_start
        self._stored = progress
        self._parts = [(run.target, index) for index, run in enumerate(offset_map.runs()) if index % RUNS_IN_A_RECORD == 0]
        self._stored_runs = len(offset_map)

    def new_map(self, position: int, target_end: int, producer_id: int) -> None:
        """Begin a map, with a producer whose sequences begin here."""
        self.map = OffsetMap(position, target_end)
        self.producer_id = producer_id
        self.sequence_start = target_end

    def skip_to(self, target_end: int, producer_id: int) -> None:
        """Use another producer from this target offset on; what is below it and not in the map has no offset in the source."""
        assert self.map is not None
        self.map.skip_to(target_end)
        self.producer_id = producer_id
        self.sequence_start = target_end

    def unsaved(self, source: str) -> Iterator[Pair]:
        """The records that store what has changed since the last call."""
        offset_map = self.map
        if offset_map is None:
            return
        idle = self.state is State.COPYING and not self.queue and not self.sent
        position = self.position if idle else offset_map.position
        ends = offset_map.target_start, offset_map.mapped_end, offset_map.target_end
        progress = Progress(position, *ends, self.producer_id, self.sequence_start)
        if progress == self._stored:
            return
        yield from self._unsaved_runs(source, offset_map)
        yield progress_pair(source, self.partition, progress)
        self._stored = progress

    def _unsaved_runs(self, source: str, offset_map: OffsetMap) -> Iterator[Pair]:
        """The parts from the one with the last stored run on; that run may have grown before another began."""
        if len(offset_map) == self._stored_runs:
            return
        first_part = self._parts[-1:] if self._stored_runs <= len(offset_map) else []
        begin = first_part[0][1] if first_part else 0
        runs = list(offset_map.runs(begin))
        del self._parts[len(self._parts) - len(first_part) :]
        for index in range(0, len(runs), RUNS_IN_A_RECORD):
            part = runs[index : index + RUNS_IN_A_RECORD]
            self._parts.append((part[0].target, begin + index))
            yield runs_pair(source, self.partition, part[0].target, part)
        self._stored_runs = len(offset_map)

    def truncated(self, source: str, target_end: int) -> list[Pair]:
        """The target lost what is above `target_end`: the map too, and these records delete what is stored of it."""
        assert self.map is not None
        self.map.truncate(target_end)
        deleted = [runs_pair(source, self.partition, first, None) for first, _ in self._parts]
        self._parts = []
        self._stored_runs = 0
        stored = list(self._unsaved_runs(source, self.map))
        kept = {key for key, _ in stored}
        return [pair for pair in deleted if pair[0] not in kept] + [*stored, *self.unsaved(source)]
