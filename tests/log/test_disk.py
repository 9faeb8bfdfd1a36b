"""The operating system's disk: what files and directories do, and that every failure is a StorageError that names the path."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from txbroker.errors import OutOfResources, StorageError
from txbroker.log.disk import OsDisk
from txbroker.log.region import EMPTY, Region


def test_a_file_grows_at_its_end(tmp_path: Path) -> None:
    file = OsDisk().open(f"{tmp_path}/f")
    file.append(b"hello ")
    file.append(memoryview(bytearray(b"world")))
    assert (file.size, file.pread(4, 3), file.pread(9, 99), file.pread(50, 1)) == (11, b"o w", b"ld", b"")
    file.truncate(4)
    file.append(b"!")
    file.sync()
    assert (tmp_path / "f").read_bytes() == b"hell!"
    again = OsDisk().open(f"{tmp_path}/f")
    assert again.size == 5
    fd = again.fileno()
    os.fstat(fd)
    del again
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(fd)


def test_a_want_of_descriptors_says_nothing_of_the_disk(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    disk = OsDisk()
    disk.write(f"{tmp_path}/f", b"here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        for opening in (disk.open, disk.read, disk.map, disk.names, disk.sync):
            with pytest.raises(OutOfResources, match=f"{tmp_path}/f: Too many open files"):
                opening(f"{tmp_path}/f")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with pytest.raises(StorageError) as error:
        disk.open(f"{tmp_path}/missing/f")
    assert not isinstance(error.value, OutOfResources)


def test_a_short_write_is_undone(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    disk = OsDisk()
    file = disk.open(f"{tmp_path}/f")
    file.append(b"x" * 60)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(StorageError, match=f"{tmp_path}/f: File too large"):
            file.append(b"y" * 50)
        assert (tmp_path / "f").read_bytes() == b"x" * 60
        file.append(b"z" * 40)
        with pytest.raises(StorageError, match="f: File too large"):
            file.append(b"y")
        with pytest.raises(StorageError, match="g: File too large"):
            disk.write(f"{tmp_path}/g", b"y" * 101)
        disk.replace(f"{tmp_path}/h", b"old")
        with pytest.raises(StorageError):
            disk.replace(f"{tmp_path}/h", b"y" * 101)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert file.size == 100
    assert (tmp_path / "h").read_bytes() == b"old"


def test_whole_files(tmp_path: Path) -> None:
    disk, path = OsDisk(), f"{tmp_path}/f"
    assert (disk.read(path), disk.size(path), bytes(disk.map(path)[:])) == (None, None, b"")
    disk.write(path, b"one")
    disk.append(path, b"two")
    assert disk.read(path) == b"onetwo"
    disk.truncate(path, 4)
    assert (disk.read(path), disk.size(path)) == (b"onet", 4)
    disk.replace(path, b"three")
    assert disk.read(path) == b"three"
    assert disk.names(str(tmp_path)) == ["f"]
    assert abs(disk.modified_ms(path) - os.stat(path).st_mtime * 1000) < 1
    for size in (0, 5, 20_000):
        disk.write(path, b"m" * size)
        assert bytes(disk.map(path)[:]) == b"m" * size
    disk.sync(path)
    disk.sync(str(tmp_path))
    disk.sync(f"{tmp_path}/gone")
    disk.remove(path)
    disk.remove(path)
    disk.make_directory(f"{tmp_path}/a/b")
    disk.make_directory(f"{tmp_path}/a/b")
    disk.rename(f"{tmp_path}/a", f"{tmp_path}/c")
    assert disk.is_directory(f"{tmp_path}/c/b")
    disk.remove_tree(f"{tmp_path}/c")
    disk.remove_tree(f"{tmp_path}/c")
    assert disk.names(str(tmp_path)) == []
    usage = disk.usage(str(tmp_path))
    assert 0 <= usage.usable <= usage.total
    assert usage.total > 0


BROKEN: list[Callable[[OsDisk, str], object]] = [
    lambda disk, path: disk.open(path),
    lambda disk, path: disk.read(path),
    lambda disk, path: disk.map(path),
    lambda disk, path: disk.write(path, b""),
    lambda disk, path: disk.replace(path, b""),
    lambda disk, path: disk.append(path, b""),
    lambda disk, path: disk.truncate(path, 0),
    lambda disk, path: disk.size(path),
    lambda disk, path: disk.modified_ms(path),
    lambda disk, path: disk.names(path),
    lambda disk, path: disk.make_directory(path),
    lambda disk, path: disk.rename(path, path),
    lambda disk, path: disk.remove(path),
    lambda disk, path: disk.remove_tree(path),
    lambda disk, path: disk.sync(path),
    lambda disk, path: disk.usage(path),
    lambda disk, path: disk.lock(path),
]


@pytest.mark.parametrize("action", BROKEN)
def test_failures_name_the_path(tmp_path: Path, action: Callable[[OsDisk, str], object]) -> None:
    (tmp_path / "file").write_bytes(b"")
    path = f"{tmp_path}/file/below"  # below a file: ENOTDIR for everybody, root too
    with pytest.raises(StorageError, match=path):
        action(OsDisk(), path)


def test_a_lock_excludes_other_processes(tmp_path: Path) -> None:
    path = f"{tmp_path}/.lock"
    other = "import sys\nfrom txbroker.log.disk import OsDisk\nsys.exit(OsDisk().lock(sys.argv[1]) is None)"
    lock = OsDisk().lock(path)
    assert lock is not None
    assert subprocess.run([sys.executable, "-c", other, path]).returncode == 1
    lock.release()
    lock.release()
    assert subprocess.run([sys.executable, "-c", other, path]).returncode == 0


def test_a_process_that_holds_a_lock_keeps_it_when_it_checks_for_a_lock(tmp_path: Path) -> None:
    path = f"{tmp_path}/.lock"
    other = "import sys\nfrom txbroker.log.disk import OsDisk\nsys.exit(OsDisk().lock(sys.argv[1]) is None)"
    disk = OsDisk()
    lock = disk.lock(path)
    assert lock is not None
    assert not disk.locked(path), "no other process holds it"
    assert subprocess.run([sys.executable, "-c", other, path]).returncode == 1
    lock.release()
    assert subprocess.run([sys.executable, "-c", other, path]).returncode == 0


def test_regions(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"0123456789")
    file = OsDisk().open(f"{tmp_path}/f")
    region = Region(file, 2, 5)
    assert (len(region), region.read(), region.file.fileno()) == (5, b"23456", file.fileno())
    assert (len(EMPTY), EMPTY.read()) == (0, b"")
    file.truncate(6)
    with pytest.raises(StorageError, match="only 4 of 5"):
        region.read()
