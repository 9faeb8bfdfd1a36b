"""Files with secrets: only their owner may read them, and another version replaces one whole, with its owner and mode."""

from __future__ import annotations

import os
import stat

from txbroker.platform import system

PRIVATE, PUBLIC = 0o600, 0o644


def write_new(path: str, data: bytes, mode: int) -> None:
    """Create a file, durably; OSError, also if it exists. The umask does not widen or narrow a private file."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with open(descriptor, "wb") as file:
        if mode == PRIVATE:
            os.chmod(path, mode)
        file.write(data)
        file.flush()
        os.fsync(descriptor)


def replace(path: str, data: bytes) -> None:
    """Replace a file, or create a private one, whole and durably; OSError. Its mode and, as root, its owner stay."""
    try:
        before = os.stat(path)
    except FileNotFoundError:
        before = None
    beside = f"{path}.tmp"
    with open(beside, "wb", opener=_opener) as file:
        descriptor = file.fileno()
        if before is not None and hasattr(os, "geteuid") and (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
            _keep_owner(descriptor, before)
        os.chmod(beside, PRIVATE if before is None else stat.S_IMODE(before.st_mode))
        file.write(data)
        file.flush()
        os.fsync(descriptor)
    os.replace(beside, path)
    sync_directory(os.path.dirname(path) or ".")


def sync_directory(path: str) -> None:
    """Make the names in a directory durable; OSError."""
    system.sync_path(path)


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags, PRIVATE)


def _keep_owner(descriptor: int, before: os.stat_result) -> None:
    try:
        os.fchown(descriptor, before.st_uid, before.st_gid)
    except PermissionError:
        if os.geteuid() == 0:
            raise
