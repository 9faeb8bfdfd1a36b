"""A file system of a few megabytes, which a test can fill."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SMALL_MIB = 8


@contextmanager
def small_disk(directory: Path, *options: str) -> Iterator[Path]:
    """Mount it at `directory`, which is created; the test is skipped where that is not allowed. `options` are those of tmpfs."""
    directory.mkdir()
    settings = ",".join((f"size={SMALL_MIB}m", *options))
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", settings, "tmpfs", str(directory)], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"a small file system needs the right to mount: {mounted.stderr.strip()}")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


def ballast(directory: Path) -> Path:
    """A file that takes all the room there is."""
    path = directory / "ballast"
    with path.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(bytes(4096))
    return path
