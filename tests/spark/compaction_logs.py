"""A data directory with compacted partitions, which the test's own writer and the real cleaner change between two snapshots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.cleaner.logs import NOW, RETENTION, LogMaker, run, swap
from tests.support.fakes.unsynced_disk import UnsyncedDisk
from txbroker.log.cleaner.cleaning_job import Done, SegmentSpan
from txbroker.log.segment import Segment
from txbroker.wire.batch import read_header, stamp
from txbroker.wire.entries import Scan, read_records
from txbroker.wire.records import Record, build

TOPIC = "t"
CONFIGS = {"delete.retention.ms": str(RETENTION)}
CLEAN_END = 13  # of the logs of `usual`
PLENTY = 10**9


def usual() -> LogMaker:
    """Keys k0 to k4 twice, then k0 again, the tombstone of k1 and k2 again; the active segment begins at CLEAN_END."""
    log = LogMaker()
    for first in (0, 5):
        log.data([(b"k%d" % (i % 5), b"v%d" % i, NOW - 9000 + i) for i in range(first, first + 5)])
    log.roll()
    log.data([(b"k0", b"v10", NOW - 8000), (b"k1", None, NOW - 7999), (b"k2", b"v12", NOW - 7998)])
    log.roll()
    log.data([(b"k3", b"v13", NOW - 7000), (b"k5", b"v14", NOW - 6999), (b"k0", b"v15", NOW - 6998)])
    return log


class Directory:
    """One of log.dirs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        (path / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=cluster\n")
        (path / ".kafka_cleanshutdown").write_text("")
        self._clean_ends: dict[int, int] = {}

    def partition(self, number: int) -> Path:
        return self.path / f"{TOPIC}-{number}"

    def write(self, number: int, log: LogMaker) -> None:
        """A partition."""
        log.write(self.partition(number))
        (self.partition(number) / "leader-epoch-checkpoint").write_text("0\n1\n7 0\n")

    def clean(self, number: int, log: LogMaker, end: int = CLEAN_END, *, make_map: Any = None, **changes: Any) -> None:
        """A pass of the real cleaner over a log that has been written, up to `end`."""
        directory = self.partition(number)
        job = log.job(directory, first_uncleanable_offset=end, **changes)
        sizes = {int(path.stem): path.stat().st_size for path in sorted(directory.glob("*.log"))}
        spans = [SegmentSpan(base, following, sizes[base], NOW) for base, following in pairwise([*sizes, log.next_offset]) if base < end]
        result = run(replace(job, segments=tuple(spans)), **({} if make_map is None else {"make_map": make_map}))
        assert isinstance(result.end, Done), result.end
        swap(directory, result)
        self._clean_ends[number] = max(end, self._clean_ends.get(number, 0))
        self.checkpoint("cleaner-offset-checkpoint", self._clean_ends)

    def checkpoint(self, name: str, offsets: dict[int, int]) -> None:
        """A checkpoint file with offsets by partition."""
        lines = [f"{TOPIC} {number} {offset}\n" for number, offset in sorted(offsets.items())]
        (self.path / name).write_text(f"0\n{len(lines)}\n{''.join(lines)}")

    def edit(self, number: int, edit: Callable[[list[Record]], list[Record]], *, only: str = "*.log") -> None:
        """Write the records of each segment again after `edit`: whole batches, new indexes, no faults but those of `edit`."""
        directory = self.partition(number)
        for path in sorted(directory.glob(only)):
            content = path.read_bytes()
            batches = []
            for at, header in Scan(content):
                records = edit(list(read_records(content, at, header, PLENTY)))
                if records:
                    made = bytearray(build(records))
                    stamp(made, 0, records[0].offset, 7)
                    batches.append(bytes(made))
            path.write_bytes(b"".join(batches))
            index_again(directory, int(path.stem))


def index_again(directory: Path, base: int) -> None:
    """Make the indexes of a segment from its log."""
    for suffix in ("index", "timeindex"):
        (directory / f"{base:020d}.{suffix}").unlink(missing_ok=True)
    path = directory / f"{base:020d}.log"
    segment = Segment(UnsyncedDisk(), str(directory), base, size=path.stat().st_size, created_ms=NOW, index_interval_bytes=200)
    segment.begin_indexes()
    for position, _, _, header in segment.walk(0):
        segment.note(position, header.size, header.last_offset, header.max_timestamp)
    segment.seal()


def without(*offsets: int) -> Callable[[list[Record]], list[Record]]:
    """An edit that removes records."""
    return lambda records: [one for one in records if one.offset not in offsets]


def with_value(offset: int, value: bytes | None) -> Callable[[list[Record]], list[Record]]:
    """An edit that changes a value."""
    return lambda records: [one._replace(value=value) if one.offset == offset else one for one in records]


def moved(places: dict[int, int], originals: dict[int, Record]) -> Callable[[list[Record]], list[Record]]:
    """An edit that puts the content of other records at some offsets."""
    return lambda records: [originals[places[one.offset]]._replace(offset=one.offset) if one.offset in places else one for one in records]


def flip(path: Path, offset: int) -> int:
    """Change a byte of the batch that holds an offset; its position."""
    content = bytearray(path.read_bytes())
    at = next(at for at, header in Scan(bytes(content)) if header.last_offset >= offset)
    content[at + read_header(bytes(content), at).size - 1] ^= 1
    path.write_bytes(content)
    return at
