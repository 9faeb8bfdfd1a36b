"""Real files without waiting until they are written, for tests whose files another program reads."""

from __future__ import annotations

import os

from txbroker.log.disk import Buffer, File
from txbroker.log.os_disk import OsDisk, OsFile


class _UnsyncedFile(OsFile):
    def sync(self) -> None:
        """Nothing: a test's machine does not lose power."""


class UnsyncedDisk(OsDisk):
    """The real disk, whose syncs do nothing."""

    def create(self, path: str) -> File:
        return _UnsyncedFile(path, flags=os.O_RDWR | os.O_CREAT | os.O_EXCL)

    def open(self, path: str) -> File:
        return _UnsyncedFile(path)

    def sync(self, path: str) -> None:
        pass

    def replace(self, path: str, data: Buffer, *, sync: bool = True, private: bool = False) -> None:
        super().replace(path, data, sync=False, private=private)
