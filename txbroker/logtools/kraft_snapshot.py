"""Checks snapshots of KRaft's metadata, `<end offset>-<epoch>.checkpoint`: batches between a header and a footer record (KIP-630)."""

from __future__ import annotations

from txbroker.errors import CorruptRecords
from txbroker.log.disk import Disk
from txbroker.log.scan import Entry
from txbroker.logtools.damaged_walk import Damage, DamagedWalk, read_content
from txbroker.logtools.findings import Findings
from txbroker.logtools.segment_check import Advance
from txbroker.wire.batch import BatchHeader
from txbroker.wire.entries import read_records

SNAPSHOT_HEADER, SNAPSHOT_FOOTER = 3, 4
_CONTROL_BYTES_MAX = 64 * 1024


def check_metadata_snapshot(disk: Disk, path: str, findings: Findings, advance: Advance) -> None:
    """Check all batches and records, and that the snapshot is complete: it has its header and footer."""
    file = disk.open_existing(path)
    if file is None:
        return
    first_type: int | None = None
    last_type: int | None = None
    for found in DamagedWalk(file, file.size, base_offset=0):
        if isinstance(found, Damage):
            findings.fault(path, found.problem, start=found.start, end=found.end)
            advance(found.end - found.start, 0)
            continue
        try:
            content = read_content(found)
            last_type = _control_type(found)
            first_type = last_type if first_type is None else first_type
        except CorruptRecords as error:
            findings.fault(path, str(error.message), start=found.position, end=found.position + found.header.size)
            continue
        advance(found.header.size, content.records)
    if first_type != SNAPSHOT_HEADER:
        findings.fault(path, "it is incomplete: it does not begin with the header record of a metadata snapshot")
    elif last_type != SNAPSHOT_FOOTER:
        findings.fault(path, "it is incomplete: it does not end with the footer record of a metadata snapshot")


def _control_type(entry: Entry) -> int:
    """The type of the first record of a control batch; -1 for other batches."""
    if not isinstance(entry.header, BatchHeader) or not entry.header.control:
        return -1
    record = next(read_records(entry.buffer, entry.at, entry.header, _CONTROL_BYTES_MAX), None)
    return -1 if record is None or record.key is None else int.from_bytes(record.key[2:4], "big")
