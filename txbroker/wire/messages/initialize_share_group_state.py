"""InitializeShareGroupState (key 83): versions 0, flexible from 0."""

from __future__ import annotations

from txbroker.wire.schema import Int16, Int32, Int64, Request, Response, String, Struct, Uuid, v


class PartitionData(Struct):
    partition: Int32
    state_epoch: Int32
    start_offset: Int64


class InitializeStateData(Struct):
    topic_id: Uuid
    partitions: list[PartitionData]


class InitializeShareGroupStateRequest(Request, key=83, versions="0", flexible="0+"):
    group_id: String
    topics: list[InitializeStateData]


class PartitionResult(Struct):
    partition: Int32
    error_code: Int16
    error_message: String | None = v(default=None)


class InitializeStateResult(Struct):
    topic_id: Uuid
    partitions: list[PartitionResult]


class InitializeShareGroupStateResponse(Response, key=83, versions="0", flexible="0+"):
    results: list[InitializeStateResult]
