"""The log compared with a list of records, under all operations, kills and power cuts."""

from __future__ import annotations

import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from simulation.memory_disk import MemoryDisk
from tests.log.support import NOW, Row, append, open_log, rows
from tests.support.examples import examples
from tests.support.fakes.disk_path import DiskPath
from txbroker.log.log import Log
from txbroker.wire.compression import Codec


class LogMachine(RuleBasedStateMachine):
    """`model`: all records from the log start offset on. `sequence`, `sent`: the state of an idempotent producer."""

    log: Log

    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryDisk()
        self.directory = DiskPath(self.disk, "/data").made()
        self.disk.sync("/")
        self.model: list[Row] = []
        self.start = 0
        self.end = 0
        self.now = NOW
        self.sequence = 0
        self.sent: list[tuple[int, int, int]] = []  # sequence, count, first offset of acknowledged batches of the producer

    @initialize(segment_bytes=st.integers(350, 900), interval=st.sampled_from([0, 100, 4096]))
    def begin(self, segment_bytes: int, interval: int) -> None:
        self.options = {"segment_bytes": segment_bytes, "index_interval_bytes": interval, "retention_ms": -1, "file_delete_delay_ms": 0}
        self.log = open_log(self.directory / "log", **self.options)

    def reopen(self, *, clean: bool, recovery_point: int = 0) -> None:
        self.log = open_log(
            self.directory / "log",
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=self.start,
            now_ms=self.now,
            **self.options,
        )

    @rule(sizes=st.lists(st.integers(0, 40), min_size=1, max_size=4), step_ms=st.integers(-3, 3), codec=st.sampled_from(list(Codec)))
    def append(self, sizes: list[int], step_ms: int, codec: Codec) -> None:
        content = [bytes([65 + size % 26]) * size for size in sizes]
        self.now += 1
        found = append(self.log, *content, timestamp=self.now, step_ms=step_ms, codec=codec, now_ms=self.now)
        assert found.first_offset == self.end
        self.remember(content, step_ms)

    def remember(self, content: list[bytes], step_ms: int) -> None:
        self.model += [(self.end + index, self.now + index * step_ms, b"k", value) for index, value in enumerate(content)]
        self.end += len(content)

    @rule(count=st.integers(1, 3))
    def produce(self, count: int) -> None:
        content = [b"idempotent"] * count
        self.now += 1
        options = {"producer_id": 77, "producer_epoch": 0, "base_sequence": self.sequence, "timestamp": self.now}
        found = append(self.log, *content, now_ms=self.now, **options)  # type: ignore[arg-type]
        assert (found.first_offset, found.duplicate) == (self.end, False)
        self.sent.append((self.sequence, count, self.end))
        self.sequence += count
        self.remember(content, 0)

    @precondition(lambda self: self.sent and self.sent[-1][2] >= self.start)
    @rule()
    def produce_again(self) -> None:
        """A producer that got no response sends its last batch again."""
        sequence, count, offset = self.sent[-1]
        found = append(self.log, *([b"idempotent"] * count), producer_id=77, producer_epoch=0, base_sequence=sequence)
        assert (found.duplicate, found.first_offset, found.last_offset) == (True, offset, offset + count - 1)

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now)

    @rule(back=st.integers(0, 12))
    def truncate(self, back: int) -> None:
        target = max(self.start, self.end - back)
        cut = self.log.truncate_to(target)
        assert cut == (target < self.end)
        self.lose(self.log.log_end_offset)
        assert self.end <= target

    def lose(self, end: int) -> None:
        """All records from `end` on are lost."""
        self.end = end
        self.start = min(self.start, end)
        self.model = [row for row in self.model if row[0] < end]
        self.sent = [batch for batch in self.sent if batch[2] + batch[1] <= end]
        self.sequence = self.sent[-1][0] + self.sent[-1][1] if self.sent else 0

    @rule(forward=st.integers(0, 9))
    def delete_records(self, forward: int) -> None:
        target = min(self.end, self.start + forward)
        self.log.advance_start(target)
        self.forget(target)

    def forget(self, start: int) -> None:
        self.start = start
        self.model = [row for row in self.model if row[0] >= start]

    @rule(retention_bytes=st.integers(0, 3000), behind=st.integers(0, 4))
    def delete_expired(self, retention_bytes: int, behind: int) -> None:
        config = self.log.config
        self.log.reconfigure(open_log(self.directory / "x", retention_ms=-1, retention_bytes=retention_bytes).config)
        high_watermark = max(self.start, self.end - behind)
        self.log.delete_expired(self.now, high_watermark)
        self.log.reconfigure(config)
        assert self.start <= self.log.log_start_offset <= max(self.start, high_watermark)
        self.forget(self.log.log_start_offset)

    @rule()
    def flush(self) -> None:
        self.log.flush()
        assert self.log.recovery_point == self.end

    @rule()
    def restart(self) -> None:
        self.log.close()
        self.reopen(clean=True)

    @rule(point=st.integers(0, 30))
    def kill(self, point: int) -> None:
        """The process is killed; the page cache is kept, so nothing is lost."""
        self.reopen(clean=False, recovery_point=min(point, self.log.recovery_point))

    @rule(seed=st.integers(0, 2**32))
    def lose_power(self, seed: int) -> None:
        """A power cut: the end of each file that was not synced may be lost."""
        durable = self.log.recovery_point
        chance = random.Random(seed)
        self.disk.power_cut(chance)
        self.reopen(clean=False, recovery_point=chance.choice([durable, 0]))
        assert durable <= self.log.log_end_offset <= self.end
        self.lose(self.log.log_end_offset)

    @rule(back=st.integers(0, 40), bytes_max=st.integers(1, 600))
    def read(self, back: int, bytes_max: int) -> None:
        start = max(self.start, self.end - back)
        assert rows(self.log, start, bytes_max=bytes_max) == [row for row in self.model if row[0] >= start]

    @rule(back=st.integers(0, 15))
    def look_up(self, back: int) -> None:
        timestamp = self.now - back
        expected = next(((row[1], row[0]) for row in self.model if row[1] >= timestamp), None)
        found = self.log.offset_for_timestamp(timestamp)
        assert (found and found[:2]) == expected

    @invariant()
    def ends_agree(self) -> None:
        if hasattr(self, "log"):
            assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)
            assert self.log.recovery_point <= self.end
            assert self.log.size == sum(path.size() for path in (self.directory / "log").glob("*.log"))


TestLog = LogMachine.TestCase
TestLog.settings = settings(max_examples=examples(40), stateful_step_count=30)
