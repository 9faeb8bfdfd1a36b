"""The files that a flush syncs, in a worker."""

from __future__ import annotations

from collections.abc import Sequence

from txbroker.errors import MissingFile
from txbroker.log.disk import Disk, File


class FlushPlan:
    """Files to sync so that everything below `offset` is durable. `sync()` may run in a worker.

    `generation` is the log's when the plan was made: a plan from before a truncation says nothing about the log after it.
    `renames` and `creations`: so many segments, since the log was loaded, have durably left the list and have durable names then.
    `absent`: paths at which `sync` has found nothing. The log says which of them it has renamed or removed meanwhile.
    """

    __slots__ = ("_disk", "_files", "absent", "creations", "generation", "offset", "paths", "renames")

    def __init__(self, disk: Disk, offset: int, files: Sequence[File], paths: Sequence[str], *, generation: int) -> None:
        self.offset = offset
        self.generation = generation
        self.renames = self.creations = 0
        self._disk = disk
        self._files = files
        self.paths = paths
        self.absent: list[str] = []

    def renamed(self) -> None:
        """The log's directory has another name. The log remembers the paths; names that this plan syncs or has synced are not valid."""
        self.paths = ()
        self.offset = self.renames = self.creations = 0

    def sync(self) -> None:
        """StorageError when the disk fails."""
        for file in self._files:
            file.sync()
        for path in self.paths:
            try:
                self._disk.sync(path)
            except MissingFile:
                self.absent.append(path)
