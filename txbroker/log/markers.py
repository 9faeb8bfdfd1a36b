"""Reading transaction markers for the state of producers."""

from __future__ import annotations

from txbroker.log.producers import EndMarker
from txbroker.wire import control
from txbroker.wire.batch import BatchHeader, Buffer
from txbroker.wire.records import read_records

_BYTES_MAX = 64 * 1024  # a marker has some 20; other control records, such as KRaft's, do not concern producers


def read_marker(buffer: Buffer, position: int, header: BatchHeader) -> EndMarker | None:
    """The marker in a control batch; None if compaction emptied it or it is no marker. CorruptRecords if it is malformed."""
    record = next(read_records(buffer, position, header, _BYTES_MAX), None)
    marker = None if record is None else control.read_marker(record)
    if record is None or marker is None:
        return None
    return EndMarker(header.producer_id, header.producer_epoch, marker.coordinator_epoch, marker.committed, record.timestamp)
