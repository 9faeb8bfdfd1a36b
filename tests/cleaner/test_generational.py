"""The generational schedule: real logs, the broker's loop and real passes, compared with a list of all records; and the bound."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.task import Clock

from simulation.memory_disk import MemoryDisk
from tests.cleaner.workers import CleanerWorkers
from tests.log.support import rows
from tests.log_directories.support import NOW, T0, DirectoryHarness
from tests.support.examples import examples
from tests.support.fakes.disk_path import DiskPath
from txbroker.config.load import load_broker_config
from txbroker.config.properties import parse_overrides
from txbroker.log.checkpoints import MalformedCheckpoint
from txbroker.log.cleaner import generational_schedule
from txbroker.log.cleaner.cleanable import Why
from txbroker.log.cleaner.cleaning_history import CleanSegment, History, after_pass, begun, raised
from txbroker.log.cleaner.cleaning_history_file import FILE_NAME, format_histories, parse_histories
from txbroker.log.cleaner.cleaning_job import GroupCleaned, Mapped, SegmentSpan, SegmentYield, Strategy
from txbroker.log.log import Log
from txbroker.log.log_results import Origin
from txbroker.maintenance.cleaning_schedule import Schedule
from txbroker.maintenance.log_cleaner import LogCleaner
from txbroker.wire.records import Record, build

BACKOFF_S = 15.0
Written = tuple[int, bytes, bytes | None]


class Cleaned:
    """One log under a schedule, and the list of all records that were appended."""

    def __init__(self, root: DiskPath, *overrides: str, **config: Any) -> None:
        self._overrides = ("log.cleaner.schedule=generational", *overrides)
        settings: dict[str, Any] = {
            "cleanup_policy": frozenset({"compact"}), "file_delete_delay_ms": 0, "min_cleanable_dirty_ratio": 0.1,
            "delete_retention_ms": 0, "segment_bytes": 4000, **config,
        }  # fmt: skip
        self._root, self._settings = root, settings
        self.written: list[Written] = []
        self.seed = 0
        self._begin()
        self.broker.create(T0)

    def _begin(self) -> None:
        self.broker = DirectoryHarness(self._root, 1, **self._settings)
        self.directories = self.broker.start()
        self.clock = Clock()
        self.workers = CleanerWorkers()
        config = load_broker_config(parse_overrides(self._overrides, {}))
        self.cleaning = LogCleaner(self.clock, config, self.directories, lambda _: self.log.log_end_offset, lambda: NOW, self._next_seed,
                                 self.workers)  # fmt: skip
        self.cleaning.start()

    def _next_seed(self) -> int:
        self.seed += 1
        return self.seed

    @property
    def log(self) -> Log:
        log = self.directories.get(T0)
        assert log is not None
        return log

    @property
    def history(self) -> History | None:
        return self.directories.cleaning.history(T0)

    def append(self, *pairs: tuple[bytes, bytes | None]) -> None:
        """Append a batch of keys and values."""
        start = self.log.log_end_offset
        records = [Record(index, NOW, key, value) for index, (key, value) in enumerate(pairs)]
        self.log.append(memoryview(bytearray(build(records))), leader_epoch=0, now_ms=NOW, origin=Origin.CLIENT)
        self.written += [(start + index, key, value) for index, (key, value) in enumerate(pairs)]

    def segment(self, *pairs: tuple[bytes, bytes | None], batch: int = 10) -> None:
        for at in range(0, len(pairs), batch):
            self.append(*pairs[at : at + batch])
        self.log.roll(NOW)

    def look(self) -> int:
        """Run rounds and passes until none is due; the number of passes."""
        before = self.workers.done
        self.clock.advance(BACKOFF_S)
        self.broker.worker.run()  # a pass begins once its log is flushed
        while self.workers.work(self.broker.disk):
            self.broker.worker.run()
            self.clock.advance(0)
            self.check()
        self.broker.worker.run()
        return self.workers.done - before

    def restart(self, *, crash: bool = False, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Restart the broker. A crash loses what workers had not written yet."""
        self.cleaning.stop()
        if crash:
            self.broker.crash()
        else:
            self.broker.worker.run()
            self.broker.stop()
        meanwhile()
        self._begin()

    def clean_all(self) -> None:
        """Check all of this at once."""
        done = self.cleaning.clean_now(T0, roll=True)
        self.broker.worker.run()
        while self.workers.work(self.broker.disk):
            self.broker.worker.run()
            self.clock.advance(0)
        assert done.called
        self.check()

    # Checks

    def kept(self) -> list[Written]:
        return [(offset, key or b"", value) for offset, _, key, value in rows(self.log)]

    def obsolete(self, end: int) -> int:
        """How many records below `end` are obsolete by a later record below `end`."""
        counts = Counter(key for offset, key, _ in self.kept() if offset < end)
        return sum(count - 1 for count in counts.values())

    def check(self) -> None:
        """Check the order, that each record was written, the latest value of each key, that deleted keys stay deleted, and the bound."""
        kept = self.kept()
        offsets = [offset for offset, _, _ in kept]
        assert offsets == sorted(set(offsets))
        assert set(kept) <= set(self.written)
        table: dict[bytes, bytes | None] = {}
        for _, key, value in kept:
            table[key] = value
        wanted: dict[bytes, bytes | None] = {}
        for _, key, value in self.written:
            wanted[key] = value
        assert {key: value for key, value in table.items() if value is not None} == {
            key: value for key, value in wanted.items() if value is not None
        }
        history = self.history
        if history is not None:
            assert self.obsolete(history.clean_end) <= history.hidden
            assert self.directories.cleaning.offset(T0) == history.lowest_end


def keys(chance: random.Random, count: int, of: int, prefix: bytes = b"k") -> list[tuple[bytes, bytes | None]]:
    return [(b"%s%d" % (prefix, chance.randrange(of)), b"v" * 60) for _ in range(count)]


def test_segments_that_rarely_change_are_not_rewritten(directory: DiskPath) -> None:
    cleaned = Cleaned(directory)
    chance = random.Random(1)
    for part in range(20):  # keys that never change
        cleaned.segment(*[(b"cold-%d-%d" % (part, i), b"v" * 60) for i in range(40)])
    cleaned.look()
    for _ in range(30):
        cleaned.segment(*keys(chance, 40, 30, b"hot"))
        cleaned.look()
    partial = [job for job in cleaned.workers.jobs if job.rewrite is not None]
    assert len(partial) > 10
    last = partial[-1]
    assert len(last.rewrite or ()) < len(last.segments) // 2
    history = cleaned.history
    assert history is not None
    assert history.lowest_end < history.clean_end
    assert cleaned.obsolete(history.clean_end) < 100
    assert cleaned.cleaning.status(T0) is not None


@pytest.mark.parametrize("ratio", [0.05, 0.2, 0.5, 0.8])
@pytest.mark.parametrize("shape", ["same", "few", "new", "moving"])
def test_the_bound_holds_for_all_kinds_of_writes(directory: DiskPath, ratio: float, shape: str) -> None:
    cleaned = Cleaned(directory, min_cleanable_dirty_ratio=ratio)
    chance = random.Random(7)
    for step in range(60):
        written: list[tuple[bytes, bytes | None]] = {
            "same": lambda: keys(chance, 40, 400),
            "few": lambda: keys(chance, 35, 10) + keys(chance, 5, 400),
            "new": lambda step=step: [(b"new-%d-%d" % (step, i), b"v" * 60) for i in range(36)] + keys(chance, 4, 400),
            "moving": lambda step=step: keys(chance, 40, 30, b"%d-" % (step // 5)),
        }[shape]()
        cleaned.segment(*written)
        cleaned.look()
        closed = [one for one in cleaned.kept() if one[0] < cleaned.log.segments[-1].base_offset]
        obsolete = cleaned.obsolete(cleaned.log.segments[-1].base_offset)
        assert obsolete <= max(generational_schedule.STALE_MAX, ratio) * len(closed) + 1, step
    assert cleaned.workers.done > 2
    cleaned.clean_all()
    assert cleaned.obsolete(cleaned.log.log_end_offset) == 0


def test_small_neighbours_are_joined(directory: DiskPath) -> None:
    cleaned = Cleaned(directory, min_cleanable_dirty_ratio=0.05)
    chance = random.Random(3)
    for _ in range(80):
        cleaned.segment(*keys(chance, 40, 60))
        cleaned.look()
    live = len({key for _, key, _ in cleaned.written})
    assert len(cleaned.log.segments) <= 4 + 2 * live * 100 // 4000 * 2, "at most twice as many segments as the records fill"


def test_a_deleted_key_does_not_come_back_from_a_skipped_segment(directory: DiskPath) -> None:
    cleaned = Cleaned(directory, min_cleanable_dirty_ratio=0.1)
    chance = random.Random(5)
    for part in range(12):
        cleaned.segment(*[(b"cold-%d-%d" % (part, i), b"v" * 60) for i in range(40)])
    cleaned.look()
    cleaned.segment(*[(b"cold-3-%d" % i, None) for i in range(5)], *keys(chance, 30, 20, b"hot"))
    for _ in range(40):
        cleaned.look()
        cleaned.segment(*keys(chance, 40, 20, b"hot"))
    assert any(job.rewrite is not None for job in cleaned.workers.jobs)
    cleaned.clean_all()
    cleaned.append((b"more", b"v"))
    cleaned.clean_all()
    assert not {key for _, key, _ in cleaned.kept()} & {b"cold-3-%d" % i for i in range(5)}, "in the end the tombstones are removed too"


def test_the_history_survives_restarts_and_begins_again_when_it_is_lost(directory: DiskPath) -> None:
    cleaned = Cleaned(directory)
    chance = random.Random(1)
    for part in range(20):
        cleaned.segment(*[(b"cold-%d-%d" % (part, i), b"v" * 60) for i in range(40)])
    for _ in range(20):
        cleaned.look()
        cleaned.segment(*keys(chance, 40, 30, b"hot"))
    cleaned.look()
    before = cleaned.history
    assert before is not None
    assert before.lowest_end < before.clean_end
    cleaned.restart()
    assert cleaned.history == before
    cleaned.segment(*keys(chance, 40, 30, b"hot"))
    cleaned.look()
    assert cleaned.workers.jobs[-1].rewrite is not None
    file = directory / "a" / FILE_NAME
    known = cleaned.history
    assert known is not None

    def damage() -> None:
        content = bytearray(file.read_bytes())
        content[-5] ^= 1
        file.write_bytes(content)

    cleaned.restart(meanwhile=damage)
    assert cleaned.history is None
    assert cleaned.directories.cleaning.offset(T0) == known.lowest_end, "skipped segments are dirty again"
    cleaned.segment(*keys(chance, 40, 30, b"hot"))
    assert cleaned.look() > 0
    assert cleaned.workers.jobs[0].first_dirty_offset == known.lowest_end
    cleaned.clean_all()
    assert cleaned.obsolete(cleaned.log.log_end_offset) == 0


def test_the_other_strategies_and_the_other_schedule_rewrite_everything(directory: DiskPath) -> None:
    for name, overrides, config in (
        ("header", (), {"compaction_strategy": Strategy.HEADER, "compaction_strategy_header": "v"}),
        ("time", (), {"compaction_strategy": Strategy.TIMESTAMP}),
        ("kafka", ("log.cleaner.schedule=kafka",), {}),
    ):
        cleaned = Cleaned(directory / name, *overrides, **config)
        for part in range(5):
            cleaned.segment(*[(b"k-%d" % i, b"v%d" % part) for i in range(20)])
            cleaned.append((b"last", b"v"))
            cleaned.look()
        assert cleaned.workers.jobs
        assert all(job.rewrite is None for job in cleaned.workers.jobs)
        assert cleaned.history is None


def test_max_compaction_lag_rewrites_everything(directory: DiskPath) -> None:
    cleaned = Cleaned(directory, max_compaction_lag_ms=10, min_cleanable_dirty_ratio=0.9)
    for part in range(6):
        cleaned.segment(*[(b"cold-%d-%d" % (part, i), b"v" * 60) for i in range(40)])
    cleaned.look()
    cleaned.segment((b"hot", b"v"))
    cleaned.look()
    assert [job.rewrite for job in cleaned.workers.jobs] == [None] * len(cleaned.workers.jobs)


def test_why_no_pass_is_due(directory: DiskPath) -> None:
    cleaned = Cleaned(directory, min_cleanable_dirty_ratio=0.5)
    for part in range(10):
        cleaned.segment(*[(b"cold-%d-%d" % (part, i), b"v" * 60) for i in range(40)])
    cleaned.look()
    cleaned.segment((b"new", b"v"))
    assert cleaned.look() == 0
    status = cleaned.cleaning.status(T0)
    assert status is not None
    assert status.why_not_now is not None
    assert status.why_not_now.why is Why.RATIO
    assert "generational" in status.why_not_now.sentence


Action = tuple[str, int]
KINDS = ["hot", "any", "new", "deleted", "roll", "roll", "look", "look", "restart", "crash", "all"]
ACTIONS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(1, 25)), max_size=40)


@settings(max_examples=examples(25))
@given(ACTIONS, st.integers(0, 10**6), st.sampled_from([0.02, 0.1, 0.3, 0.6]))
def test_any_sequence_of_actions_passes_the_checks(actions: list[Action], seed: int, ratio: float) -> None:
    chance = random.Random(seed)
    cleaned = Cleaned(DiskPath(MemoryDisk()), min_cleanable_dirty_ratio=ratio, segment_bytes=2500)
    for number, (action, count) in enumerate(actions):
        match action:
            case "hot":
                cleaned.append(*keys(chance, count, 4, b"hot"))
            case "any":
                cleaned.append(*keys(chance, count, 60))
            case "new":
                cleaned.append(*[(b"new-%d-%d" % (number, i), b"v") for i in range(count)])
            case "deleted":
                cleaned.append(*[(key, None) for key, _ in keys(chance, count, 60)])
            case "roll":
                cleaned.log.roll(NOW)
            case "look":
                cleaned.look()
            case "restart" | "crash":
                cleaned.restart(crash=action == "crash")
            case "all":
                cleaned.clean_all()
        cleaned.check()
    cleaned.clean_all()
    assert cleaned.obsolete(cleaned.log.log_end_offset) == 0


# The history


def test_histories_are_written_and_read() -> None:
    segments = (CleanSegment(0, 10, 30, 4, 7), CleanSegment(10, 20, 20, 14, 3))
    histories = {T0: History(30, 20, 5, segments, {3: 0.25, 0: 1e-9})}
    content = format_histories(histories)
    assert parse_histories(content) == histories
    assert parse_histories(b"") == {}
    for damaged in (content[:-1], content.replace(b"30", b"31", 1), content[5:], b"\0" * 50):
        with pytest.raises(MalformedCheckpoint):
            parse_histories(damaged)


def won(base: int, before: int, obsolete: int) -> SegmentYield:
    return SegmentYield(base_offset=base, records_before=before, records_after=before - obsolete, bytes_before=before * 100,
                        bytes_after=(before - obsolete) * 100, obsolete=obsolete, deleted=0, aborted=0, invalid=0)  # fmt: skip


def group(*yields: SegmentYield) -> GroupCleaned:
    bases = tuple(one.base_offset for one in yields)
    return GroupCleaned(old_base_offsets=bases, new_base_offset=bases[0], size=1, max_timestamp=0, max_timestamp_offset=0, yields=yields)


def test_the_history_has_the_skipped_segments() -> None:
    spans = [SegmentSpan(0, 100, 10_000, 0), SegmentSpan(100, 200, 10_000, 0), SegmentSpan(200, 300, 10_000, 0)]
    known = begun(200, spans)
    assert [one.clean_end for one in known.segments] == [200, 200]
    after = after_pass(known, spans, [group(won(100, 100, 30), won(200, 100, 10))], end_offset=300, keys=80, missed_keys=0)
    assert after.segments == (CleanSegment(0, 100, 200, 50, 100), CleanSegment(100, 300, 300, (150 * 70 + 250 * 90) // 160, 160))
    assert (after.clean_end, after.lowest_end, after.whole_end, after.hidden) == (300, 200, 200, 50)
    missed = after_pass(known, spans, [group(won(100, 100, 30), won(200, 100, 10))], end_offset=300, keys=80, missed_keys=1)
    assert missed.lowest_end == 200
    assert missed.hidden == 81
    everything = after_pass(known, spans, [group(*(won(base, 100, 0) for base in (0, 100, 200)))], end_offset=300, keys=99, missed_keys=0)
    assert (everything.lowest_end, everything.whole_end, everything.hidden) == (300, 300, 0)
    full = after_pass(known, spans, [group(won(0, 100, 5), won(100, 100, 5))], end_offset=150, keys=30, missed_keys=0)
    assert (full.clean_end, full.lowest_end) == (200, 150), "the map was full before the dirty part"


def test_a_strategy_that_changes_during_a_pass_does_not_make_skipped_segments_clean() -> None:
    config = load_broker_config(parse_overrides(["log.cleaner.schedule=generational"], {}))
    known = History(1000, 1000, 0, (CleanSegment(0, 500, 100, 250, 500), CleanSegment(500, 1000, 1000, 750, 500)))
    cleaning: Any = SimpleNamespace(history=lambda _: known, offset=lambda _: 100, kept=[])
    cleaning.set_history = lambda _, history: cleaning.kept.append(history)
    directories: Any = SimpleNamespace(cleaning=cleaning)
    spans = (SegmentSpan(0, 500, 1, 0, 100), SegmentSpan(500, 1000, 1, 0, 1000), SegmentSpan(1000, 2000, 1, 0, 0))
    job: Any = SimpleNamespace(segments=spans, rewrite=(500,))
    groups = [
        GroupCleaned(old_base_offsets=(base,), new_base_offset=base, size=1, max_timestamp=0, max_timestamp_offset=0, yields=(
            SegmentYield(base_offset=base, records_before=500, records_after=500, bytes_before=1, bytes_after=1, obsolete=0, deleted=0,
                         aborted=0, invalid=0),))
        for base in (500, 1000)
    ]  # fmt: skip
    mapped = Mapped(end_offset=2000, keys=1, missed_keys=0, records=1, bytes_read=1, invalid_headers=0)
    for strategy, kept in ((Strategy.OFFSET, True), (Strategy.TIMESTAMP, False)):
        log: Any = SimpleNamespace(topic_partition=("t", 0), config=SimpleNamespace(compaction_strategy=strategy), log_start_offset=0,
                                   log_end_offset=3000, generation=0)
        assert Schedule(config, directories).pass_succeeded(log, job, mapped, groups, 2000) == 100
        assert (cleaning.kept[-1] is not None) is kept


def test_segments_that_have_changed_have_the_lowest_clean_end() -> None:
    known = History(300, 300, 0, (CleanSegment(0, 100, 250, 50, 80), CleanSegment(100, 200, 300, 150, 90)), {})
    assert known.of_all([SegmentSpan(0, 200, 1, 0)])[0].clean_end == 250
    assert known.of_all([SegmentSpan(0, 200, 1, 0)])[0].records == 170
    assert known.of_all([SegmentSpan(150, 260, 1, 0)])[0].clean_end == 250
    assert raised(known, 260).of_all([SegmentSpan(0, 100, 1, 0)])[0].clean_end == 260
    assert raised(known, 400).clean_end == 400
