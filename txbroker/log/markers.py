"""Transaction markers as the producers' state takes them: with the producer that the batch names."""

from __future__ import annotations

from txbroker.log.producers import EndMarker
from txbroker.wire import control
from txbroker.wire.batch import BatchHeader, Buffer
from txbroker.wire.records import read_records

_BYTES_MAX = 64 * 1024  # a marker has some 20; other control records (KRaft's) are no concern of a partition's producers


def read_marker(buffer: Buffer, position: int, header: BatchHeader) -> EndMarker | None:
    """What a control batch says; None for one that compaction emptied, or that is no transaction marker. CorruptRecords on nonsense."""
    record = next(read_records(buffer, position, header, _BYTES_MAX), None)
    marker = None if record is None else control.read_marker(record)
    if record is None or marker is None:
        return None
    return EndMarker(header.producer_id, header.producer_epoch, marker.coordinator_epoch, marker.committed, record.timestamp)
