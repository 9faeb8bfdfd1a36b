"""The files of a partition's directory, by their names."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from txbroker.log.disk import Disk
from txbroker.log.file_names import DELETED, INDEX_SUFFIXES, LEADER_EPOCHS, LOG, PARTITION_METADATA, SNAPSHOT, SWAP, parse_name

# A snapshot of KRaft's metadata (KIP-630): end offset and epoch.
METADATA_SNAPSHOT = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")
# Backups that a repair leaves: see backups.py.
SAVED = re.compile(r".+\.(?:cut|taken-out)-at-[0-9]+(?:-[0-9]+)?|.+\.set-aside(?:-[0-9]+)?")
UNFINISHED_REPAIR = ".being-repaired"


@dataclass(slots=True)
class PartitionFiles:
    """The files of one partition by kind. `logs`: base offsets, ascending. `swaps`: there are `.swap` files of segments.

    `repaired`: there are backups of a repair.
    """

    logs: list[int] = field(default_factory=list)
    indexes: list[tuple[int, str]] = field(default_factory=list)  # base offset, suffix
    snapshots: list[int] = field(default_factory=list)
    metadata_snapshots: list[str] = field(default_factory=list)
    leftovers: list[tuple[str, str]] = field(default_factory=list)  # name, description
    deleted: set[int] = field(default_factory=set)  # base offsets of segments that are being deleted
    repaired: bool = False
    swaps: bool = False
    leader_epochs: bool = False
    metadata: bool = False

    @property
    def orphans(self) -> list[tuple[int, str]]:
        """Index files without a log file."""
        logs = set(self.logs)
        return [index for index in self.indexes if index[0] not in logs]

    @property
    def any(self) -> bool:
        """Whether the directory has files of a partition."""
        return bool(self.logs or self.indexes or self.snapshots or self.metadata_snapshots or self.leader_epochs or self.metadata)


_LEFT = {
    DELETED: "will be deleted by the running broker or its next start",
    SWAP: "will replace older segments, by the running broker or its next start",
}


def find_files(disk: Disk, directory: str) -> PartitionFiles:
    """The files in a directory. StorageError when it cannot be listed."""
    found = PartitionFiles()
    for name in disk.names(directory):
        parsed = parse_name(name)
        if parsed is None:
            _note_other(found, name)
            continue
        offset, suffix, mark = parsed
        if mark:
            if suffix in (LOG, *INDEX_SUFFIXES, SNAPSHOT):
                found.leftovers.append((name, _LEFT.get(mark, "is written by the log cleaner, or was left by one that was interrupted")))
                if mark == DELETED and suffix == LOG:
                    found.deleted.add(offset)
                found.swaps = found.swaps or (mark == SWAP and suffix == LOG)
        elif suffix == LOG:
            found.logs.append(offset)
        elif suffix in INDEX_SUFFIXES:
            found.indexes.append((offset, suffix))
        elif suffix == SNAPSHOT:
            found.snapshots.append(offset)
    return found


def _note_other(found: PartitionFiles, name: str) -> None:
    if name == LEADER_EPOCHS:
        found.leader_epochs = True
    elif name == PARTITION_METADATA:
        found.metadata = True
    elif METADATA_SNAPSHOT.fullmatch(name):
        found.metadata_snapshots.append(name)
    elif SAVED.fullmatch(name):
        found.repaired = True
        found.leftovers.append((name, "is a backup of a repair: remove it when it is no longer needed"))
    elif name.endswith(UNFINISHED_REPAIR):
        found.leftovers.append((name, "was left by a repair that was interrupted"))
