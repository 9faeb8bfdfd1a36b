"""Produce (key 0): versions 0-13, flexible from 9."""

from __future__ import annotations

from txbroker.wire.schema import Int16, Int32, Int64, Records, Request, Response, String, Struct, Uuid, v


class PartitionProduceData(Struct):
    index: Int32
    records: Records | None


class TopicProduceData(Struct):
    name: String = v("0-12", default="", ignorable=True)
    topic_id: Uuid = v("13+", default=bytes(16), ignorable=True)
    partition_data: list[PartitionProduceData]


class ProduceRequest(Request, key=0, versions="0-13", flexible="9+"):
    transactional_id: String | None = v("3+", default=None)
    acks: Int16
    timeout_ms: Int32
    topic_data: list[TopicProduceData]


class BatchIndexAndErrorMessage(Struct):
    batch_index: Int32 = v("8+", default=0)
    batch_index_error_message: String | None = v("8+", default=None)


class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = v("10+", default=-1)
    leader_epoch: Int32 = v("10+", default=-1)


class PartitionProduceResponse(Struct):
    index: Int32
    error_code: Int16
    base_offset: Int64
    log_append_time_ms: Int64 = v("2+", default=-1, ignorable=True)
    log_start_offset: Int64 = v("5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = v("8+", factory=list, ignorable=True)
    error_message: String | None = v("8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = v("10+", factory=LeaderIdAndEpoch, tag=0)


class TopicProduceResponse(Struct):
    name: String = v("0-12", default="", ignorable=True)
    topic_id: Uuid = v("13+", default=bytes(16), ignorable=True)
    partition_responses: list[PartitionProduceResponse]


class NodeEndpoint(Struct):
    node_id: Int32 = v("10+", default=0)
    host: String = v("10+", default="")
    port: Int32 = v("10+", default=0)
    rack: String | None = v("10+", default=None)


class ProduceResponse(Response, key=0, versions="0-13", flexible="9+"):
    responses: list[TopicProduceResponse]
    throttle_time_ms: Int32 = v("1+", default=0, ignorable=True)
    node_endpoints: list[NodeEndpoint] = v("10+", factory=list, tag=0)
