"""Cleaned segments, written without the cleaner: only whole batches are removed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.support.fakes.disk_path import DiskPath
from txbroker.log.log import Log
from txbroker.log.segment import Segment
from txbroker.wire.entries import EntryHeader

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")


def write_cleaned(log: Log, base_offsets: Sequence[int], keep: Callable[[EntryHeader], bool], aside: DiskPath) -> int:
    """Write the `.cleaned` files of these segments without the batches that `keep` rejects; the bytes of the log file."""
    old = [segment for segment in log.segments if segment.base_offset in base_offsets]
    new = Segment(aside.disk, str(aside.made()), old[0].base_offset, size=0, created_ms=0,
                  index_interval_bytes=log.config.index_interval_bytes)  # fmt: skip
    new.create()
    for segment in old:
        for _, buffer, at, header in segment.walk(0):
            if keep(header):
                new.append(bytes(buffer[at : at + header.size]), header.last_offset, header.max_timestamp, header.base_offset)
    new.txn_index.replace([aborted for segment in old for aborted in segment.txn_index.entries])
    new.seal()
    for suffix in SUFFIXES:
        path = DiskPath(aside.disk, new.path(suffix))
        if path.exists():
            path.rename(f"{log.directory}/{path.name}.cleaned")
    return new.size
