"""The disk in memory behaves as the operating system's disk: one suite for both, and random operations on both side by side."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from simulation.memory_disk import MemoryDisk
from tests.support.fakes.disk_path import DiskPath
from tests.support.fakes.faulty_disk import CHANGES, WRITES, FaultyDisk, Killed
from txbroker.errors import MissingFile, NoSpace, StorageError
from txbroker.log.disk import Disk, File
from txbroker.log.os_disk import OsDisk
from txbroker.log.region import EMPTY, Region

Folder = tuple[Disk, str]


@pytest.fixture(params=["real", "memory", "faulty"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    """A disk and a folder on it that is empty."""
    if request.param == "real":
        return OsDisk(), str(tmp_path)
    disk = MemoryDisk()
    disk.make_directory("/folder")
    return (disk if request.param == "memory" else FaultyDisk(disk)), "/folder"


def test_a_file_grows_at_its_end(folder: Folder) -> None:
    disk, path = folder
    file = disk.create(f"{path}/f")
    file.append(b"hello ")
    file.append(memoryview(bytearray(b"world")))
    assert (file.size, file.pread(4, 3), file.pread(9, 99), file.pread(50, 1)) == (11, b"o w", b"ld", b"")
    file.truncate(4)
    file.append(b"!")
    file.sync()
    assert disk.read(f"{path}/f") == b"hell!"
    assert disk.open(f"{path}/f").size == 5


def test_whole_files(folder: Folder) -> None:
    disk, root = folder
    path = f"{root}/f"
    assert (disk.read(path), disk.size(path), bytes(disk.map(path)[:]), disk.open_existing(path)) == (None, None, b"", None)
    disk.write(path, b"one")
    disk.append(path, b"two")
    assert disk.read(path) == b"onetwo"
    disk.truncate(path, 4)
    assert (disk.read(path), disk.size(path)) == (b"onet", 4)
    disk.replace(path, b"three")
    assert disk.read(path) == b"three"
    disk.replace(path, b"four", sync=False)
    assert (disk.read(path), disk.names(root)) == (b"four", ["f"])
    for size in (0, 5, 20_000):
        disk.write(path, b"m" * size)
        assert bytes(disk.map(path)[:]) == b"m" * size
    disk.set_modified_ms(path, 1_234_567)
    assert disk.modified_ms(path) == 1_234_567
    disk.sync(path)
    disk.sync(root)
    with pytest.raises(MissingFile, match=f"cannot sync {root}/gone"):
        disk.sync(f"{root}/gone")
    disk.remove(path)
    disk.remove(path)
    assert disk.names(root) == []


def test_directories(folder: Folder) -> None:
    disk, path = folder
    disk.make_directory(f"{path}/a/b")
    disk.make_directory(f"{path}/a/b")
    disk.write(f"{path}/a/b/f", b"content")
    disk.rename(f"{path}/a", f"{path}/c")
    assert disk.is_directory(f"{path}/c/b")
    assert not disk.is_directory(f"{path}/a")
    assert not disk.is_directory(f"{path}/c/b/f")
    assert disk.read(f"{path}/c/b/f") == b"content"
    disk.write(f"{path}/z", b"")
    disk.write(f"{path}/B", b"")
    assert disk.names(path) == ["B", "c", "z"]
    disk.remove_tree(f"{path}/c")
    disk.remove_tree(f"{path}/c")
    assert disk.names(path) == ["B", "z"]
    usage = disk.usage(path)
    assert 0 <= usage.usable <= usage.total
    assert usage.total > 0


def test_only_create_and_write_make_a_file(folder: Folder) -> None:
    disk, path = folder
    for operation in (disk.open, disk.modified_ms, lambda name: disk.append(name, b"x"), lambda name: disk.truncate(name, 0)):
        with pytest.raises(MissingFile, match=f"{path}/f"):
            operation(f"{path}/f")
        assert disk.size(f"{path}/f") is None
    disk.create(f"{path}/f").append(b"content")
    with pytest.raises(StorageError, match=f"cannot open {path}/f: File exists"):
        disk.create(f"{path}/f")
    assert disk.read(f"{path}/f") == b"content"


def test_an_open_file_outlives_its_name(folder: Folder) -> None:
    disk, path = folder
    file = disk.create(f"{path}/f")
    file.append(b"content")
    disk.rename(f"{path}/f", f"{path}/g")
    file.append(b", more")
    assert disk.read(f"{path}/g") == b"content, more"
    disk.remove(f"{path}/g")
    file.append(b".")
    assert file.pread(0, 99) == b"content, more."
    disk.write(f"{path}/g", b"another")
    assert file.pread(0, 7) == b"content"


def test_a_file_opened_for_reading_only(folder: Folder) -> None:
    disk, path = folder
    disk.write(f"{path}/f", b"content")
    file = disk.open_existing(f"{path}/f")
    assert file is not None
    assert (file.size, file.pread(3, 2)) == (7, b"te")
    with pytest.raises(StorageError, match=f"cannot write {path}/f"):
        file.append(b"x")
    with pytest.raises(StorageError, match=f"cannot truncate {path}/f"):
        file.truncate(1)
    assert disk.read(f"{path}/f") == b"content"


def test_two_openings_of_one_file(folder: Folder) -> None:
    """Each knows the size that it saw, and writes there."""
    disk, path = folder
    one, two = disk.create(f"{path}/f"), disk.open(f"{path}/f")
    one.append(b"0123456789")
    two.append(b"abc")
    assert disk.read(f"{path}/f") == b"abc3456789"
    disk.truncate(f"{path}/f", 2)
    one.append(b"x")
    assert disk.read(f"{path}/f") == b"ab" + bytes(8) + b"x"


def test_a_region_is_read_while_the_file_grows(folder: Folder) -> None:
    disk, path = folder
    file = disk.create(f"{path}/f")
    file.append(b"0123456789")
    region = Region(file, 2, 5)
    file.append(b"more")
    assert (len(region), region.read()) == (5, b"23456")
    assert (len(EMPTY), EMPTY.read()) == (0, b"")
    file.truncate(6)
    with pytest.raises(StorageError, match="only 4 of 5"):
        region.read()


FAILING: dict[str, Callable[[Disk, str], object]] = {
    "create": lambda disk, path: disk.create(path),
    "open": lambda disk, path: disk.open(path),
    "open_existing": lambda disk, path: disk.open_existing(path),
    "read": lambda disk, path: disk.read(path),
    "map": lambda disk, path: disk.map(path),
    "write": lambda disk, path: disk.write(path, b""),
    "replace": lambda disk, path: disk.replace(path, b""),
    "append": lambda disk, path: disk.append(path, b""),
    "truncate": lambda disk, path: disk.truncate(path, 0),
    "size": lambda disk, path: disk.size(path),
    "modified_ms": lambda disk, path: disk.modified_ms(path),
    "set_modified_ms": lambda disk, path: disk.set_modified_ms(path, 1),
    "names": lambda disk, path: disk.names(path),
    "make_directory": lambda disk, path: disk.make_directory(path),
    "rename": lambda disk, path: disk.rename(path, path),
    "remove": lambda disk, path: disk.remove(path),
    "remove_tree": lambda disk, path: disk.remove_tree(path),
    "sync": lambda disk, path: disk.sync(path),
    "usage": lambda disk, path: disk.usage(path),
    "lock": lambda disk, path: disk.lock(path),
    "locked": lambda disk, path: disk.locked(path),
}


@pytest.mark.parametrize("operation", FAILING)
def test_a_failure_is_a_storage_error_that_names_the_path(folder: Folder, operation: str) -> None:
    disk, root = folder
    disk.write(f"{root}/file", b"")
    path = f"{root}/file/below"  # a path below a file: ENOTDIR for every user, root too
    with pytest.raises(StorageError, match=path):
        FAILING[operation](disk, path)


class Machine:
    """A disk, a lock file on it, and whether another process would get the lock."""

    def __init__(self, kind: str, tmp_path: Path) -> None:
        self.disk: Disk = OsDisk() if kind == "real" else MemoryDisk()
        self.path = f"{tmp_path}/.lock" if kind == "real" else "/.lock"

    def another_process_gets_it(self) -> bool:
        if isinstance(self.disk, MemoryDisk):
            other = self.disk.other_process()
            free = not other.locked(self.path)
            lock = other.lock(self.path)
            if lock is not None:
                lock.release()
            assert free == (lock is not None)
            return free
        program = ("import sys; from txbroker.log.os_disk import OsDisk; d = OsDisk(); free = not d.locked(sys.argv[1]); "
                   "got = d.lock(sys.argv[1]) is not None; assert got == free; sys.exit(got)")
        return subprocess.run([sys.executable, "-c", program, self.path]).returncode == 1


@pytest.mark.parametrize("kind", ["real", "memory"])
def test_a_lock_excludes_other_processes(kind: str, tmp_path: Path) -> None:
    machine = Machine(kind, tmp_path)
    disk, path = machine.disk, machine.path
    assert not disk.locked(path)
    assert disk.size(path) is None, "asking for a lock makes no file"
    lock = disk.lock(path)
    assert lock is not None
    assert disk.size(path) == 0
    assert not disk.locked(path), "a process's own lock does not exclude it"
    assert not machine.another_process_gets_it()
    lock.release()
    lock.release()
    assert machine.another_process_gets_it()


PATHS = st.sampled_from(["a", "b", "a/x", "a/y", "b/x", "a/x/deep"])
DATA = st.sampled_from([b"", b"x", b"0123456789", b"z" * 5000])


class SideBySide(RuleBasedStateMachine):
    """The same operations on a real disk and on one in memory: the same results, the same errors, the same files."""

    def __init__(self) -> None:
        super().__init__()
        self.root = tempfile.mkdtemp(prefix="disks-")
        self.disks: tuple[Disk, Disk] = (OsDisk(), MemoryDisk())
        self.disks[1].make_directory(self.root)
        self.files: list[tuple[Any, Any]] = []

    def teardown(self) -> None:
        self.content(self.root)
        shutil.rmtree(self.root)

    def content(self, path: str) -> None:
        """Compare all that is at a path and below it."""
        self.both(lambda disk: (disk.size(path) if not disk.is_directory(path) else None, disk.is_directory(path)))
        if self.disks[0].is_directory(path):
            for name in self.both(lambda disk: disk.names(path)):
                self.content(f"{path}/{name}")
        else:
            self.both(lambda disk: disk.read(path))

    def both(self, operation: Callable[[Disk], Any]) -> Any:
        results = []
        for disk in self.disks:
            try:
                results.append(operation(disk))
            except StorageError as error:
                results.append((type(error), str(error)))
        assert results[0] == results[1]
        return results[0]

    @rule(path=PATHS, data=DATA)
    def write(self, path: str, data: bytes) -> None:
        self.both(lambda disk: disk.write(f"{self.root}/{path}", data))

    @rule(path=PATHS, data=DATA, sync=st.booleans())
    def replace(self, path: str, data: bytes, sync: bool) -> None:
        self.both(lambda disk: disk.replace(f"{self.root}/{path}", data, sync=sync))

    @rule(path=PATHS, data=DATA)
    def append(self, path: str, data: bytes) -> None:
        self.both(lambda disk: disk.append(f"{self.root}/{path}", data))

    @rule(path=PATHS, size=st.integers(0, 20))
    def truncate(self, path: str, size: int) -> None:
        self.both(lambda disk: disk.truncate(f"{self.root}/{path}", size))

    @rule(path=PATHS)
    def make_directory(self, path: str) -> None:
        self.both(lambda disk: disk.make_directory(f"{self.root}/{path}"))

    @rule(old=PATHS, new=PATHS)
    def rename(self, old: str, new: str) -> None:
        self.both(lambda disk: disk.rename(f"{self.root}/{old}", f"{self.root}/{new}"))

    @rule(path=PATHS)
    def remove(self, path: str) -> None:
        self.both(lambda disk: disk.remove(f"{self.root}/{path}"))

    @rule(path=PATHS)
    def remove_tree(self, path: str) -> None:
        self.both(lambda disk: disk.remove_tree(f"{self.root}/{path}"))

    @rule(path=PATHS)
    def ask(self, path: str) -> None:
        full = f"{self.root}/{path}"
        for operation in (lambda disk: disk.size(full) if not disk.is_directory(full) else 0, lambda disk: disk.read(full),
                          lambda disk: bytes(disk.map(full)[:]), lambda disk: disk.names(full), lambda disk: disk.sync(full),
                          lambda disk: disk.locked(full) if not disk.is_directory(full) else 0,
                          lambda disk: (disk.modified_ms(full), None)[1]):  # fmt: skip
            self.both(operation)

    @rule(path=PATHS, how=st.sampled_from(["create", "open", "open_existing"]))
    def open(self, path: str, how: str) -> None:
        if how == "open_existing" and self.disks[0].is_directory(f"{self.root}/{path}"):
            return  # Linux opens directories for reading
        found: list[Any] = []

        def opened(disk: Disk) -> int | None:
            file: File | None = getattr(disk, how)(f"{self.root}/{path}")
            found.append(file)
            return None if file is None else file.size

        self.both(opened)
        if len(found) == 2 and None not in found:
            self.files.append((found[0], found[1]))

    @rule(number=st.integers(0, 5), data=DATA, size=st.integers(0, 20))
    def use_file(self, number: int, data: bytes, size: int) -> None:
        if number < len(self.files):
            files = dict(zip(self.disks, self.files[number], strict=True))
            self.both(lambda disk: files[disk].append(data))
            self.both(lambda disk: (files[disk].size, files[disk].pread(0, 10**6), files[disk].pread(size, 7)))
            if size < 10:
                self.both(lambda disk: files[disk].truncate(size))
            self.both(lambda disk: (files[disk].sync(), files[disk].size)[1])


TestSideBySide = SideBySide.TestCase


def test_a_power_cut_takes_what_was_not_synced() -> None:
    """What was synced stays; of the rest a part is lost, at its end, and all parts are seen."""
    lengths, zeroed = set(), 0
    for seed in range(200):
        disk = MemoryDisk()
        file = disk.create("/f")
        disk.sync("/")
        file.append(b"a" * 5)
        file.sync()
        file.append(b"b" * 5)
        disk.power_cut(Random(seed))
        content = disk.read("/f")
        assert content is not None
        assert content.rstrip(b"\0") == (b"a" * 5 + b"b" * 5)[: len(content.rstrip(b"\0"))]
        assert content.startswith(b"a" * 5)
        lengths.add(len(content))
        zeroed += content.endswith(b"\0")
    assert lengths == {5, 6, 7, 8, 9, 10}
    assert 0 < zeroed < 100


def left(make: Callable[[MemoryDisk], None], directory: str = "/d") -> set[tuple[str, ...] | None]:
    """The names that power cuts may leave in a directory; None: the directory is gone."""
    outcomes: set[tuple[str, ...] | None] = set()
    for seed in range(300):
        disk = MemoryDisk()
        disk.make_directory("/d")
        disk.sync("/")
        make(disk)
        disk.power_cut(Random(seed))
        outcomes.add(tuple(disk.names(directory)) if disk.is_directory(directory) else None)
    return outcomes


def test_a_power_cut_takes_each_name_by_itself() -> None:
    def make(disk: MemoryDisk) -> None:
        for name in ("durable", "one", "two"):
            disk.write(f"/d/{name}", b"")
            if name == "durable":
                disk.sync("/d")
                disk.remove("/d/durable")

    kept, lost = ("durable",), ()
    assert left(make) == {old + new for old in (kept, lost) for new in ((), ("one",), ("two",), ("one", "two"))}


def test_a_synced_directory_keeps_its_names() -> None:
    def make(disk: MemoryDisk) -> None:
        disk.write("/d/one", b"")
        disk.write("/d/two", b"")
        disk.rename("/d/two", "/d/three")
        disk.write("/d/four", b"")
        disk.remove("/d/four")
        disk.sync("/d")

    assert left(make) == {("one", "three")}


def test_a_sync_of_a_file_or_of_a_directory_does_not_keep_its_own_name() -> None:
    def make(disk: MemoryDisk) -> None:
        disk.make_directory("/d/e")
        file = disk.create("/d/e/f")
        file.append(b"synced")
        file.sync()
        disk.sync("/d/e")

    assert left(make) == {("e",), ()}
    assert left(make, "/d/e") == {("f",), None}


def test_a_power_cut_leaves_a_renamed_file_one_of_its_names() -> None:
    def make(disk: MemoryDisk) -> None:
        disk.write("/d/one", b"")
        disk.sync("/d")
        disk.rename("/d/one", "/d/two")
        disk.rename("/d/two", "/d/three")

    assert left(make) == {("one",), ("two",), ("three",)}


def test_a_name_is_used_again_before_its_removal_is_durable() -> None:
    def make(disk: MemoryDisk) -> None:
        disk.write("/d/one", b"")
        disk.sync("/d")
        disk.rename("/d/one", "/d/two")
        disk.write("/d/one", b"another")

    assert left(make) == {("one",), ("two",), ("one", "two")}


def test_a_removed_directory_comes_back_with_some_of_its_files() -> None:
    def make(disk: MemoryDisk) -> None:
        disk.make_directory("/d/e")
        disk.write("/d/e/one", b"")
        disk.write("/d/e/two", b"")
        disk.sync("/d/e")
        disk.sync("/d")
        disk.remove_tree("/d/e")

    assert left(make, "/d/e") == {None, (), ("one",), ("two",), ("one", "two")}


def test_a_renamed_directory_keeps_what_is_in_it() -> None:
    def make(disk: MemoryDisk) -> None:
        disk.make_directory("/d/e")
        disk.write("/d/e/one", b"")
        disk.sync("/d")
        disk.rename("/d/e", "/d/f")
        disk.write("/d/f/two", b"")
        disk.sync("/d/f")

    assert left(make) == {("e",), ("f",)}
    assert left(make, "/d/f") == {("one", "two"), None}


def test_a_rename_to_another_directory_takes_its_earlier_changes_with_it() -> None:
    def make(disk: MemoryDisk) -> None:
        disk.make_directory("/d/e")
        disk.sync("/d")
        disk.write("/d/one", b"")
        disk.write("/d/other", b"")
        disk.rename("/d/one", "/d/e/one")
        disk.write("/d/one", b"later")
        disk.sync("/d/e")

    assert left(make) == {("e", "other"), ("e", "one", "other")}
    assert left(make, "/d/e") == {("one",)}


def test_a_durable_replacement_is_the_old_or_the_new_file() -> None:
    for sync in (True, False):
        outcomes = set()
        for seed in range(200):
            disk = MemoryDisk()
            disk.replace("/f", b"old")
            disk.replace("/f", b"new", sync=sync)
            disk.power_cut(Random(seed))
            outcomes.add(disk.read("/f"))
        assert (outcomes == {b"new"}) == sync
        assert sync or {b"old", b"new", b""} <= outcomes


def test_files_open_at_a_power_cut_are_those_of_another_time() -> None:
    disk = MemoryDisk()
    file = disk.create("/f")
    file.append(b"synced")
    file.sync()
    disk.sync("/")
    assert disk.lock("/f") is not None
    disk.power_cut(Random(1))
    file.append(b"late")
    assert disk.read("/f") == b"synced"
    assert disk.other_process().lock("/f") is not None


def test_the_end_of_a_process_releases_its_locks_alone() -> None:
    one = MemoryDisk()
    two = one.other_process()
    assert one.lock("/1") is not None
    assert two.lock("/2") is not None
    one.create("/f").append(b"written")
    one.end_process()
    assert not two.locked("/1")
    assert one.locked("/2")
    assert two.read("/f") == b"written"


def test_paths_are_normalized() -> None:
    disk = MemoryDisk()
    disk.make_directory("/a/b/")
    disk.write("//f", b"1")
    disk.write("/a/b/../../g", b"2")
    assert (disk.names("/"), disk.read("/./f"), disk.is_directory("/a//b")) == (["a", "f", "g"], b"1", True)
    with pytest.raises(ValueError, match="begins with /"):
        disk.read("f")


def test_a_full_disk() -> None:
    disk = MemoryDisk(capacity=10)
    file = disk.create("/f")
    file.append(b"x" * 8)
    with pytest.raises(NoSpace, match="cannot write /f: No space left on device"):
        file.append(b"y" * 3)
    assert (disk.read("/f"), file.size, disk.used) == (b"x" * 8, 8, 8)
    file.append(b"z" * 2)
    with pytest.raises(NoSpace):
        disk.write("/g", b"1")
    assert (disk.usage("/").total, disk.usage("/").usable, disk.size("/g")) == (10, 0, 0)
    file.truncate(5)
    disk.write("/g", b"12345")
    disk.remove("/g")
    disk.write("/h", b"12345")
    disk.capacity = 20
    file.append(b"z" * 10)


def test_faults_by_script() -> None:
    disk = FaultyDisk(MemoryDisk())
    disk.fail("rename", after=1, times=1, error=errno.ENOSPC)
    disk.write("/f", b"0123456789")
    disk.rename("/f", "/g")
    with pytest.raises(NoSpace, match="cannot rename /g: No space left"):
        disk.rename("/g", "/h")
    disk.rename("/g", "/h")
    disk.make_directory("/d/e")
    disk.fail(path="/d")
    with pytest.raises(StorageError, match="cannot create /d/f: Input/output error"):
        disk.create("/d/f")
    with pytest.raises(StorageError):
        disk.names("/d")
    disk.write("/dd", b"another")
    disk.repair()
    file = disk.create("/d/f")
    file.append(b"content")
    assert disk.paths("append") == ["/d/f"]
    assert disk.paths(WRITES) == ["/f", "/dd", "/d/f", "/d/f"]
    assert disk.paths("rename") == ["/f", "/g"]


def test_torn_writes() -> None:
    disk = FaultyDisk(MemoryDisk())
    file = disk.create("/f")
    file.append(b"0123")
    disk.fail(WRITES, error=errno.ENOSPC, torn=True)
    operations: list[Callable[[], None]] = [
        lambda: file.append(b"4567"),
        lambda: disk.write("/g", b"abcd"),
        lambda: disk.replace("/f", b"abcd"),
    ]
    for write in operations:
        with pytest.raises(NoSpace):
            write()
    assert {name: disk.read(f"/{name}") for name in disk.names("/")} == {"f": b"0123", "f.tmp": b"ab", "g": b"ab"}
    disk.repair()
    disk.fail(CHANGES, error=Killed, torn=True)
    with pytest.raises(Killed):
        file.append(b"4567")
    assert disk.read("/f") == b"012345", "nothing cut the half off again"


def test_paths_on_a_disk() -> None:
    root = DiskPath(MemoryDisk())
    (root / "a").mkdir()
    file = root / "a" / "0.log"
    file.write_bytes(b"0123456789")
    assert (file.name, file.stem, file.suffix) == ("0.log", "0", ".log")
    assert (str(file.with_suffix(".index")), str(file.parent)) == ("/a/0.index", "/a")
    assert file.read_text() == "0123456789"
    file.truncate(3)
    assert (file.size(), file.exists(), file.is_file(), file.is_dir()) == (3, True, True, False)
    copied = (root / "a").copy_to(root / "b")
    file.unlink()
    assert copied.glob("*.log") == [root / "b" / "0.log"]
    assert (root / "a").iterdir() == []
    for missing in (file.unlink, file.size, file.read_bytes):
        with pytest.raises(FileNotFoundError):
            missing()
