"""TransactionLogValue: versions 0-1. A record of `__transaction_state`."""

from __future__ import annotations

from txbroker.wire.schema import Data, Int8, Int16, Int32, Int64, String, Struct, v


class PartitionsSchema(Struct):
    topic: String
    partition_ids: list[Int32]


class TransactionLogValue(Data, versions="0-1", flexible="1+"):
    producer_id: Int64
    previous_producer_id: Int64 = v("1+", default=-1, tag=0)
    next_producer_id: Int64 = v("1+", default=-1, tag=1)
    producer_epoch: Int16
    next_producer_epoch: Int16 = v("1+", default=-1, tag=3)
    transaction_timeout_ms: Int32
    transaction_status: Int8
    transaction_partitions: list[PartitionsSchema] | None
    transaction_last_update_timestamp_ms: Int64
    transaction_start_timestamp_ms: Int64
    client_transaction_version: Int16 = v("1+", default=0, tag=2)
