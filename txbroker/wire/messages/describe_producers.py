"""DescribeProducers (key 61): versions 0, flexible from 0."""

from __future__ import annotations

from txbroker.wire.schema import Int16, Int32, Int64, Request, Response, String, Struct, v


class TopicRequest(Struct):
    name: String
    partition_indexes: list[Int32]


class DescribeProducersRequest(Request, key=61, versions="0", flexible="0+"):
    topics: list[TopicRequest]


class ProducerState(Struct):
    producer_id: Int64
    producer_epoch: Int32
    last_sequence: Int32 = v(default=-1)
    last_timestamp: Int64 = v(default=-1)
    coordinator_epoch: Int32
    current_txn_start_offset: Int64 = v(default=-1)


class PartitionResponse(Struct):
    partition_index: Int32
    error_code: Int16
    error_message: String | None = v(default=None)
    active_producers: list[ProducerState]


class TopicResponse(Struct):
    name: String
    partitions: list[PartitionResponse]


class DescribeProducersResponse(Response, key=61, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    topics: list[TopicResponse]
