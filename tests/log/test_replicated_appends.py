"""What a follower appends: several batches at once leave the same files, and the same log, as the same batches one by one."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from simulation.memory_disk import MemoryDisk
from tests.log.support import NOW, batch, names, open_log, rows
from tests.support.examples import examples
from tests.support.fakes.disk_path import DiskPath
from txbroker.log.log import Log

# Of a batch: the gap before it, the sizes of its values, how far its timestamp is from NOW, and its leader epoch's distance.
Wanted = Sequence[tuple[int, Sequence[int], int, int]]
BATCHES = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 0, 1, 40]),
        st.lists(st.integers(0, 60), min_size=1, max_size=3),
        st.integers(-50, 50),
        st.sampled_from([0, 0, 0, 1]),
    ),
    min_size=1,
    max_size=12,
)


def leaders_batches(wanted: Wanted) -> list[bytes]:
    made, offset, epoch = [], 0, 0
    for gap, sizes, late_ms, newer in wanted:
        offset, epoch = offset + gap, epoch + newer
        contents = [bytes([65 + size]) * size for size in sizes]
        made.append(bytes(batch(*contents, timestamp=NOW + late_ms, base_offset=offset, leader_epoch=epoch)))
        offset += len(sizes)
    return made


def followers_log(**options: int) -> tuple[Log, DiskPath]:
    path = DiskPath(MemoryDisk(), "/data").made() / "log"
    return open_log(path, retention_ms=-1, **options), path


def replicate(log: Log, *batches: bytes) -> None:
    log.append_replicated(memoryview(b"".join(batches)), now_ms=NOW)


def seen(log: Log) -> object:
    """What readers, retention, and rolls by time see of a log."""
    segments = [(each.base_offset, each.size, each.max_timestamp, each.first_timestamp) for each in log.segments]
    end = log.log_end_offset
    reads = [log.read(offset, 1, offset_end=end, whole_first_batch=True).region.read() for offset in range(end)]
    times = [log.offset_for_timestamp(NOW + late_ms) for late_ms in range(-51, 52, 7)]
    return segments, reads, times, rows(log), end, log.leader_epochs.latest


def files(path: DiskPath) -> dict[str, bytes]:
    return {name: (path / name).read_bytes() for name in names(path)}


@settings(max_examples=examples(60))
@given(BATCHES, BATCHES, st.sampled_from([300, 700, 100_000]), st.sampled_from([0, 100, 250, 4096]))
def test_together_as_one_by_one(first: Wanted, more: Wanted, segment_bytes: int, interval: int) -> None:
    batches = leaders_batches([*first, *more])
    (together, of_together), (single, of_single) = (
        followers_log(segment_bytes=segment_bytes, index_interval_bytes=interval) for _ in range(2)
    )
    replicate(together, *batches[: len(first)])
    replicate(together, *batches[len(first) :])
    for each in batches:
        replicate(single, each)
    assert seen(together) == seen(single)
    for log in (together, single):
        log.close()
    assert files(of_together) == files(of_single)
