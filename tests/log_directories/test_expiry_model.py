"""retention.precise compared with a list of records: out-of-order and future timestamps, batches, codecs, DeleteRecords, kills."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from simulation.memory_disk import MemoryDisk
from simulation.workers import one_by_one
from tests.log.support import rows
from tests.log_directories.support import IDENTITY, NOW, T0, DirectoryHarness
from tests.support.examples import examples
from tests.support.fakes.disk_path import DiskPath
from txbroker.errors import BrokerError, ErrorCode
from txbroker.log.log import Log
from txbroker.log.log_expiry import Expired, lag_ms
from txbroker.wire.compression import Codec
from txbroker.wire.records import Record, build

RETENTION_MS = 1000


class ExpiryMachine(RuleBasedStateMachine):
    """`model`: offset and timestamp of all records; `start`: the expected log start offset."""

    log: Log

    def __init__(self) -> None:
        super().__init__()
        self.root = DiskPath(MemoryDisk())
        self.model: list[tuple[int, int]] = []
        self.start = 0
        self.written_start = 0  # the offset in log-start-offset-checkpoint
        self.now = NOW

    @initialize(
        segment_bytes=st.integers(400, 1500),
        interval=st.sampled_from([0, 100, 4096]),
        policy=st.sampled_from([{"delete"}, {"compact", "delete"}]),
        append_time=st.booleans(),
    )
    def begin(self, segment_bytes: int, interval: int, policy: set[str], append_time: bool) -> None:
        self.append_time = append_time
        self.options = {
            "segment_bytes": segment_bytes, "index_interval_bytes": interval, "retention_ms": RETENTION_MS, "retention_precise": True,
            "cleanup_policy": frozenset(policy), "message_timestamp_log_append": append_time, "file_delete_delay_ms": 0,
        }
        self.open()
        self.log = self.broker.create(T0)

    def open(self) -> None:
        self.broker = DirectoryHarness(self.root, **self.options)
        self.broker.directories.open()
        self.broker.directories.claim(IDENTITY)
        self.broker.directories.load(self.now, one_by_one, lambda *_: None)
        self.broker.directories.start()

    @property
    def end(self) -> int:
        return len(self.model)

    @rule(
        ages=st.lists(
            st.one_of(st.integers(-2, 5), st.integers(-3000, 3000), st.sampled_from([-1000, 998, 999, 1000, 1001])), min_size=1, max_size=5
        ),
        codec=st.sampled_from(list(Codec)),
    )
    def append(self, ages: list[int], codec: Codec) -> None:
        self.now += 1
        records = [Record(index, self.now - age, b"k", bytes(20)) for index, age in enumerate(ages)]
        data = memoryview(bytearray(build(records, codec=codec)))
        assert self.log.append(data, leader_epoch=0, now_ms=self.now).first_offset == self.end
        self.model += [(self.end + index, self.now if self.append_time else self.now - age) for index, age in enumerate(ages)]

    @rule(ms=st.sampled_from([1, 7, 500, 1001, 5000]))
    def wait(self, ms: int) -> None:
        self.now += ms

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now)

    @rule(behind=st.sampled_from([0, 0, 0, 1, 4]))
    def expire(self, behind: int) -> None:
        high_watermark = max(self.start, self.end - behind)
        reported: list[Expired | None] = []
        size = self.log.size
        self.broker.directories.expire(T0, self.now, high_watermark, reported.append)
        self.broker.worker.run()
        kept = [offset for offset, timestamp in self.model[self.start :] if self.now - timestamp <= RETENTION_MS]
        expected = max(self.start, min(kept[0] if kept else self.end, high_watermark))
        expired, = reported
        assert expired is not None
        assert (expired.records, expired.log_start_offset) == (expected - self.start, expected)
        assert expired.bytes == size - self.log.size >= 0
        self.start = expected
        if expected < high_watermark:
            # Only whole segments are deleted: the start is within the first segment, or at the next one.
            bases = [segment.base_offset for segment in self.log.segments]
            assert bases[0] <= expected and (len(bases) == 1 or bases[1] > expected)
            assert lag_ms(self.log, self.now) == 0
            assert lag_ms(self.log, self.model[expected][1] + RETENTION_MS + 77) == 77

    @rule(forward=st.integers(0, 9))
    def delete_records(self, forward: int) -> None:
        target = min(self.end, self.start + forward)
        assert self.log.advance_start(target) == (target > self.start)
        self.start = target

    @rule()
    def checkpoint(self) -> None:
        self.broker.directories.checkpoints.write_log_start_offsets()
        self.broker.worker.run()
        self.written_start = self.start

    @rule()
    def restart(self) -> None:
        self.broker.directories.close(one_by_one)
        self.written_start = self.start
        self.open()
        self.found()

    @rule()
    def kill(self) -> None:
        """The process is killed: the log starts at the checkpointed offset, or where its files start."""
        first = self.log.segments[0].base_offset
        self.broker.crash()
        self.open()
        self.start = max(self.written_start, first)
        self.found()

    def found(self) -> None:
        log = self.broker.directories.get(T0)
        assert log is not None
        self.log = log

    @precondition(lambda self: self.start > 0)
    @rule()
    def what_is_below_the_start_is_out_of_range(self) -> None:
        try:
            self.log.read(self.start - 1, 1000, offset_end=self.end)
        except BrokerError as error:
            assert error.code is ErrorCode.OFFSET_OUT_OF_RANGE
        else:
            raise AssertionError("it can be read")

    @invariant()
    def all_from_the_start_on_can_be_read(self) -> None:
        if hasattr(self, "log"):
            assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)
            assert [row[:2] for row in rows(self.log)] == self.model[self.start :]


TestExpiry = ExpiryMachine.TestCase
TestExpiry.settings = settings(max_examples=examples(40), stateful_step_count=30)
