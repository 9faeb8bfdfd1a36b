"""ShareFetch (key 78): versions 0-2, flexible from 0."""

from __future__ import annotations

from txbroker.wire.schema import Bool, Int8, Int16, Int32, Int64, Records, Request, Response, String, Struct, Uuid, v


class AcknowledgementBatch(Struct):
    first_offset: Int64
    last_offset: Int64
    acknowledge_types: list[Int8]


class FetchPartition(Struct):
    partition_index: Int32
    partition_max_bytes: Int32 = v("0", default=0)
    acknowledgement_batches: list[AcknowledgementBatch]


class FetchTopic(Struct):
    topic_id: Uuid
    partitions: list[FetchPartition]


class ForgottenTopic(Struct):
    topic_id: Uuid
    partitions: list[Int32]


class ShareFetchRequest(Request, key=78, versions="0-2", flexible="0+"):
    group_id: String | None = v(default=None)
    member_id: String | None
    share_session_epoch: Int32
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = v(default=2147483647)
    max_records: Int32 = v("1+", default=0)
    batch_size: Int32 = v("1+", default=0)
    share_acquire_mode: Int8 = v("2+", default=0, ignorable=True)
    is_renew_ack: Bool = v("2+", default=False)
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic]


class LeaderIdAndEpoch(Struct):
    leader_id: Int32
    leader_epoch: Int32


class AcquiredRecords(Struct):
    first_offset: Int64
    last_offset: Int64
    delivery_count: Int16


class PartitionData(Struct):
    partition_index: Int32
    error_code: Int16
    error_message: String | None = v(default=None)
    acknowledge_error_code: Int16
    acknowledge_error_message: String | None = v(default=None)
    current_leader: LeaderIdAndEpoch
    records: Records | None = v(nullable="0")
    acquired_records: list[AcquiredRecords]


class ShareFetchableTopicResponse(Struct):
    topic_id: Uuid
    partitions: list[PartitionData]


class NodeEndpoint(Struct):
    node_id: Int32
    host: String
    port: Int32
    rack: String | None = v(default=None)


class ShareFetchResponse(Response, key=78, versions="0-2", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = v(default=None)
    acquisition_lock_timeout_ms: Int32 = v("1+", default=0)
    responses: list[ShareFetchableTopicResponse]
    node_endpoints: list[NodeEndpoint]
