"""Reads the valid batches of a partition, one segment after the other. Damaged ranges are reported and skipped."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from txbroker.log.disk import Disk
from txbroker.log.file_names import LOG, file_path
from txbroker.log.scan import Entry
from txbroker.logtools.damaged_walk import Damage, DamagedWalk
from txbroker.logtools.log_paths import PartitionPlace
from txbroker.logtools.partition_files import find_files
from txbroker.wire.records import INT64_MAX

# Called with the path of a log file and a damaged range of it.
OnDamage = Callable[[str, Damage], None]


def walk_partition(
    disk: Disk, place: PartitionPlace, on_damage: OnDamage, *, start: int = 0, end: int = INT64_MAX, check_crc: bool = True
) -> Iterator[Entry]:
    """The batches of the segments that may have offsets in [start, end). An incomplete batch that a running broker may be writing is no
    damage. StorageError."""
    bases = find_files(disk, place.path).logs
    for at, base_offset in enumerate(bases):
        last = at + 1 == len(bases)
        limit = INT64_MAX + 1 if last else bases[at + 1]
        if limit <= start or base_offset >= end:
            continue
        path = file_path(place.path, base_offset, LOG)
        file = disk.open_existing(path)
        if file is None:
            continue  # a running broker deleted it
        for found in DamagedWalk(file, file.size, base_offset=base_offset, limit=limit, check_crc=check_crc):
            if isinstance(found, Entry):
                yield found
            elif not (last and place.live and found.end == file.size):
                on_damage(path, found)
