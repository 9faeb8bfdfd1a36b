"""The folder of a table, which format the table in it has, and the lock that a job holds while it writes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from txbroker.console.failures import BadUsage, CommandFailed
from txbroker.spark.spark_failures import reason

DELTA, PARQUET = "delta", "parquet"
DELTA_LOG, MANIFESTS = "_delta_log", "_manifests"
_held: set[str] = set()  # opening the lock's file again in one process would release the lock


def folder(location: str) -> Path:
    """The folder of --table, which need not exist; BadUsage for another file system, and for a file."""
    if "://" in location.removeprefix("file://"):
        raise BadUsage(f"--table is {location}: only folders of a file system that the driver and all executors mount are supported")
    path = Path(location.removeprefix("file://")).absolute()
    if "`" in str(path):
        raise BadUsage(f"--table is {location}: a backquote in the path is not supported; rename the folder")
    existing = next(each for each in (path, *path.parents) if each.exists())
    if not existing.is_dir():
        raise BadUsage(f"--table is {location}: {existing} is a file; specify the folder of the table")
    return path


def format_of(path: Path) -> str | None:
    """The format of the table in a folder; None if there is no table. CommandFailed for a folder that has something else."""
    found = sorted(one.name for one in path.iterdir()) if path.is_dir() else []
    if DELTA_LOG in found:
        return DELTA
    if MANIFESTS in found:
        return PARQUET
    if found:
        raise CommandFailed(f"{path} is not empty and has no table ({found[0]}); specify another --table")
    return None


def no_table(path: Path) -> CommandFailed:
    """The error of a job that only reads the table."""
    return CommandFailed(f"there is no table in {path}; correct --table, or fill it with `txbroker spark load`")


def check_writable(path: Path) -> None:
    """CommandFailed if this user cannot write a table in this folder, which need not exist, and the file of its lock beside it."""
    places = {path, path.parent} if path.exists() else {path.parent}
    for place in sorted(places):
        existing = next(each for each in (place, *place.parents) if each.exists())
        if not os.access(existing, os.W_OK | os.X_OK):
            raise CommandFailed(f"{path} cannot be written (no permission to write in {existing}); correct --table or its permissions")


@contextmanager
def locked(spark: Any, path: Path) -> Iterator[None]:
    """Hold a table, for one job that writes at a time; CommandFailed if another one holds it.

    The lock is on a file beside the folder (Delta creates no table in a folder that has a file). The JVM holds it, since it is the JVM
    that writes: the lock ends with it, and outlasts a Python process that was killed.
    """
    busy = CommandFailed(f"another job writes to {path}; wait until it has ended, and run this again")
    resolved = path.resolve()
    name = str(resolved.with_name(f".{resolved.name}.load.lock"))
    if name in _held:
        raise busy
    try:
        resolved.parent.mkdir(parents=True, exist_ok=True)
        file = spark._jvm.java.io.RandomAccessFile(name, "rw")
    except Exception as error:
        raise CommandFailed(f"{path} cannot be written ({reason(error)}); correct --table or its permissions") from None
    _held.add(name)
    try:
        if file.getChannel().tryLock() is None:
            raise busy
        yield
    finally:
        _held.discard(name)
        file.close()
