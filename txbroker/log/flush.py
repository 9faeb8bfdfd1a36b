"""The files that a flush syncs, in a worker."""

from __future__ import annotations

from collections.abc import Sequence

from txbroker.log.disk import Disk, File


class FlushPlan:
    """Files to sync so that everything below `offset` is durable. `sync()` may run in a worker.

    `generation` is the log's when the plan was made: a plan from before a truncation says nothing about the log after it.
    `renames` and `creations`: so many segments, since the log was loaded, have durably left the list and have durable names then.
    """

    __slots__ = ("_disk", "_files", "creations", "generation", "offset", "paths", "renames")

    def __init__(self, disk: Disk, offset: int, files: Sequence[File], paths: Sequence[str], *, generation: int) -> None:
        self.offset = offset
        self.generation = generation
        self.renames = self.creations = 0
        self._disk = disk
        self._files = files
        self.paths = paths

    def sync(self) -> None:
        """StorageError when the disk fails."""
        for file in self._files:
            file.sync()
        for path in self.paths:
            self._disk.sync(path)
