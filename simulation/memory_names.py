"""The files and directories of a disk in memory: names and what they name, with the errors of the operating system.

A name is an entry of its directory. An entry that was made, replaced or removed is durable once its directory is synced; until then a loss
of power may undo the change, whatever becomes of other names, also of later ones. Two rules are kept, as every file system keeps them: the
changes of one file's or directory's names keep their order, and a rename is done or not, so that nothing has two names.
"""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Inode:
    """A file's bytes; the first `synced` of them survive a power cut. `changed`: the last change of its names."""

    modified_ms: int
    data: bytearray = field(default_factory=bytearray)
    synced: int = 0
    changed: Change | None = None


@dataclass(slots=True, eq=False)
class Directory:
    """`entries`: as processes see them; `durable`: those that survive a power cut; `unsynced`: what is between them, in order."""

    entries: dict[str, Node] = field(default_factory=dict)
    durable: dict[str, Node] = field(default_factory=dict)
    unsynced: dict[Change, None] = field(default_factory=dict)
    changed: Change | None = None


Node = Inode | Directory


@dataclass(slots=True, eq=False)
class Change:
    """A change of the names of `node`: what each place (a directory and a name) names from now on. `before`: the node's change before."""

    node: Node
    places: tuple[tuple[Directory, str, Node | None], ...]
    before: Change | None

    def apply(self, of: Callable[[Directory], dict[str, Node]]) -> None:
        """Change these entries of the directories."""
        for directory, name, node in self.places:
            if node is None:
                of(directory).pop(name, None)
            else:
                of(directory)[name] = node


class Names:
    """A tree of names. `directories`: those that have a path, by path. Errors are those of the operating system."""

    def __init__(self) -> None:
        self.root = Directory()
        self.directories: dict[str, Directory] = {"/": self.root}
        self._unsynced: dict[Change, None] = {}  # of all directories, in order

    def entries(self, directory: str) -> dict[str, Node]:
        found = self.directories.get(directory)
        if found is None:
            raise os_error(errno.ENOTDIR if self._below_a_file(directory) else errno.ENOENT)
        return found.entries

    def files(self) -> Iterator[Inode]:
        """All files that have a path."""
        for directory in self.directories.values():
            for node in directory.entries.values():
                if isinstance(node, Inode):
                    yield node

    def is_directory(self, path: str) -> bool:
        return path in self.directories

    def exists(self, path: str) -> bool:
        if path in self.directories:
            return True
        parent = self.directories.get(posixpath.dirname(path))
        return parent is not None and posixpath.basename(path) in parent.entries

    def find(self, path: str) -> Inode | None:
        """The file at this path, None for a directory; FileNotFoundError when there is neither."""
        if path in self.directories:
            return None
        directory, name = self._place(path)
        found = directory.entries.get(name)
        if not isinstance(found, Inode):
            raise os_error(errno.ENOENT)
        return found

    def file(self, path: str) -> Inode:
        found = self.find(path)
        if found is None:
            raise os_error(errno.EISDIR)
        return found

    def link(self, path: str, inode: Inode) -> None:
        self._change(inode, (*self._place(path), inode))

    def make_directory(self, path: str) -> None:
        parent, name = self._place(path)
        if name in parent.entries:
            raise os_error(errno.EEXIST)
        made = self.directories[path] = Directory()
        self._change(made, (parent, name, made))

    def remove(self, path: str) -> None:
        self._change(self.file(path), (*self._place(path), None))

    def remove_tree(self, path: str) -> None:
        """Each file and directory by itself, a directory after what is in it."""
        if self.find(path) is not None:
            raise os_error(errno.ENOTDIR)
        directory = self.directories[path]
        for name, node in sorted(directory.entries.items()):
            if isinstance(node, Directory):
                self.remove_tree(f"{path}/{name}")
            else:
                self._change(node, (directory, name, None))
        self._change(directory, (*self._place(path), None))
        del self.directories[path]

    def rename(self, old: str, new: str) -> None:
        source, old_name = self._place(old)
        target, new_name = self._place(new)
        is_directory = self.find(old) is None
        if new != old:
            self._check_rename(old, new, is_directory=is_directory)
            node = source.entries[old_name]
            if is_directory:
                self._move_directories(old, new)
            self._change(node, (source, old_name, None), (target, new_name, node))

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
        replaced = self.directories.get(new)
        if replaced is not None and replaced.entries:
            raise os_error(errno.ENOTEMPTY)

    def _move_directories(self, old: str, new: str) -> None:
        for path in [found for found in self.directories if _is_below(found, old)]:
            self.directories[new + path[len(old) :]] = self.directories.pop(path)

    def _place(self, path: str) -> tuple[Directory, str]:
        directory, _, name = path.rpartition("/")
        self.entries(directory or "/")
        return self.directories[directory or "/"], name

    def _below_a_file(self, path: str) -> bool:
        while path != "/":
            path, name = posixpath.split(path)
            directory = self.directories.get(path)
            if directory is not None:
                return isinstance(directory.entries.get(name), Inode)
        return False

    # What is durable

    def _change(self, node: Node, *places: tuple[Directory, str, Node | None]) -> None:
        change = node.changed = Change(node, places, node.changed)
        change.apply(_entries)
        self._unsynced[change] = None
        for directory, _, _ in places:
            directory.unsynced[change] = None

    def sync(self, path: str) -> None:
        """The names in this directory are durable. A rename from or to another one takes its changes until then with it."""
        self._sync_up_to(self.directories[path], None)

    def _sync_up_to(self, directory: Directory, last: Change | None) -> None:
        for change in list(directory.unsynced):
            if change is last:
                return
            for other, _, _ in change.places:
                if other is not directory:
                    self._sync_up_to(other, change)
            for other, _, _ in change.places:
                other.unsynced.pop(change, None)
            change.apply(_durable)
            change.before = None
            del self._unsynced[change]
            if isinstance(change.node, Directory) and change.places[-1][2] is None:
                self._forget(change.node)

    def _forget(self, removed: Directory) -> None:
        """A directory is durably gone, and all that was in it."""
        for change in removed.unsynced:
            self._unsynced.pop(change, None)
            if isinstance(change.node, Directory):
                self._forget(change.node)

    def after_power_cut(self, survives: Callable[[], bool]) -> Names:
        """The names that are left: the durable ones and the unsynced changes for which `survives` is True, and those of the same file
        before them."""
        kept: set[Change] = set()
        for change in self._unsynced:
            earlier: Change | None = change if survives() else None
            while earlier is not None and earlier in self._unsynced and earlier not in kept:
                kept.add(earlier)
                earlier = earlier.before
        for change in self._unsynced:
            if change in kept:
                change.apply(_durable)
        left = Names()
        left._copy(self.root, left.root, "/")
        return left

    def _copy(self, durable: Directory, copied: Directory, path: str) -> None:
        """Copies: files that are still open in a process of before the power cut change nothing any more."""
        self.directories[path] = copied
        for name, node in sorted(durable.durable.items()):
            if isinstance(node, Inode):
                copied.entries[name] = Inode(node.modified_ms, node.data, node.synced)
            else:
                copied.entries[name] = made = Directory()
                self._copy(node, made, posixpath.join(path, name))
        copied.durable = dict(copied.entries)


def _entries(directory: Directory) -> dict[str, Node]:
    return directory.entries


def _durable(directory: Directory) -> dict[str, Node]:
    return directory.durable


def _is_below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(f"{directory}/")


def os_error(number: int) -> OSError:
    """The error of the operating system with this number."""
    return OSError(number, os.strerror(number))
