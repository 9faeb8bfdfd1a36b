"""Producer snapshots: the state of a partition's producers at an offset, so that a start need not read all of the log.

The file `<offset>.snapshot` has, big-endian: version int16 (1) | CRC-32C uint32 of what follows | ProducerSnapshot's entries
(`wire/messages/producer_snapshot.py`). It has only the last batch of each producer. A snapshot is written at every roll and at a clean
close. It is deleted with the segment of the same base offset; others are removed at the next start (Kafka's ProducerStateManager).
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Collection, Iterable
from functools import partial

from txbroker.errors import CorruptRecords, ProtocolError, StorageError
from txbroker.log.disk import Disk
from txbroker.log.file_names import SNAPSHOT, file_path
from txbroker.log.log_results import Later
from txbroker.log.producers import NO_SEQUENCE, SEQUENCE_MAX, ProducerBatch, ProducerState, ProducerStates
from txbroker.wire.codec import decode, encode_bytes
from txbroker.wire.messages.producer_snapshot import ProducerEntry, ProducerSnapshot

logger = logging.getLogger("txbroker.log")

VERSION = 1
SLICE = 500  # producers, encoded in 2 ms
_START = struct.Struct(">hI")
_COUNT = struct.Struct(">i")


def _crc32c(data: bytes) -> int:
    import crc32c  # on first use, as in wire/batch.py

    value: int = crc32c.crc32c(data)
    return value


def format_snapshot(states: Iterable[ProducerState]) -> bytes:
    """The content of a snapshot file."""
    known = list(states)
    return _file_content(len(known), _encode(known))


def _file_content(count: int, entries: bytes | bytearray) -> bytes:
    body = _COUNT.pack(count) + entries
    return _START.pack(VERSION, _crc32c(body)) + body


def _encode(states: Iterable[ProducerState]) -> bytes:
    """The entries of these producers, without their count."""
    entries = [
        ProducerEntry(
            producer_id=state.producer_id,
            epoch=state.epoch,
            last_sequence=state.last_sequence,
            last_offset=state.last_offset,
            offset_delta=state.batches[-1].last_offset - state.batches[-1].first_offset if state.batches else 0,
            timestamp=state.last_timestamp,
            coordinator_epoch=state.coordinator_epoch,
            current_txn_first_offset=state.txn_first_offset,
        )
        for state in states
    ]
    return encode_bytes(ProducerSnapshot(crc=0, producer_entries=entries), VERSION)[_START.size - 2 + _COUNT.size :]


class SlicedSnapshot:
    """A snapshot of many producers, encoded a slice at a time: each is encoded as it was when this began (`producers.Capture`)."""

    def __init__(self, states: ProducerStates) -> None:
        self._left = states.states()
        self._count = len(self._left)
        self._entries = bytearray()

    def changes(self, state: ProducerState) -> None:
        """`state` is about to change: it is encoded now."""
        if self._left.pop(state.producer_id, None) is not None:
            self._entries += _encode([state])

    def advance(self) -> bool:
        """Encode the next slice; whether there are more."""
        left = self._left
        self._entries += _encode([left.popitem()[1] for _ in range(min(len(left), SLICE))])
        return bool(left)

    def content(self) -> bytes:
        """The content of the snapshot file, once `advance` has returned False."""
        return _file_content(self._count, self._entries)


def parse_snapshot(content: bytes) -> list[ProducerState]:
    """The producers of a snapshot file; CorruptRecords when it is malformed."""
    if len(content) < _START.size:
        raise CorruptRecords(f"a producer snapshot has {len(content)} bytes")
    version, crc = _START.unpack_from(content)
    if version != VERSION:
        raise CorruptRecords(f"a producer snapshot has version {version}")
    if _crc32c(content[_START.size :]) != crc:
        raise CorruptRecords("a producer snapshot has a wrong CRC")
    try:
        return [_state(entry) for entry in decode(ProducerSnapshot, VERSION, content[2:]).producer_entries]
    except ProtocolError as error:
        raise CorruptRecords(f"a producer snapshot cannot be decoded: {error}") from None


def _state(entry: ProducerEntry) -> ProducerState:
    state = ProducerState(entry.producer_id)
    state.from_snapshot = True
    state.epoch = entry.epoch
    state.last_timestamp = entry.timestamp
    state.coordinator_epoch = entry.coordinator_epoch
    state.txn_first_offset = entry.current_txn_first_offset
    if entry.last_offset >= 0:
        last_sequence, delta = entry.last_sequence, entry.offset_delta
        first_sequence = (last_sequence - delta) & SEQUENCE_MAX if last_sequence != NO_SEQUENCE else NO_SEQUENCE
        state.add(ProducerBatch(first_sequence, last_sequence, entry.last_offset - delta, entry.last_offset, entry.timestamp))
    state.run = 0  # a marker may have come after it
    return state


class Snapshots:
    """The snapshot files of one partition."""

    __slots__ = ("_disk", "directory", "offsets")

    def __init__(self, disk: Disk, directory: str, offsets: Iterable[int]) -> None:
        """`offsets`: of the files that exist."""
        self._disk = disk
        self.directory = directory
        self.offsets = sorted(offsets)

    def path(self, offset: int) -> str:
        return file_path(self.directory, offset, SNAPSHOT)

    def take(self, states: ProducerStates, offset: int) -> bool:
        """Write the state of all producers at `offset`, not synced; False when the file exists."""
        if offset in self.offsets:
            return False
        self._disk.write(self.path(offset), format_snapshot(states))
        self.written(offset)
        return True

    def take_in_slices(self, states: ProducerStates, offset: int, later: Later, done: Callable[[], None]) -> None:
        """As `take`, without encoding many producers at once; `done` is called when the file is written, unless that is cancelled.

        While one snapshot is being encoded, no other is begun; without it a recovery replays more of the log.
        """
        if offset in self.offsets or states.capture is not None:
            return
        capture = states.capture = SlicedSnapshot(states)

        def step() -> None:
            if states.capture is not capture:
                return  # cancelled: the log was truncated or closed
            if capture.advance():
                later(0, _nothing, step)
                return
            content, path = capture.content(), self.path(offset)
            later(0, partial(self._write_unless_gone, path, content), partial(finish, path))

        def finish(path: str) -> None:
            if states.capture is not capture:
                if offset not in self.offsets:  # a close at the same offset has written the file itself
                    later(0, partial(self._disk.remove, path))
                return
            states.capture = None
            if self._disk.size(self.path(offset)) is not None:  # it is missing if the directory was renamed before the write
                self.written(offset)
                done()

        later(0, _nothing, step)

    def _write_unless_gone(self, path: str, content: bytes) -> None:
        """In a worker. The directory may have been renamed, because the log was deleted or moved."""
        try:
            self._disk.write(path, content)
        except StorageError:
            if self._disk.is_directory(path.rpartition("/")[0]):
                raise

    def written(self, offset: int) -> None:
        """The file of `offset` exists now."""
        self.offsets = sorted({*self.offsets, offset})

    def load(self, states: ProducerStates, low: int, high: int, now_ms: int | None) -> int:
        """Fill `states` from the latest valid snapshot in [low, high]; returns its offset, or `low` without one.

        With `now_ms` None no producer expires.
        """
        states.clear()
        for offset in reversed([offset for offset in self.offsets if low <= offset <= high]):
            content = self._disk.read(self.path(offset))
            try:
                found = parse_snapshot(content or b"")
            except CorruptRecords as error:
                logger.warning("%s: %s; using an older snapshot and the record batches after it", self.path(offset), error.message)
                self.remove(offset)
                continue
            for state in found:
                states.restore(state, now_ms)
            return offset
        return low

    def keep_only(self, wanted: Callable[[int], bool]) -> None:
        """Remove the files of all other offsets."""
        for offset in [offset for offset in self.offsets if not wanted(offset)]:
            self.remove(offset)

    def remove_stray(self, base_offsets: Collection[int], lost: Collection[int]) -> None:
        """Remove snapshots without a segment, except the latest if it is above all segments, which a clean close wrote.

        Those of `lost` segments stay, because they show that there was one.
        """
        keep = self.offsets[-1] if self.offsets and self.offsets[-1] > max(base_offsets) else None
        bases = {*base_offsets, *lost}
        self.keep_only(lambda offset: offset in bases or offset == keep)

    def discard(self, offset: int) -> None:
        """Remove the file of an offset, if there is one."""
        if offset in self.offsets:
            self.remove(offset)

    def remove(self, offset: int) -> None:
        self.offsets.remove(offset)
        self._disk.remove(self.path(offset))

    def forget(self, offsets: Iterable[int]) -> None:
        """These files were marked as deleted, with their segments."""
        gone = set(offsets)
        self.offsets = [offset for offset in self.offsets if offset not in gone]


def _nothing() -> None:
    """No work: the next slice follows in another turn of the reactor."""
