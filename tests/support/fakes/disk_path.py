"""A path on any `Disk`, with those methods of `pathlib.Path` that tests of files need. A `Disk` on real files is `OsDisk`."""

from __future__ import annotations

import posixpath
from fnmatch import fnmatchcase
from pathlib import Path

from tests.support.fakes.unsynced_disk import UnsyncedDisk
from txbroker.log.disk import Buffer, Disk


def on_disk(path: DiskPath | Path) -> DiskPath:
    """The path on its disk; real files are those of an `UnsyncedDisk`."""
    return path if isinstance(path, DiskPath) else DiskPath(UnsyncedDisk(), str(path))


class DiskPath:
    """`str(path)` is the path that the disk's methods take."""

    def __init__(self, disk: Disk, path: str = "/") -> None:
        self.disk = disk
        self._path = path

    def __truediv__(self, name: object) -> DiskPath:
        return DiskPath(self.disk, posixpath.join(self._path, str(name)))

    def __str__(self) -> str:
        return self._path

    def __repr__(self) -> str:
        return f"DiskPath({self._path!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DiskPath) and (self.disk, self._path) == (other.disk, other._path)

    def __hash__(self) -> int:
        return hash(self._path)

    def __lt__(self, other: DiskPath) -> bool:
        return self._path < other._path

    @property
    def name(self) -> str:
        return posixpath.basename(self._path)

    @property
    def suffix(self) -> str:
        return posixpath.splitext(self._path)[1]

    @property
    def stem(self) -> str:
        return posixpath.splitext(self.name)[0]

    @property
    def parent(self) -> DiskPath:
        return DiskPath(self.disk, posixpath.dirname(self._path))

    def with_suffix(self, suffix: str) -> DiskPath:
        return DiskPath(self.disk, posixpath.splitext(self._path)[0] + suffix)

    def with_name(self, name: str) -> DiskPath:
        return self.parent / name

    def exists(self) -> bool:
        return self.is_dir() or self.disk.size(self._path) is not None

    def is_dir(self) -> bool:
        return self.disk.is_directory(self._path)

    def is_file(self) -> bool:
        return self.exists() and not self.is_dir()

    def size(self) -> int:
        """Bytes of a file; FileNotFoundError when it does not exist."""
        size = self.disk.size(self._path)
        if size is None:
            raise FileNotFoundError(self._path)
        return size

    def read_bytes(self) -> bytes:
        data = self.disk.read(self._path)
        if data is None:
            raise FileNotFoundError(self._path)
        return data

    def read_text(self) -> str:
        return self.read_bytes().decode()

    def write_bytes(self, data: Buffer) -> None:
        self.disk.write(self._path, data)

    def write_text(self, text: str) -> None:
        self.write_bytes(text.encode())

    def truncate(self, size: int) -> None:
        self.disk.truncate(self._path, size)

    def iterdir(self) -> list[DiskPath]:
        return [self / name for name in self.disk.names(self._path)]

    def glob(self, pattern: str) -> list[DiskPath]:
        """The entries of this directory whose names match."""
        return [path for path in self.iterdir() if fnmatchcase(path.name, pattern)]

    def mkdir(self, *, parents: bool = False, exist_ok: bool = False) -> None:
        if self.exists() and not exist_ok:
            raise FileExistsError(self._path)
        if not parents and not self.parent.is_dir():
            raise FileNotFoundError(str(self.parent))
        self.disk.make_directory(self._path)

    def made(self) -> DiskPath:
        """This path, once there is a directory."""
        self.disk.make_directory(self._path)
        return self

    def rename(self, target: DiskPath | str) -> DiskPath:
        self.disk.rename(self._path, str(target))
        return DiskPath(self.disk, str(target))

    def unlink(self) -> None:
        self.size()
        self.disk.remove(self._path)

    def remove_tree(self) -> None:
        self.disk.remove_tree(self._path)

    def copy_to(self, target: DiskPath) -> DiskPath:
        """Copy a file, or a directory with all that is below it, also to another disk."""
        if self.is_dir():
            target.disk.make_directory(str(target))
            for path in self.iterdir():
                path.copy_to(target / path.name)
        else:
            target.write_bytes(self.read_bytes())
            target.disk.set_modified_ms(str(target), self.disk.modified_ms(self._path))
        return target

    def modified_ms(self) -> int:
        return self.disk.modified_ms(self._path)
