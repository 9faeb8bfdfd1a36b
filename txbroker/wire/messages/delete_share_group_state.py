"""DeleteShareGroupState (key 86): versions 0, flexible from 0."""

from __future__ import annotations

from txbroker.wire.schema import Int16, Int32, Request, Response, String, Struct, Uuid, v


class PartitionData(Struct):
    partition: Int32


class DeleteStateData(Struct):
    topic_id: Uuid
    partitions: list[PartitionData]


class DeleteShareGroupStateRequest(Request, key=86, versions="0", flexible="0+"):
    group_id: String
    topics: list[DeleteStateData]


class PartitionResult(Struct):
    partition: Int32
    error_code: Int16
    error_message: String | None = v(default=None)


class DeleteStateResult(Struct):
    topic_id: Uuid
    partitions: list[PartitionResult]


class DeleteShareGroupStateResponse(Response, key=86, versions="0", flexible="0+"):
    results: list[DeleteStateResult]
