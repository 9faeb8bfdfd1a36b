"""ElectLeaders (key 43): versions 0-2, flexible from 2."""

from __future__ import annotations

from txbroker.wire.schema import Int8, Int16, Int32, Request, Response, String, Struct, v


class TopicPartitions(Struct):
    topic: String
    partitions: list[Int32]


class ElectLeadersRequest(Request, key=43, versions="0-2", flexible="2+"):
    election_type: Int8 = v("1+", default=0)
    topic_partitions: list[TopicPartitions] | None
    timeout_ms: Int32 = v(default=60000)


class PartitionResult(Struct):
    partition_id: Int32
    error_code: Int16
    error_message: String | None


class ReplicaElectionResult(Struct):
    topic: String
    partition_result: list[PartitionResult]


class ElectLeadersResponse(Response, key=43, versions="0-2", flexible="2+"):
    throttle_time_ms: Int32
    error_code: Int16 = v("1+", default=0)
    replica_election_results: list[ReplicaElectionResult]
