"""Transaction markers: the control batch with one record that ends a producer's transaction in a partition (KIP-98)."""

from __future__ import annotations

import struct
from typing import NamedTuple

from txbroker.errors import CorruptRecords
from txbroker.wire.records import Record, build

_ABORT, _COMMIT = 0, 1
_KEY = struct.Struct(">hh")  # version, type
_VALUE = struct.Struct(">hi")  # version, coordinator epoch


class Marker(NamedTuple):
    """Whether a transaction was committed, and the epoch of its coordinator."""

    committed: bool
    coordinator_epoch: int


def read_marker(record: Record) -> Marker | None:
    """The marker in a record of a control batch; None for control records of other types, CorruptRecords for malformed ones.

    Later versions may be longer; the known fields come first.
    """
    if record.key is None or len(record.key) < _KEY.size:
        raise CorruptRecords(f"the control record at offset {record.offset} has no type")
    version, kind = _KEY.unpack_from(record.key)
    if version >= 0 and kind not in (_ABORT, _COMMIT):
        return None
    if record.value is None or len(record.value) < _VALUE.size:
        raise CorruptRecords(f"the transaction marker at offset {record.offset} has no coordinator epoch")
    value_version, epoch = _VALUE.unpack_from(record.value)
    if version < 0 or value_version < 0:
        raise CorruptRecords(f"the control record at offset {record.offset} has a negative version")
    return Marker(kind == _COMMIT, epoch)


def build_marker(
    marker: Marker, *, producer_id: int, producer_epoch: int, timestamp: int, base_offset: int = 0, leader_epoch: int = -1
) -> bytes:
    """The control batch with `marker` for this producer. `timestamp` in ms."""
    key, value = _KEY.pack(0, _COMMIT if marker.committed else _ABORT), _VALUE.pack(0, marker.coordinator_epoch)
    return build(
        [Record(base_offset, timestamp, key, value)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        leader_epoch=leader_epoch,
        transactional=True,
        control=True,
    )
