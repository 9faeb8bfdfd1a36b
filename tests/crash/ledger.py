"""What was sent and acknowledged, and therefore what a log must contain after a crash."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from threading import Lock


class Lost(AssertionError):
    """The broker lost or changed something that it acknowledged."""


@dataclass
class Settled:
    """The result of reading one partition: records read, and how many of the unacknowledged ones are there or not."""

    checked: int = 0
    kept: int = 0
    dropped: int = 0


class PartitionLedger:
    """One partition. Every value is sent once, or again only by an idempotent producer that repeats its batch.

    An acknowledged value must stay at its offset. A value without a response may be in the log or not. The first read after the crash
    decides: a value that was read must stay, and one that was missing must not appear later, unless its producer sends it again.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.acknowledged_count = 0
        self.verified_to = 0
        self._values: dict[int, bytes] = {}  # by offset
        self._offsets: dict[bytes, int] = {}
        self._open: dict[bytes, bool] = {}  # sent, no response yet; whether its producer will send it again
        self._lock = Lock()

    def sending(self, values: Sequence[bytes], *, repeated: bool) -> None:
        """Values are about to be sent for the first time; `repeated`: the producer repeats them until there is a response."""
        with self._lock:
            for value in values:
                assert value not in self._open and value not in self._offsets, "values must differ"
                self._open[value] = repeated

    def abandoned(self, values: Iterable[bytes]) -> None:
        """The values will not be sent again: the next read decides."""
        with self._lock:
            for value in values:
                if value in self._open:
                    self._open[value] = False

    def acknowledged(self, base_offset: int, values: Sequence[bytes]) -> None:
        """The broker acknowledged the values from `base_offset` on."""
        with self._lock:
            self.acknowledged_count += len(values)
            for offset, value in enumerate(values, base_offset):
                self._put(offset, value)
                self._open.pop(value, None)

    def _put(self, offset: int, value: bytes) -> None:
        before = self._values.setdefault(offset, value)
        if before != value:
            raise Lost(f"{self.name}: offset {offset} was assigned to {short(before)} and to {short(value)}")
        where = self._offsets.setdefault(value, offset)
        if where != offset:
            raise Lost(f"{self.name}: {short(value)} is duplicated, at the offsets {where} and {offset}")

    @property
    def end(self) -> int:
        """One above the last offset that was acknowledged or read."""
        with self._lock:
            return max(self._values, default=-1) + 1

    def check(self, start: int, expected_end: int, found: Sequence[tuple[int, bytes]]) -> Settled:
        """Compare with all records from offset `start` to the log's end. Lost when a record is missing, moved, duplicated or unexpected.

        `expected_end`: the value of `end` before the read, because producers may still be running.
        """
        with self._lock:
            settled = Settled(checked=len(found))
            end = start
            for offset, value in found:
                if offset != end:
                    raise Lost(f"{self.name}: offset {offset} follows offset {end - 1}")
                end = offset + 1
                if offset in self._values:
                    self._put(offset, value)
                elif value in self._open:
                    self._put(offset, value)
                    settled.kept += 1
                else:
                    raise Lost(f"{self.name}: unexpected {short(value)} at offset {offset}{self._elsewhere(value)}")
            if end < expected_end:
                raise Lost(f"{self.name}: {expected_end - end} acknowledged records are lost: the log ends at {end}, "
                           f"and offset {end} was acknowledged for {short(self._values.get(end, b''))}")
            settled.dropped = self._settle()
            self.verified_to = end
            return settled

    def _elsewhere(self, value: bytes) -> str:
        where = self._offsets.get(value)
        return "" if where is None else f", which was acknowledged at offset {where}"

    def _settle(self) -> int:
        """Drop the values that were not read and are not sent again; how many."""
        dropped = 0
        for value, repeated in list(self._open.items()):
            if not repeated:
                del self._open[value]
                dropped += value not in self._offsets
        return dropped

    def forget_from(self, offset: int) -> int:
        """Forget the records from `offset` on, which the test destroyed; how many."""
        with self._lock:
            gone = [at for at in self._values if at >= offset]
            for at in gone:
                del self._offsets[self._values.pop(at)]
            self.verified_to = min(self.verified_to, offset)
            return len(gone)


@dataclass
class OffsetLedger:
    """One partition of one group. Committed offsets only rise: the stored one is between the last acknowledged and the last sent one."""

    answered: int = -1
    tried: int = -1

    def check(self, name: str, found: int) -> None:
        if not self.answered <= found <= self.tried:
            raise Lost(f"{name}: the committed offset is {found}; {self.answered} was the last acknowledged, {self.tried} the last sent")


@dataclass
class TopicsLedger:
    """Created topics with ids and configuration, and deleted topics. Topics whose request got no response are in neither."""

    created: dict[str, tuple[object, str]] = field(default_factory=dict)  # name -> (id, retention.ms)
    deleted: set[str] = field(default_factory=set)


def short(value: bytes) -> str:
    """The beginning of a value, which identifies it."""
    return repr(value[:40])
