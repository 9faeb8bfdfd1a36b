"""OffsetFetch (key 9): versions 0-10, flexible from 6."""

from __future__ import annotations

from txbroker.wire.schema import Bool, Int16, Int32, Int64, Request, Response, String, Struct, Uuid, v


class OffsetFetchRequestTopic(Struct):
    name: String = v("0-7", default="")
    partition_indexes: list[Int32] = v("0-7", factory=list)


class OffsetFetchRequestTopics(Struct):
    name: String = v("8-9", default="", ignorable=True)
    topic_id: Uuid = v("10+", default=bytes(16), ignorable=True)
    partition_indexes: list[Int32] = v("8+", factory=list)


class OffsetFetchRequestGroup(Struct):
    group_id: String = v("8+", default="")
    member_id: String | None = v("9+", default=None, ignorable=True)
    member_epoch: Int32 = v("9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = v("8+", factory=list)


class OffsetFetchRequest(Request, key=9, versions="0-10", flexible="6+"):
    group_id: String = v("0-7", default="")
    topics: list[OffsetFetchRequestTopic] | None = v("0-7", factory=list, nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = v("8+", factory=list)
    require_stable: Bool = v("7+", default=False)


class OffsetFetchResponsePartition(Struct):
    partition_index: Int32 = v("0-7", default=0)
    committed_offset: Int64 = v("0-7", default=0)
    committed_leader_epoch: Int32 = v("5-7", default=-1, ignorable=True)
    metadata: String | None = v("0-7", default="")
    error_code: Int16 = v("0-7", default=0)


class OffsetFetchResponseTopic(Struct):
    name: String = v("0-7", default="")
    partitions: list[OffsetFetchResponsePartition] = v("0-7", factory=list)


class OffsetFetchResponsePartitions(Struct):
    partition_index: Int32 = v("8+", default=0)
    committed_offset: Int64 = v("8+", default=0)
    committed_leader_epoch: Int32 = v("8+", default=-1, ignorable=True)
    metadata: String | None = v("8+", default="")
    error_code: Int16 = v("8+", default=0)


class OffsetFetchResponseTopics(Struct):
    name: String = v("8-9", default="", ignorable=True)
    topic_id: Uuid = v("10+", default=bytes(16), ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = v("8+", factory=list)


class OffsetFetchResponseGroup(Struct):
    group_id: String = v("8+", default="")
    topics: list[OffsetFetchResponseTopics] = v("8+", factory=list)
    error_code: Int16 = v("8+", default=0)


class OffsetFetchResponse(Response, key=9, versions="0-10", flexible="6+"):
    throttle_time_ms: Int32 = v("3+", default=0, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = v("0-7", factory=list)
    error_code: Int16 = v("2-7", default=0, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = v("8+", factory=list)
