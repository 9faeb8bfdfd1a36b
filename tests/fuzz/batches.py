"""Records as a hostile producer or a damaged disk may provide them, and all functions that read records.

Reading any bytes must return records or raise a BrokerError (such as CorruptRecords), within bounds of memory.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress

from simulation.memory_disk import MemoryDisk
from tests.fuzz.frames import Pick, mutated, one_of
from tests.fuzz.frames import batches as samples
from tests.wire.record_samples import batches
from txbroker.errors import BrokerError
from txbroker.log.log import Log
from txbroker.log.log_config import LogConfig
from txbroker.log.log_results import Origin
from txbroker.names import TopicPartition
from txbroker.wire import batch, control, conversion, entries, legacy, records
from txbroker.wire.compression import Codec, compress, decompress
from txbroker.wire.records import Record

BYTES_MAX = 1 << 20  # the limit for the decompressed size of a batch
NOW_MS = 1_700_000_000_000
_OFFSET_MAX = 1 << 50
_CONFIGS = (
    LogConfig(max_message_bytes=100_000, segment_bytes=200_000),
    LogConfig(cleanup_policy=frozenset({"compact"}), compression_type=Codec.GZIP, message_timestamp_after_max_ms=1000, segment_bytes=5000),
    LogConfig(message_timestamp_log_append=True, compression_type=Codec.NONE, message_timestamp_before_max_ms=1000),
)


def some_records(pick: Pick) -> bytes:
    """Records of any format, valid or corrupted, mostly with valid checksums."""
    data = one_of(pick, samples())
    how = pick(4)
    if how:
        data = mutated(data, pick, start=0 if how == 1 else 12)
    if how == 3 and len(data) > batch.HEADER_SIZE:
        data = _with_payload(data, mutated(_payload(pick), pick), pick)
    return sealed(data) if pick(5) else data


def _payload(pick: Pick) -> bytes:
    """The records section of a batch, uncompressed."""
    return samples()[0][batch.HEADER_SIZE :] * (1 + pick(3))


def _with_payload(data: bytes, payload: bytes, pick: Pick) -> bytes:
    """A batch with this records section, compressed, and possibly corrupted after that."""
    codec = one_of(pick, tuple(Codec))
    packed = compress(codec, payload)
    if not pick(3):
        packed = mutated(packed, pick)
    header = bytearray(data[: batch.HEADER_SIZE])
    header[16] = 2
    struct.pack_into(">h", header, 21, int(codec) | pick(8) << 3)
    struct.pack_into(">i", header, 57, one_of(pick, (5, 10, 1, 0, 2**31 - 1)))
    return bytes(header) + packed


def sealed(data: bytes) -> bytes:
    """With a valid length and checksum, so that the records are read."""
    if len(data) < 18:
        return data
    made = bytearray(data)
    struct.pack_into(">i", made, 8, len(made) - 12)
    if made[16] >= 2 and len(made) >= batch.HEADER_SIZE:
        batch.seal(made, 0, len(made))
    elif made[16] < 2:
        struct.pack_into(">I", made, 12, zlib.crc32(made[16:]))
    return bytes(made)


def read_in_every_way(data: bytes) -> int:
    """Call all functions that read records; the number of records read. Raises any error other than BrokerError."""
    view = memoryview(bytearray(data))
    count = 0
    for read in (_read_batches, _read_entries, _read_legacy):
        count += _allowed(read, view)
    for convert in (_to_v2, _from_v2):
        _allowed(convert, view)
    for codec in Codec:
        for magic in (0, 2):
            _allowed(lambda of, codec=codec, magic=magic: len(_bounded(decompress(codec, of, BYTES_MAX, magic=magic))), view)  # type: ignore[misc]
    return count


def _allowed(read: Callable[[memoryview], int], view: memoryview) -> int:
    try:
        return read(view)
    except BrokerError:
        return 0


def _bounded(data: bytes) -> bytes:
    assert len(data) <= BYTES_MAX, f"{len(data)} bytes where {BYTES_MAX} were allowed"
    return data


def _read_batches(view: memoryview) -> int:
    count = 0
    for position, header in batches(view):
        batch.check_crc(view, position, header)
        found = list(records.read_records(view, position, header, BYTES_MAX))
        assert len(found) == header.count
        count += len(found)
        _check(found)
        walked = records.walk_records(view, position, header, BYTES_MAX, False)
        assert walked.content_bytes == sum(len(record.key or b"") + len(record.value or b"") for record in found)
        if header.control:
            for record in found:
                _allowed(lambda _, record=record: int(control.read_marker(record) is not None), view)  # type: ignore[misc]
        for codec in Codec:
            again = records.recompress(view, position, header, codec, BYTES_MAX)
            assert list(records.read_records(again, 0, batch.read_header(again), BYTES_MAX)) == found
    return count


def _read_entries(view: memoryview) -> int:
    count = 0
    scan = entries.Scan(view, check_crc=True)
    for position, header in scan:
        assert header.size > 0
        assert position + header.size <= len(view)
        count += _allowed(lambda of, position=position, header=header:  # type: ignore[misc]
                          sum(1 for _ in entries.read_records(of, position, header, BYTES_MAX)), view)
    assert scan.position <= len(view)
    return count


def _read_legacy(view: memoryview) -> int:
    count = 0
    for position, header in legacy.iterate(view):
        legacy.check_crc(view, position, header)
        found = list(legacy.read_records(view, position, header, BYTES_MAX))
        count += len(found)
        _check(found)
    return count


def _to_v2(view: memoryview) -> int:
    made = conversion.to_v2(view, bytes_max=BYTES_MAX)
    if made:
        header = batch.read_header(made)
        batch.check_crc(made, 0, header)
        _check(list(records.read_records(made, 0, header, BYTES_MAX)))
    return len(made)


def _from_v2(view: memoryview) -> int:
    return sum(len(conversion.from_v2(view, magic, first_offset=2, bytes_max=BYTES_MAX)) for magic in (0, 1))


def _check(found: Iterable[Record]) -> None:
    taken = 0
    for record in found:
        assert -(2**63) <= record.offset < 2**63
        assert -(2**63) <= record.timestamp < 2**63
        taken += len(record.key or b"") + len(record.value or b"")
    assert taken <= BYTES_MAX


class Logs:
    """Real logs: refused appends must change nothing, and accepted records must be readable and recoverable."""

    def __init__(self) -> None:
        self._disk = MemoryDisk()
        self._logs = [self._open(number, clean=True) for number in range(len(_CONFIGS))]

    def _open(self, number: int, *, clean: bool) -> Log:
        return Log.open(f"/log-{number}", TopicPartition("log", number), disk=self._disk, config=_CONFIGS[number],
                        now_ms=NOW_MS, clean=clean)

    def append(self, data: bytes) -> None:
        """Append as records of a producer and of a leader; AssertionError when a log is wrong afterwards."""
        for log in self._logs:
            self._append(log, lambda log=log: log.append(  # type: ignore[misc]
                memoryview(bytearray(data)), leader_epoch=0, now_ms=NOW_MS, origin=Origin.CLIENT))
            self._append(log, lambda log=log: log.append_replicated(memoryview(bytearray(data)), now_ms=NOW_MS))  # type: ignore[misc]
            self._read(log)
            if log.log_end_offset > _OFFSET_MAX:  # a leader may send any offset; at the largest offset no further append is possible
                log.truncate_fully_at(0, now_ms=NOW_MS)

    def _append(self, log: Log, append: Callable[[], object]) -> None:
        before = log.log_end_offset, log.size
        try:
            append()
        except BrokerError:
            assert (log.log_end_offset, log.size) == before, "a refused append changed the log"
        assert log.log_end_offset >= before[0]

    def _read(self, log: Log) -> None:
        """Read the last records with every look-up that decodes them."""
        start = max(log.log_start_offset, log.log_end_offset - 5)
        if start < log.log_end_offset:
            region = log.read(start, BYTES_MAX, offset_end=log.log_end_offset, whole_first_batch=True).region
            scan = entries.Scan(region.read(), check_crc=True)
            assert any(header.last_offset >= start for _, header in scan)
        with suppress(BrokerError):  # records of a leader are not validated
            log.offset_for_timestamp(NOW_MS)
        with suppress(BrokerError):
            log.offset_of_max_timestamp()

    def recover(self) -> None:
        """Open every log as after a crash; the log end offset must be the same."""
        for number, log in enumerate(self._logs):
            again = self._open(number, clean=False)
            assert again.log_end_offset == log.log_end_offset
            self._logs[number] = again
