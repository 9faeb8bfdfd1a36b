"""AlterPartitionReassignments (key 45): versions 0-1, flexible from 0."""

from __future__ import annotations

from txbroker.wire.schema import Bool, Int16, Int32, Request, Response, String, Struct, v


class ReassignablePartition(Struct):
    partition_index: Int32
    replicas: list[Int32] | None = v(default=None)


class ReassignableTopic(Struct):
    name: String
    partitions: list[ReassignablePartition]


class AlterPartitionReassignmentsRequest(Request, key=45, versions="0-1", flexible="0+"):
    timeout_ms: Int32 = v(default=60000)
    allow_replication_factor_change: Bool = v("1+", default=True)
    topics: list[ReassignableTopic]


class ReassignablePartitionResponse(Struct):
    partition_index: Int32
    error_code: Int16
    error_message: String | None


class ReassignableTopicResponse(Struct):
    name: String
    partitions: list[ReassignablePartitionResponse]


class AlterPartitionReassignmentsResponse(Response, key=45, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32
    allow_replication_factor_change: Bool = v("1+", default=True, ignorable=True)
    error_code: Int16
    error_message: String | None
    responses: list[ReassignableTopicResponse]
