"""What was sent, what was acknowledged, and what a log must therefore hold after a crash."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from threading import Lock


class Lost(AssertionError):
    """The broker broke a promise; the sentence says which."""


@dataclass
class Settled:
    """What a reading of one partition found out about records that were sent and never answered."""

    checked: int = 0
    kept: int = 0
    dropped: int = 0


class PartitionLedger:
    """One partition: every value was sent once, or again only by an idempotent producer that repeats its batch.

    An acknowledged value must stay at its offset. A value without an answer may be there or not, but is settled by the first
    reading after the crash: what was read once stays, and what was not there never comes, unless its producer sends it again.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.acknowledged_count = 0
        self.verified_to = 0
        self._values: dict[int, bytes] = {}  # by offset
        self._offsets: dict[bytes, int] = {}
        self._open: dict[bytes, bool] = {}  # sent and not answered; whether its producer will send it again
        self._lock = Lock()

    def sending(self, values: Sequence[bytes], *, repeated: bool) -> None:
        """About to be sent for the first time; `repeated`: until there is an answer."""
        with self._lock:
            for value in values:
                assert value not in self._open and value not in self._offsets, "values must differ"
                self._open[value] = repeated

    def given_up(self, values: Iterable[bytes]) -> None:
        """They will not be sent again: the next reading settles them."""
        with self._lock:
            for value in values:
                if value in self._open:
                    self._open[value] = False

    def acknowledged(self, base_offset: int, values: Sequence[bytes]) -> None:
        """The broker answered: they are at `base_offset` and after it."""
        with self._lock:
            self.acknowledged_count += len(values)
            for offset, value in enumerate(values, base_offset):
                self._put(offset, value)
                self._open.pop(value, None)

    def _put(self, offset: int, value: bytes) -> None:
        before = self._values.setdefault(offset, value)
        if before != value:
            raise Lost(f"{self.name}: offset {offset} was given to {short(before)} and to {short(value)}")
        where = self._offsets.setdefault(value, offset)
        if where != offset:
            raise Lost(f"{self.name}: {short(value)} is at offset {where} and at {offset}: a duplicate")

    @property
    def end(self) -> int:
        """One above the last offset that was acknowledged or read."""
        with self._lock:
            return max(self._values, default=-1) + 1

    def check(self, start: int, expected_end: int, found: Sequence[tuple[int, bytes]]) -> Settled:
        """Compare with all records from offset `start` to the log's end. Lost when anything is missing, moved, doubled or invented.

        `expected_end`: what `end` was before they were read; somebody may still be producing.
        """
        with self._lock:
            settled = Settled(checked=len(found))
            end = start
            for offset, value in found:
                if offset != end:
                    raise Lost(f"{self.name}: offset {offset} follows on {end - 1}")
                end = offset + 1
                if offset in self._values:
                    self._put(offset, value)
                elif value in self._open:
                    self._put(offset, value)
                    settled.kept += 1
                else:
                    raise Lost(f"{self.name}: nobody expects {short(value)} at offset {offset}{self._elsewhere(value)}")
            if end < expected_end:
                raise Lost(f"{self.name}: {expected_end - end} acknowledged records are lost: the log ends at {end}, "
                           f"and offset {end} was acknowledged for {short(self._values.get(end, b''))}")
            settled.dropped = self._settle()
            self.verified_to = end
            return settled

    def _elsewhere(self, value: bytes) -> str:
        where = self._offsets.get(value)
        return "" if where is None else f": it was acknowledged at {where}"

    def _settle(self) -> int:
        """What was not read and is not sent again can never come; how many."""
        dropped = 0
        for value, repeated in list(self._open.items()):
            if not repeated:
                del self._open[value]
                dropped += value not in self._offsets
        return dropped

    def forget_from(self, offset: int) -> int:
        """The records from `offset` on were destroyed on purpose; how many."""
        with self._lock:
            gone = [at for at in self._values if at >= offset]
            for at in gone:
                del self._offsets[self._values.pop(at)]
            self.verified_to = min(self.verified_to, offset)
            return len(gone)


@dataclass
class OffsetLedger:
    """One partition of one group: committed offsets only rise here, so what is there lies between what was answered and what was tried."""

    answered: int = -1
    tried: int = -1

    def check(self, name: str, found: int) -> None:
        if not self.answered <= found <= self.tried:
            raise Lost(f"{name}: the committed offset is {found}; {self.answered} was answered, {self.tried} was the last tried")


@dataclass
class TopicsLedger:
    """Topics that were created, with ids and configuration, and deleted ones; those without an answer are in neither."""

    created: dict[str, tuple[object, str]] = field(default_factory=dict)  # name -> (id, retention.ms)
    deleted: set[str] = field(default_factory=set)


def short(value: bytes) -> str:
    """The beginning of a value, which says what it is."""
    return repr(value[:40])
