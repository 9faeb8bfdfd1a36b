"""OffsetForLeaderEpoch (key 23): versions 0-4, flexible from 4."""

from __future__ import annotations

from txbroker.wire.schema import Int16, Int32, Int64, Request, Response, String, Struct, v


class OffsetForLeaderPartition(Struct):
    partition: Int32
    current_leader_epoch: Int32 = v("2+", default=-1, ignorable=True)
    leader_epoch: Int32


class OffsetForLeaderTopic(Struct):
    topic: String
    partitions: list[OffsetForLeaderPartition]


class OffsetForLeaderEpochRequest(Request, key=23, versions="0-4", flexible="4+"):
    replica_id: Int32 = v("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic]


class EpochEndOffset(Struct):
    error_code: Int16
    partition: Int32
    leader_epoch: Int32 = v("1+", default=-1, ignorable=True)
    end_offset: Int64 = v(default=-1)


class OffsetForLeaderTopicResult(Struct):
    topic: String
    partitions: list[EpochEndOffset]


class OffsetForLeaderEpochResponse(Response, key=23, versions="0-4", flexible="4+"):
    throttle_time_ms: Int32 = v("2+", default=0, ignorable=True)
    topics: list[OffsetForLeaderTopicResult]
