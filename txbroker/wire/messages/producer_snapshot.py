"""ProducerSnapshot: versions 1. The content of a `.snapshot` file."""

from __future__ import annotations

from txbroker.wire.schema import Data, Int16, Int32, Int64, Struct, Uint32


class ProducerEntry(Struct):
    producer_id: Int64
    epoch: Int16
    last_sequence: Int32
    last_offset: Int64
    offset_delta: Int32
    timestamp: Int64
    coordinator_epoch: Int32
    current_txn_first_offset: Int64


class ProducerSnapshot(Data, versions="1"):
    crc: Uint32
    producer_entries: list[ProducerEntry]
