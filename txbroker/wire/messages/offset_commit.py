"""OffsetCommit (key 8): versions 0-10, flexible from 8."""

from __future__ import annotations

from txbroker.wire.schema import Int16, Int32, Int64, Request, Response, String, Struct, Uuid, v


class OffsetCommitRequestPartition(Struct):
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = v("6+", default=-1, ignorable=True)
    commit_timestamp: Int64 = v("1", default=-1)
    committed_metadata: String | None


class OffsetCommitRequestTopic(Struct):
    name: String = v("0-9", default="", ignorable=True)
    topic_id: Uuid = v("10+", default=bytes(16), ignorable=True)
    partitions: list[OffsetCommitRequestPartition]


class OffsetCommitRequest(Request, key=8, versions="0-10", flexible="8+"):
    group_id: String
    generation_id_or_member_epoch: Int32 = v("1+", default=-1, ignorable=True)
    member_id: String = v("1+", default="", ignorable=True)
    group_instance_id: String | None = v("7+", default=None)
    retention_time_ms: Int64 = v("2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic]


class OffsetCommitResponsePartition(Struct):
    partition_index: Int32
    error_code: Int16


class OffsetCommitResponseTopic(Struct):
    name: String = v("0-9", default="", ignorable=True)
    topic_id: Uuid = v("10+", default=bytes(16), ignorable=True)
    partitions: list[OffsetCommitResponsePartition]


class OffsetCommitResponse(Response, key=8, versions="0-10", flexible="8+"):
    throttle_time_ms: Int32 = v("3+", default=0, ignorable=True)
    topics: list[OffsetCommitResponseTopic]
