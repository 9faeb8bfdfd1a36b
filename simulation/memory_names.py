"""The files and directories of a disk in memory: names and what they name, with the errors of the operating system."""

from __future__ import annotations

import errno
import os
import posixpath
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Inode:
    """A file's bytes; the first `synced` of them survive a power cut."""

    modified_ms: int
    data: bytearray = field(default_factory=bytearray)
    synced: int = 0


Node = Inode | None  # None: a directory


class Names:
    """A tree of names: directory -> {name: node}. Errors are those of the operating system."""

    def __init__(self) -> None:
        self.directories: dict[str, dict[str, Node]] = {"/": {}}

    def copy(self) -> Names:
        copied = Names()
        copied.directories = {path: dict(entries) for path, entries in self.directories.items()}
        return copied

    def entries(self, directory: str) -> dict[str, Node]:
        found = self.directories.get(directory)
        if found is None:
            raise os_error(errno.ENOTDIR if self._below_a_file(directory) else errno.ENOENT)
        return found

    def is_directory(self, path: str) -> bool:
        return path in self.directories

    def exists(self, path: str) -> bool:
        return path in self.directories or posixpath.basename(path) in self.directories.get(posixpath.dirname(path), {})

    def find(self, path: str) -> Node:
        """The file at this path, None for a directory; FileNotFoundError when there is neither."""
        if path in self.directories:
            return None
        entries, name = self._place(path)
        if name not in entries:
            raise os_error(errno.ENOENT)
        return entries[name]

    def file(self, path: str) -> Inode:
        found = self.find(path)
        if found is None:
            raise os_error(errno.EISDIR)
        return found

    def link(self, path: str, inode: Inode) -> None:
        entries, name = self._place(path)
        entries[name] = inode

    def make_directory(self, path: str) -> None:
        entries, name = self._place(path)
        if name in entries:
            raise os_error(errno.EEXIST)
        entries[name] = None
        self.directories[path] = {}

    def remove(self, path: str) -> None:
        self.file(path)
        entries, name = self._place(path)
        del entries[name]

    def remove_tree(self, path: str) -> None:
        if self.find(path) is not None:
            raise os_error(errno.ENOTDIR)
        entries, name = self._place(path)
        del entries[name]
        for directory in [found for found in self.directories if _is_below(found, path)]:
            del self.directories[directory]

    def rename(self, old: str, new: str) -> None:
        source, old_name = self._place(old)
        target, new_name = self._place(new)
        node = self.find(old)
        if new != old:
            self._check_rename(old, new, is_directory=node is None)
            if node is None:
                self._move_directories(old, new)
            del source[old_name]
            target[new_name] = node

    def _check_rename(self, old: str, new: str, *, is_directory: bool) -> None:
        """In the order of Linux."""
        if _is_below(new, old):
            raise os_error(errno.EINVAL)
        if _is_below(old, new):
            raise os_error(errno.ENOTEMPTY)
        if is_directory and self.exists(new) and not self.is_directory(new):
            raise os_error(errno.ENOTDIR)
        if not is_directory and self.is_directory(new):
            raise os_error(errno.EISDIR)
        if self.directories.get(new):
            raise os_error(errno.ENOTEMPTY)

    def _move_directories(self, old: str, new: str) -> None:
        for directory in [found for found in self.directories if _is_below(found, old)]:
            self.directories[new + directory[len(old) :]] = self.directories.pop(directory)

    def _place(self, path: str) -> tuple[dict[str, Node], str]:
        directory, _, name = path.rpartition("/")
        return self.entries(directory or "/"), name

    def _below_a_file(self, path: str) -> bool:
        while path != "/":
            path, name = posixpath.split(path)
            entries = self.directories.get(path)
            if entries is not None:
                return entries.get(name) is not None
        return False


def _is_below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(f"{directory}/")


def os_error(number: int) -> OSError:
    """The error of the operating system with this number."""
    return OSError(number, os.strerror(number))
