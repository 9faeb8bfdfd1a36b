"""Produces keyed records, and checks what a reader finds of them after any number of passes."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

from kafka.record import MemoryRecords

from tests.support.raw import RawConnection
from tests.support.raw_log import GZIP, LZ4, NONE, SNAPPY, ZSTD, batch, fetch_request, produce
from tests.support.records import BASE_TIMESTAMP, Received, Sample
from tests.support.server import Server

CODECS = (NONE, GZIP, SNAPPY, LZ4, ZSTD)


class Keyed:
    """The records of one partition that were acknowledged, and those that may have been written: sent and not answered."""

    def __init__(self, topic: str, keys: int = 40, seed: int = 1, *, deletions: float = 0.05) -> None:
        self.topic = topic
        self.written: dict[int, Sample] = {}
        self.unanswered: list[list[Sample]] = []
        self._chance = random.Random(seed)
        self._keys = keys
        self._deletions = deletions
        self._count = 0

    @property
    def end(self) -> int:
        """One above the last acknowledged record."""
        return max(self.written, default=-1) + 1

    def send(self, connection: RawConnection, count: int = 20, codec: int | None = None) -> None:
        """Produce one batch with acks=all; ConnectionError and the like when the broker has stopped."""
        records = [self._record() for _ in range(count)]
        self.unanswered.append(records)
        answer = produce(connection, self.topic, batch(records, codec=self._chance.choice(CODECS) if codec is None else codec))
        assert answer.error_code == 0, answer
        self.unanswered.pop()
        self.written.update((answer.base_offset + index, record) for index, record in enumerate(records))

    def _record(self) -> Sample:
        self._count += 1
        key = b"key %d" % min(int(self._chance.paretovariate(0.7)), self._keys)
        deleted = self._chance.random() < self._deletions
        return Sample(key, None if deleted else b"value %d " % self._count + b"." * self._chance.randrange(80), (),
                      BASE_TIMESTAMP + self._count)  # fmt: skip

    def check(self, found: Iterable[Received], end: int, *, start: int = 0) -> dict[bytes, bytes]:
        """Check that records read from `start` to `end` were written, in order, with the latest of each key; returns key to value."""
        seen: dict[int, Received] = {}
        last, table = -1, {}
        maybe = {(one.key, one.value) for records in self.unanswered for one in records}
        for record in found:
            assert record.offset > last, f"offset {record.offset} comes after {last}"
            last = record.offset
            written = self.written.get(record.offset)
            assert (written is None and (record.key, record.value) in maybe) or (
                written is not None and (record.key, record.value) == (written.key, written.value)
            ), f"offset {record.offset} has {record}, but {written} was written there"
            seen[record.offset] = record
            assert record.key is not None
            table[record.key] = record.value
        latest = {sample.key: offset for offset, sample in sorted(self.written.items()) if offset < end}
        for key, offset in latest.items():
            if offset >= start and offset not in seen and self.written[offset].value is not None:
                later = [one.offset for one in seen.values() if one.key == key and one.offset > offset]
                assert later, f"the latest value of {key!r}, at offset {offset}, was lost"
        return {key: value for key, value in table.items() if value is not None}


def read_all(connection: RawConnection, topic: str, start: int = 0, *, bytes_max: int = 1 << 20) -> tuple[list[Received], int]:
    """All records from `start` on, and the end up to which they were read."""
    found: list[Received] = []
    offset, end = start, start + 1
    while offset < end:
        (answer,) = connection.call(fetch_request(topic, offset, bytes_max=bytes_max), 11).responses[0].partitions
        assert answer.error_code == 0, (offset, answer.error_code)
        end = answer.high_watermark
        batches = MemoryRecords(bytes(answer.records or b""))
        before = offset
        while batches.has_next():
            one = batches.next_batch()
            found += [Received(0, r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in one if r.offset >= before]
            offset = one.next_offset  # the last records of a batch may have been removed
        assert offset > before or offset == end, f"no progress from offset {offset}"
    return found, end


def cleaned_to(server: Server, topic: str, partition: int = 0, directory: Path | None = None) -> int:
    """The cleaner checkpoint of a partition; 0 without one."""
    path = (directory or server.data) / "cleaner-offset-checkpoint"
    if not path.exists():
        return 0
    lines = [line.split() for line in path.read_text().splitlines()[2:]]
    return next((int(offset) for name, number, offset in lines if (name, number) == (topic, str(partition))), 0)


def workers_of(server: Server) -> list[int]:
    """The worker processes of a broker."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                status = (process / "stat").read_text()
            except OSError:
                continue
            fields = status.rpartition(")")[2].split()
            if int(fields[1]) == server.pid and fields[0] != "Z":
                found.append(int(process.name))
    return found
