"""ListOffsets (key 2): versions 0-11, flexible from 6."""

from __future__ import annotations

from txbroker.wire.schema import Int8, Int16, Int32, Int64, Request, Response, String, Struct, v


class ListOffsetsPartition(Struct):
    partition_index: Int32
    current_leader_epoch: Int32 = v("4+", default=-1, ignorable=True)
    timestamp: Int64
    max_num_offsets: Int32 = v("0", default=1)


class ListOffsetsTopic(Struct):
    name: String
    partitions: list[ListOffsetsPartition]


class ListOffsetsRequest(Request, key=2, versions="0-11", flexible="6+"):
    replica_id: Int32
    isolation_level: Int8 = v("2+", default=0)
    topics: list[ListOffsetsTopic]
    timeout_ms: Int32 = v("10+", default=0, ignorable=True)


class ListOffsetsPartitionResponse(Struct):
    partition_index: Int32
    error_code: Int16
    old_style_offsets: list[Int64] = v("0", factory=list)
    timestamp: Int64 = v("1+", default=-1)
    offset: Int64 = v("1+", default=-1)
    leader_epoch: Int32 = v("4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    name: String
    partitions: list[ListOffsetsPartitionResponse]


class ListOffsetsResponse(Response, key=2, versions="0-11", flexible="6+"):
    throttle_time_ms: Int32 = v("2+", default=0, ignorable=True)
    topics: list[ListOffsetsTopicResponse]
