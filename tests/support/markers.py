"""Transaction markers as a transaction coordinator writes them."""

from __future__ import annotations

import struct

from txbroker.wire.control import Marker
from txbroker.wire.records import Record, build

_KEY = struct.Struct(">hh")  # version, type: 0 abort, 1 commit
_VALUE = struct.Struct(">hi")  # version, coordinator epoch


def build_marker(
    marker: Marker, *, producer_id: int, producer_epoch: int, timestamp: int, base_offset: int = 0, leader_epoch: int = -1
) -> bytes:
    """The control batch with `marker` for this producer. `timestamp` in ms."""
    key = _KEY.pack(0, int(marker.committed))
    return build(
        [Record(base_offset, timestamp, key, _VALUE.pack(0, marker.coordinator_epoch))],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        leader_epoch=leader_epoch,
        transactional=True,
        control=True,
    )
