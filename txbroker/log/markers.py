"""Transaction markers: the one record of a control batch (Kafka's EndTransactionMarker and ControlRecordType, KIP-98)."""

from __future__ import annotations

import struct

from txbroker.errors import CorruptRecords
from txbroker.log.producers import EndMarker
from txbroker.wire.batch import BatchHeader, Buffer
from txbroker.wire.records import read_records

_KEY = struct.Struct(">hh")  # version, type
_VALUE = struct.Struct(">hi")  # version, coordinator epoch
_ABORT, _COMMIT = 0, 1
_BYTES_MAX = 64 * 1024  # a marker has some 20; other control records (KRaft's) are no concern of a partition's producers


def read_marker(buffer: Buffer, position: int, header: BatchHeader) -> EndMarker | None:
    """What a control batch says; None for one that compaction emptied, or that is no transaction marker."""
    record = next(read_records(buffer, position, header, _BYTES_MAX), None)
    if record is None:
        return None
    if record.key is None or len(record.key) < _KEY.size:
        raise CorruptRecords(f"the control record at offset {record.offset} has no key")
    kind = _KEY.unpack_from(record.key)[1]
    if kind not in (_ABORT, _COMMIT):
        return None
    if record.value is None or len(record.value) < _VALUE.size:
        raise CorruptRecords(f"the transaction marker at offset {record.offset} has no value")
    coordinator_epoch = _VALUE.unpack_from(record.value)[1]
    return EndMarker(header.producer_id, header.producer_epoch, coordinator_epoch, kind == _COMMIT, record.timestamp)
