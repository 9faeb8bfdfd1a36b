"""A compacted log compared with all records ever appended: appends, passes, retention, truncations, and crashes during a swap."""

from __future__ import annotations

import random
from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from simulation.memory_disk import MemoryDisk
from tests.cleaner.logs import SETTINGS
from tests.log.support import NOW, Row, end_transaction, open_log, rows
from tests.support.examples import examples
from tests.support.fakes.disk_path import DiskPath
from tests.support.fakes.faulty_disk import FaultyDisk, Killed
from txbroker.errors import StorageError
from txbroker.log.cleaner.cleanable import assess
from txbroker.log.cleaner.cleaning_job import CleaningJob, Done, Event, Failed, FailureKind, GroupCleaned, Strategy
from txbroker.log.cleaner.compaction_order import CompactionOrder
from txbroker.log.cleaner.compaction_pass import run_job
from txbroker.log.log import Log
from txbroker.log.producers import BATCHES_REMEMBERED
from txbroker.wire.compression import Codec
from txbroker.wire.records import Record, build

KEYS = [b"a", b"b", b"c", b"d", b"a longer key than sixteen bytes"]
RETENTION_MS = 50
_seeds = count(1)


class CompactedLog(RuleBasedStateMachine):
    """`written`: all records that the log may have, by offset. `clean_to`: the end of passes. `aborted`: offsets that must not be read."""

    log: Log
    strategy = Strategy.OFFSET

    def __init__(self) -> None:
        super().__init__()
        self.storage = MemoryDisk()
        self.disk = FaultyDisk(self.storage)
        self.directory = DiskPath(self.disk, "/data").made()
        self.storage.sync("/")
        self.written: dict[int, Row] = {}
        self.start = 0
        self.clean_to = 0
        self.settled = 0  # records that passes were based on are replicated and never truncated
        self.now = NOW
        self.sequence = 0
        self.sent: list[tuple[int, int, int]] = []

    @initialize(segment_bytes=st.integers(350, 900), interval=st.sampled_from([0, 100, 4096]), map_bytes=st.sampled_from([96, 1 << 16]))
    def begin(self, segment_bytes: int, interval: int, map_bytes: int) -> None:
        self.options = {
            "segment_bytes": segment_bytes, "index_interval_bytes": interval, "retention_ms": -1, "file_delete_delay_ms": 0,
            "cleanup_policy": frozenset({"compact"}), "delete_retention_ms": RETENTION_MS,
            "compaction_strategy": self.strategy}
        self.map_bytes = map_bytes
        self.log = open_log(self.directory / "log", **self.options)

    def reopen(self, *, clean: bool, recovery_point: int = 0) -> None:
        self.disk.repair()
        self.log = open_log(self.directory / "log", clean=clean, recovery_point=recovery_point,
                            log_start_offset=self.start, now_ms=self.now, **self.options)  # fmt: skip

    def write(self, content: list[tuple[bytes, bytes | None]], **options: object) -> int:
        self.now += 1
        stamp = self.stamp()
        records = [Record(index, stamp, key, value) for index, (key, value) in enumerate(content)]
        made = memoryview(bytearray(build(records, **options)))  # type: ignore[arg-type]
        base = self.log.append(made, leader_epoch=0, now_ms=self.now).first_offset
        self.written.update((base + index, (base + index, stamp, key, value)) for index, (key, value) in enumerate(content))
        return base

    def stamp(self) -> int:
        """With the strategy timestamp, timestamps are out of order and repeated."""
        return self.now if self.strategy is Strategy.OFFSET else NOW - random.Random(self.now).randrange(9)

    def rank(self, row: Row) -> tuple[int, bool, int]:
        """Of two records of a key the one with the higher rank stays."""
        return CompactionOrder(self.strategy).rank(Record(*row))

    def latest(self) -> dict[bytes | None, Row]:
        """The record of each key that stays."""
        return {row[2]: row for row in sorted(self.written.values(), key=self.rank)}

    @rule(content=st.lists(st.tuples(st.sampled_from(KEYS), st.one_of(st.none(), st.binary(max_size=40))), min_size=1, max_size=5),
          codec=st.sampled_from(list(Codec)))
    def append(self, content: list[tuple[bytes, bytes | None]], codec: Codec) -> None:
        self.write(content, codec=codec)

    @rule(number=st.integers(1, 3), key=st.sampled_from(KEYS))
    def produce(self, number: int, key: bytes) -> None:
        base = self.write([(key, b"idempotent")] * number, producer_id=77, producer_epoch=0, base_sequence=self.sequence)
        self.sent.append((self.sequence, number, base))
        self.sequence += number

    @rule(back=st.integers(1, BATCHES_REMEMBERED))
    def produce_again(self, back: int) -> None:
        """A client that got no response sends one of its last batches again, after any cleaning."""
        if back <= len(self.sent) and self.sent[-back][2] >= self.start:
            sequence, number, offset = self.sent[-back]
            records = [Record(index, self.now, b"a", b"idempotent") for index in range(number)]
            made = memoryview(bytearray(build(records, producer_id=77, producer_epoch=0, base_sequence=sequence)))
            found = self.log.append(made, leader_epoch=0, now_ms=self.now)
            assert (found.duplicate, found.first_offset, found.last_offset) == (True, offset, offset + number - 1)

    @rule(key=st.sampled_from(KEYS))
    def transaction(self, key: bytes) -> None:
        producer = 1000 + next(_seeds)
        self.write([(key, b"committed")], producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True)
        end_transaction(self.log, producer, committed=True, timestamp=self.now)

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now)

    @rule(renames=st.one_of(st.none(), st.none(), st.integers(0, 40)), pause_ms=st.integers(0, 2 * RETENTION_MS))
    def clean(self, renames: int | None, pause_ms: int) -> None:
        """A pass whose groups are swapped in as they are reported, or a crash at one of the renames."""
        self.now += pause_ms
        log, generation = self.log, self.log.generation
        end = log.log_end_offset
        found = assess(log.segments, log.config, checkpoint=self.clean_to, log_start_offset=log.log_start_offset, log_end_offset=end,
                       last_stable_offset=log.last_stable_offset(end), now_ms=self.now)  # fmt: skip
        if not found.cleanable_bytes:
            return
        if log.recovery_point < found.first_uncleanable_offset:
            log.flush()
        self.settled = max(self.settled, found.first_uncleanable_offset)
        job = CleaningJob(
            directory=log.directory, topic="orders", partition=3, segments=tuple(log.closed_below(found.first_uncleanable_offset)),
            log_start_offset=log.log_start_offset, log_end_offset=end, first_dirty_offset=found.first_dirty_offset,
            first_uncleanable_offset=found.first_uncleanable_offset, producers=tuple(log.last_records(self.now)), now_ms=self.now,
            seed=next(_seeds), settings=SETTINGS.__class__(**{
                **{name: getattr(SETTINGS, name) for name in SETTINGS.__slots__}, "map_bytes": self.map_bytes,
                "segment_bytes": log.config.segment_bytes, "delete_retention_ms": RETENTION_MS, "strategy": self.strategy}))
        if renames is not None:
            self.disk.fail("rename", after=renames, error=Killed)
        before = rows(log)
        outcome: list[Event] = []

        def report(event: Event) -> None:
            outcome.append(event)
            if isinstance(event, GroupCleaned):
                ends: list[StorageError | None] = []
                assert log.replace_segments(
                    event.old_base_offsets, size=event.size, generation=generation, now_ms=self.now, done=ends.append
                )
                assert ends == [None]

        try:
            run_job(job, self.disk, report, lambda: False, monotonic=lambda: 0.0, sleep=lambda seconds: None)
        except Killed:
            self.reopen(clean=False, recovery_point=random.Random(self.now).choice([0, log.recovery_point]))
            self.check_gone(before)
            return
        self.disk.repair()
        self.check_gone(before)
        done = outcome[-1]
        assert isinstance(done, Done), outcome
        assert done.end_offset > found.first_dirty_offset or self.map_bytes < 1000
        self.clean_to = done.end_offset
        # The clean part has one record for each key, and tombstones before their delete horizon.
        clean = [key for offset, _, key, _ in rows(log) if offset < self.clean_to]
        assert len(clean) == len(set(clean)), "a key has two records"

    def check_gone(self, before: list[Row]) -> None:
        """Each removed record was a tombstone, or another readable record of its key stays instead."""
        there = {row[0] for row in rows(self.log)}
        best = {row[2]: row for row in sorted(before, key=self.rank)}
        for row in before:
            assert row[0] in there or row[3] is None or best[row[2]] != row, f"{row[2]!r} at {row[0]} was lost"

    @rule(kind=st.sampled_from([FailureKind.STOPPED]))
    def give_up(self, kind: FailureKind) -> None:
        """A pass that is stopped leaves no files."""
        log = self.log
        segments = tuple(log.closed_below(log.log_end_offset))
        if segments:
            job = CleaningJob(
                directory=log.directory, topic="orders", partition=3, segments=segments, log_start_offset=log.log_start_offset,
                log_end_offset=log.log_end_offset, first_dirty_offset=log.log_start_offset,
                first_uncleanable_offset=segments[-1].next_offset, producers=(), now_ms=self.now, seed=1, settings=SETTINGS)
            outcome: list[Event] = []
            run_job(job, self.disk, outcome.append, lambda: True, monotonic=lambda: 0.0, sleep=lambda seconds: None)
            assert isinstance(outcome[-1], Failed)
            assert outcome[-1].kind is kind
            assert not (self.directory / "log").glob("*.cleaned")

    @rule(back=st.integers(0, 12))
    def truncate(self, back: int) -> None:
        self.log.truncate_to(max(self.start, self.settled, self.log.log_end_offset - back))
        self.lose(self.log.log_end_offset)

    def lose(self, end: int) -> None:
        self.start, self.clean_to = min(self.start, end), min(self.clean_to, end)
        self.written = {offset: row for offset, row in self.written.items() if offset < end}
        self.sent = [batch for batch in self.sent if batch[2] + batch[1] <= end]
        self.sequence = self.sent[-1][0] + self.sent[-1][1] if self.sent else 0

    @rule(forward=st.integers(0, 9))
    def delete_records(self, forward: int) -> None:
        self.start = min(self.log.log_end_offset, self.start + forward)
        self.log.advance_start(self.start)

    @rule()
    def delete_below_the_start(self) -> None:
        self.log.delete_expired(self.now, self.log.log_end_offset)
        self.start = self.log.log_start_offset

    @rule()
    def flush(self) -> None:
        self.log.flush()

    @rule()
    def restart(self) -> None:
        self.log.close()
        self.reopen(clean=True)

    @rule(point=st.integers(0, 30))
    def kill(self, point: int) -> None:
        self.reopen(clean=False, recovery_point=min(point, self.log.recovery_point))

    @rule(seed=st.integers(0, 2**32))
    def lose_power(self, seed: int) -> None:
        durable, end = max(self.log.recovery_point, self.settled), self.log.log_end_offset
        chance = random.Random(seed)
        self.storage.power_cut(chance)
        self.reopen(clean=False, recovery_point=chance.choice([self.log.recovery_point, 0]))
        assert durable <= self.log.log_end_offset <= end, "records that passes were based on were synced"
        self.lose(self.log.log_end_offset)

    @invariant()
    def the_latest_of_each_key_is_there(self) -> None:
        if not hasattr(self, "log"):
            return
        found = rows(self.log)
        assert [row for row in found if self.written.get(row[0]) != row] == [], "all records were written"
        assert sorted(found) == found
        assert self.log.log_start_offset == self.start
        there = {row[0] for row in found}
        latest = self.latest()
        for offset, _, key, value in latest.values():
            assert offset in there or offset < self.start or value is None, f"{key!r} at {offset} was lost"
        for offset in sorted(self.written):
            if offset >= self.clean_to and offset >= self.start:
                # A pass that was interrupted may have removed records that are obsolete by a later one.
                key = self.written[offset][2]
                assert offset in there or latest[key][0] != offset or latest[key][3] is None


class CompactedByTimestamp(CompactedLog):
    """The same with the strategy timestamp (KIP-280)."""

    strategy = Strategy.TIMESTAMP


TestCompactedLog = CompactedLog.TestCase
TestCompactedByTimestamp = CompactedByTimestamp.TestCase
TestCompactedLog.settings = TestCompactedByTimestamp.settings = settings(
    max_examples=examples(60), stateful_step_count=40
)
