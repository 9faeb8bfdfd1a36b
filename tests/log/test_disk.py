"""Limits of the operating system, which only the real disk has. tests/fakes/test_disks.py tests all disks."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from txbroker.errors import OutOfResources, StorageError
from txbroker.log.os_disk import OsDisk


def test_a_file_is_closed_with_its_last_reference(tmp_path: Path) -> None:
    file = OsDisk().create(f"{tmp_path}/f")
    fd = file.fileno()
    os.fstat(fd)
    del file
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(fd)


def test_a_lack_of_descriptors_is_not_a_disk_failure(tmp_path: Path) -> None:
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
    file = disk.create(f"{tmp_path}/f")
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
