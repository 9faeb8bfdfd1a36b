"""Which leader epoch began at which offset: the file leader-epoch-checkpoint (Kafka's LeaderEpochFileCache, KIP-101, KIP-279).

The file is a checkpoint (see `checkpoints.py`) of lines `epoch start-offset`, ascending in both. It is replaced at once
but not synced here: batches have their epoch too, recovery reads it from those that were not flushed, and a flush syncs the
file.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress

from txbroker.errors import BrokerError, OutOfResources
from txbroker.log.checkpoints import MalformedCheckpoint, format_lines, number, parse_lines
from txbroker.log.disk import Disk
from txbroker.log.file_names import LEADER_EPOCHS
from txbroker.log.log_results import EpochEnd

logger = logging.getLogger("txbroker.log")

NO_EPOCH = -1
NOT_WRITTEN = -2
_EPOCH_MAX = 2**31 - 1
_OFFSET_MAX = 2**63 - 1


def parse_epochs(content: bytes) -> list[tuple[int, int]]:
    """The (epoch, start offset) pairs of a file; MalformedCheckpoint when it cannot be one."""
    found: list[tuple[int, int]] = []
    for epoch_text, start_text in parse_lines(content, 2):
        epoch, start = number(epoch_text, 0, _EPOCH_MAX), number(start_text, 0, _OFFSET_MAX)
        if found and (epoch <= found[-1][0] or start < found[-1][1]):
            raise MalformedCheckpoint(f"epoch {epoch} from offset {start} on does not follow the line before it")
        found.append((epoch, start))
    return found


class LeaderEpochs:
    """Epochs with their start offsets, ascending in both."""

    __slots__ = ("_disk", "_epochs", "_path", "_starts", "exists", "intact", "unsynced", "written")

    def __init__(self, disk: Disk, directory: str) -> None:
        """`intact` is False when there was a file and it was empty or damaged: the epochs must then be read from the batches.

        `exists`: there was a file. `unsynced`: the file was replaced and no flush plan includes it yet. `written`: the last epoch in the
        file, -1 for none; `latest` may be newer, but then no batch has it. NOT_WRITTEN: the disk was full when epochs were removed,
        and the file still has them.
        """
        self._disk = disk
        self._path = f"{directory}/{LEADER_EPOCHS}"
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.intact = True
        self.unsynced = False
        content = disk.read(self._path)
        self.exists = content is not None
        if content == b"":  # Kafka creates it so for an empty log; after a loss of power it may have had entries
            self.intact = False
        elif content is not None:
            try:
                self._parse(content)
            except MalformedCheckpoint as error:
                logger.warning("%s: %s; reading leader epochs from the record batches", self._path, error)
                self._epochs, self._starts = [], []
                self.intact = False
        self.written = self.latest

    def _parse(self, content: bytes) -> None:
        for epoch, start in parse_epochs(content):
            self._epochs.append(epoch)
            self._starts.append(start)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(list(zip(self._epochs, self._starts, strict=True)))

    def __len__(self) -> int:
        return len(self._epochs)

    @property
    def path(self) -> str:
        """The checkpoint file."""
        return self._path

    @property
    def latest(self) -> int:
        """The last epoch; -1 when none is known."""
        return self._epochs[-1] if self._epochs else NO_EPOCH

    def epoch_of(self, offset: int) -> int:
        """The epoch in which the record at `offset` was appended; -1 when that is not known."""
        at = bisect_right(self._starts, offset) - 1
        return self._epochs[at] if at >= 0 else NO_EPOCH

    def assign(self, epoch: int, start: int) -> None:
        """`epoch` begins at `start`; entries that contradict this are removed. Nothing has changed when the file cannot be written."""
        before = self._epochs[:], self._starts[:]
        if self.note(epoch, start) or self.written != self.latest:
            try:
                self.write()
            except BrokerError:
                self._epochs, self._starts = before
                raise

    def note(self, epoch: int, start: int) -> bool:
        """As `assign`, but in memory until the next write of the file. Whether anything changed."""
        if epoch < 0 or (self._epochs and epoch == self._epochs[-1] and start >= self._starts[-1]):
            return False
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start)
        return True

    def correct(self, epoch: int, offset: int) -> bool:
        """A batch at `offset` has `epoch`: entries that contradict this are removed. As `note`, in memory."""
        if epoch < 0 or self.epoch_of(offset) == epoch:
            return False
        while self._starts and self._starts[-1] >= offset:
            self._starts.pop()
            self._epochs.pop()
        if self.latest < epoch:
            self.note(epoch, offset)
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """The largest known epoch not above `epoch`, and where it ends; (-1, -1) for an epoch above all known ones.

        An epoch before all known ones ends where the first one begins.
        """
        if epoch == NO_EPOCH or not self._epochs or epoch > self._epochs[-1]:
            return EpochEnd(-1, -1)
        if epoch == self._epochs[-1]:
            return EpochEnd(epoch, log_end_offset)
        at = bisect_right(self._epochs, epoch)
        return EpochEnd(self._epochs[at - 1] if at else epoch, self._starts[at])

    def truncate_from_end(self, offset: int) -> None:
        """The log ends at `offset` now: remove epochs that begin there or later.

        On a full disk the file keeps them until the next batch is appended. A start removes them, too.
        """
        if not self._starts or self._starts[-1] < offset:
            return
        while self._starts and self._starts[-1] >= offset:
            self._starts.pop()
            self._epochs.pop()
        self._write_if_possible()

    def truncate_from_start(self, offset: int) -> None:
        """The log begins at `offset` now: of the epochs that began earlier only the last stays, and begins there."""
        at = bisect_right(self._starts, offset) - 1
        if at < 0 or (at == 0 and self._starts[0] == offset):
            return
        self._epochs = self._epochs[at:]
        self._starts = [offset, *self._starts[at + 1 :]]
        with suppress(OutOfResources):  # an older file has the same remaining epochs, and a start removes the others again
            self.write()

    def clear(self) -> None:
        if self._epochs:
            self._epochs, self._starts = [], []
            self._write_if_possible()

    def _write_if_possible(self) -> None:
        try:
            self.write()
        except OutOfResources:
            self.written = NOT_WRITTEN

    def write(self) -> None:
        """Replace the file, not synced."""
        entries = (f"{epoch} {start}" for epoch, start in zip(self._epochs, self._starts, strict=True))
        self._disk.replace(self._path, format_lines(entries), sync=False)
        self.unsynced = True
        self.written = self.latest

    def move(self, directory: str) -> None:
        """The log's directory was renamed."""
        self._path = f"{directory}/{LEADER_EPOCHS}"
