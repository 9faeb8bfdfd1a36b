"""What a flush has to sync, so that the reactor need not wait for it."""

from __future__ import annotations

from txbroker.log.disk import Disk, File


class FlushPlan:
    """Files to sync so that everything below `offset` is durable. `sync()` may run in a worker."""

    __slots__ = ("_disk", "_files", "_paths", "offset")

    def __init__(self, disk: Disk, offset: int, files: list[File], paths: list[str]) -> None:
        self.offset = offset
        self._disk = disk
        self._files = files
        self._paths = paths

    def sync(self) -> None:
        """StorageError when the disk fails."""
        for file in self._files:
            file.sync()
        for path in self._paths:
            self._disk.sync(path)
