"""Mistakes with names: of files and directories that are not durable when something is based on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simulation.bugs.patching import Patch
from txbroker.log import directory
from txbroker.log.checkpoint_file import CheckpointFile
from txbroker.log.directory import LogDirectory
from txbroker.log.flush import FlushPlan
from txbroker.log.segment_swap import SWAP_MARK, SegmentSwap


def segment_name_not_synced() -> list[Patch]:
    """A flush does not sync the directory of a new segment: what was synced and acknowledged is lost with the name of its file."""

    def broken(self: FlushPlan) -> None:
        for file in self._files:
            file.sync()
        for path in self.paths:
            if not self._disk.is_directory(path):
                self._disk.sync(path)

    return [Patch(FlushPlan, "sync", broken)]


def partition_name_not_synced() -> list[Patch]:
    """Neither a flush nor a checkpoint syncs the log directory: a new partition is lost with the name of its directory."""

    def broken(self: FlushPlan) -> None:
        for file in self._files:
            file.sync()
        for path in self.paths:
            if not self._disk.is_directory(path) or any(name.endswith(".log") for name in self._disk.names(path)):
                self._disk.sync(path)

    def replace(self: CheckpointFile[Any]) -> None:
        with self._writing:
            wanted = self._wanted
            if self._written is not wanted:
                unsynced = f"{self._path}.tmp"
                self._disk.write(unsynced, wanted)
                self._disk.sync(unsynced)
                self._disk.rename(unsynced, self._path)
                self._written = wanted

    return [
        Patch(FlushPlan, "sync", broken),
        Patch(LogDirectory, "sync_entries", lambda self: None),
        Patch(CheckpointFile, "_replace", replace),
    ]


def log_directory_name_not_synced() -> list[Patch]:
    """A new log directory is not synced into its parent: a loss of power takes it away with all logs."""
    return [Patch(directory, "_sync_if_readable", lambda disk, path: None)]


def swap_names_not_synced() -> list[Patch]:
    """Old segments lose their names before those of the cleaned one are durable: a loss of power leaves neither."""
    return [
        Patch(SegmentSwap, "sync", lambda self: None),
        Patch(SegmentSwap, "end", lambda self: self._disk.remove(f"{self.directory}/{SWAP_MARK}")),
    ]


BUGS: dict[str, Callable[[], list[Patch]]] = {
    bug.__name__: bug
    for bug in (
        segment_name_not_synced,
        partition_name_not_synced,
        log_directory_name_not_synced,
        swap_names_not_synced,
    )
}
