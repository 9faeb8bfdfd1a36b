"""Copies of the data of a broker for tests, and the way back: the broker stops and starts again within its process, at the same port.

A snapshot is a directory with `data`, as a clean stop leaves it, and `snapshot.json`. Clients lose their connections, as by a restart.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from typing import Any

from twisted.internet.defer import Deferred

from txbroker.errors import StartError, StartInterrupted
from txbroker.log.directory import LOCK_FILE
from txbroker.log.os_disk import OsDisk
from txbroker.testing.errors import KitError

FORMAT = 1
FILE = "snapshot.json"
DATA = "data"
# Beside the data while it is replaced: what replaces it, what it was, and what is to be deleted.
_FRESH, _REPLACED, _REMOVED = ".txbroker-restored", ".txbroker-replaced", ".txbroker-removed"

# Stops the broker, calls back, and starts it again.
Restart = Callable[[Callable[[], Deferred[None] | None]], Any]
InThread = Callable[..., Deferred[Any]]  # a function with its arguments


class Snapshots:
    """`data`: the log directory of the broker with this id."""

    def __init__(self, data: str, broker_id: int, restart: Restart, in_thread: InThread) -> None:
        self._data = data
        self._broker_id = broker_id
        self._restart = restart
        self._in_thread = in_thread

    async def take(self, to: str) -> None:
        """Copy the data into a new directory, which is there as a whole or not at all. KitError."""
        path = _absolute(to)
        if os.path.lexists(path) and (not os.path.isdir(path) or os.listdir(path)):
            raise KitError(f"{path} exists: specify a new or an empty directory")
        partial = f"{path}.partial"
        failed: list[OSError] = []

        def copy() -> None:
            try:
                os.makedirs(partial)
                shutil.copytree(self._data, os.path.join(partial, DATA), ignore=shutil.ignore_patterns(LOCK_FILE))
                with open(os.path.join(partial, FILE), "w", encoding="utf-8") as file:
                    json.dump({"format": FORMAT, "broker.id": self._broker_id}, file)
                os.replace(partial, path)
            except (OSError, shutil.Error) as error:
                failed.append(error)
                shutil.rmtree(partial, ignore_errors=True)

        try:
            await self._restart(lambda: self._in_thread(copy))
        except (StartError, StartInterrupted) as error:
            what = "its data was copied" if os.path.exists(os.path.join(path, FILE)) else "nothing was copied"
            raise KitError(f"the broker has ended, and {what} ({error}); start it again") from None
        if failed:
            raise KitError(f"{path} cannot be written: {_reason(failed[0])}; nothing was copied, and the broker serves clients again")

    async def restore(self, source: str) -> None:
        """Replace the data by that of a snapshot. KitError, and the data is what it was; after a kill `recover` puts it back."""
        path = _absolute(source)
        self._check(path)
        fresh, replaced, removed = (f"{self._data}{suffix}" for suffix in (_FRESH, _REPLACED, _REMOVED))
        failed: list[OSError] = []
        try:
            for left in (fresh, removed):
                await self._in_thread(shutil.rmtree, left, True)
            await self._in_thread(shutil.copytree, os.path.join(path, DATA), fresh)
        except (OSError, shutil.Error) as error:
            shutil.rmtree(fresh, ignore_errors=True)
            raise KitError(f"{path} cannot be copied: {_reason(error)}; the broker has its data") from None

        def exchange() -> None:
            try:
                os.rename(self._data, replaced)
                os.rename(fresh, self._data)
            except OSError as error:
                failed.append(error)
                if not os.path.exists(self._data):
                    os.rename(replaced, self._data)

        try:
            await self._restart(exchange)
        except Exception as error:
            if os.path.exists(replaced):
                shutil.rmtree(self._data, ignore_errors=True)
                os.rename(replaced, self._data)
            shutil.rmtree(fresh, ignore_errors=True)
            if isinstance(error, StartInterrupted):
                raise KitError(f"the broker was stopped before it served the data of {path}, and has its own; start it again") from None
            if isinstance(error, StartError):
                problem = f"the broker cannot start with the data of {path}, and has ended ({error})"
                raise KitError(f"{problem}; start it again with its own") from None
            raise
        if failed:
            shutil.rmtree(fresh, ignore_errors=True)
            raise KitError(f"the data was not replaced: {_reason(failed[0])}; the broker has its data")
        os.rename(replaced, removed)  # from now on it is not put back
        await self._in_thread(shutil.rmtree, removed, True)

    def _check(self, path: str) -> None:
        try:
            with open(os.path.join(path, FILE), encoding="utf-8") as file:
                found: Any = json.load(file)
        except (OSError, ValueError):
            raise KitError(f"{path} is no snapshot: it has no {FILE} that can be read") from None
        if not isinstance(found, Mapping) or found.get("format") != FORMAT or not os.path.isdir(os.path.join(path, DATA)):
            raise KitError(f"{path} is no snapshot of this version of txbroker")
        if found.get("broker.id") != self._broker_id:
            raise KitError(f"{path} is a snapshot of broker {found.get('broker.id')}, and this is broker {self._broker_id}")


def recover(data: str) -> None:
    """Before the start of a broker: put its data back if the process that had begun to replace it was killed."""
    fresh, replaced, removed = (f"{data}{suffix}" for suffix in (_FRESH, _REPLACED, _REMOVED))
    if not any(map(os.path.isdir, (fresh, replaced, removed))):
        return
    lock = OsDisk().lock(os.path.join(data, LOCK_FILE)) if os.path.isdir(data) else None
    if os.path.isdir(data) and lock is None:
        return  # in use by another broker
    if os.path.isdir(replaced):
        shutil.rmtree(data, ignore_errors=True)
        os.rename(replaced, data)
    for left in (fresh, removed):
        shutil.rmtree(left, ignore_errors=True)
    if lock is not None:
        lock.release()


def _absolute(path: str) -> str:
    if not os.path.isabs(path):
        raise KitError(f"{path!r} is not an absolute path")
    try:
        is_impossible = b"\0" in os.fsencode(path)
    except UnicodeEncodeError:
        is_impossible = True
    if is_impossible:
        raise KitError(f"{path!r} cannot be a path: it has a null character, or one without a code in the file system's encoding")
    return os.path.normpath(path)


def _reason(error: OSError) -> str:
    if isinstance(error, shutil.Error):  # a list of files with their reasons
        return str(error.args[0][0][2])
    return error.strerror or str(error)
