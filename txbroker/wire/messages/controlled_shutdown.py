"""ControlledShutdown (key 7): versions 0-3, flexible from 3."""

from __future__ import annotations

from txbroker.wire.schema import Int16, Int32, Int64, Request, Response, String, Struct, v


class ControlledShutdownRequest(Request, key=7, versions="0-3", flexible="3+"):
    broker_id: Int32
    broker_epoch: Int64 = v("2+", default=-1, ignorable=True)


class RemainingPartition(Struct):
    topic_name: String
    partition_index: Int32


class ControlledShutdownResponse(Response, key=7, versions="0-3", flexible="3+"):
    error_code: Int16
    remaining_partitions: list[RemainingPartition]
