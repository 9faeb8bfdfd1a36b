"""DescribeQuorum (key 55): versions 0-2, flexible from 0."""

from __future__ import annotations

from txbroker.wire.schema import Int16, Int32, Int64, Request, Response, String, Struct, Uint16, Uuid, v


class PartitionData(Struct):
    partition_index: Int32


class TopicData(Struct):
    topic_name: String
    partitions: list[PartitionData]


class DescribeQuorumRequest(Request, key=55, versions="0-2", flexible="0+"):
    topics: list[TopicData]


class ReplicaState(Struct):
    replica_id: Int32
    replica_directory_id: Uuid = v("2+", default=bytes(16))
    log_end_offset: Int64
    last_fetch_timestamp: Int64 = v("1+", default=-1, ignorable=True)
    last_caught_up_timestamp: Int64 = v("1+", default=-1, ignorable=True)


class PartitionDataResult(Struct):
    partition_index: Int32
    error_code: Int16
    error_message: String | None = v("2+", default="", ignorable=True)
    leader_id: Int32
    leader_epoch: Int32
    high_watermark: Int64
    current_voters: list[ReplicaState]
    observers: list[ReplicaState]


class TopicDataResult(Struct):
    topic_name: String
    partitions: list[PartitionDataResult]


class Listener(Struct):
    name: String = v("2+", default="")
    host: String = v("2+", default="")
    port: Uint16 = v("2+", default=0)


class Node(Struct):
    node_id: Int32 = v("2+", default=0)
    listeners: list[Listener] = v("2+", factory=list)


class DescribeQuorumResponse(Response, key=55, versions="0-2", flexible="0+"):
    error_code: Int16
    error_message: String | None = v("2+", default="", ignorable=True)
    topics: list[TopicDataResult]
    nodes: list[Node] = v("2+", factory=list)
