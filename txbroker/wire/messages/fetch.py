"""Fetch (key 1): versions 0-18, flexible from 12."""

from __future__ import annotations

from txbroker.wire.schema import Int8, Int16, Int32, Int64, Records, Request, Response, String, Struct, Uuid, v


class ReplicaState(Struct):
    replica_id: Int32 = v("15+", default=-1)
    replica_epoch: Int64 = v("15+", default=-1)


class FetchPartition(Struct):
    partition: Int32
    current_leader_epoch: Int32 = v("9+", default=-1, ignorable=True)
    fetch_offset: Int64
    last_fetched_epoch: Int32 = v("12+", default=-1)
    log_start_offset: Int64 = v("5+", default=-1, ignorable=True)
    partition_max_bytes: Int32
    replica_directory_id: Uuid = v("17+", default=bytes(16), tag=0, ignorable=True)
    high_watermark: Int64 = v("18+", default=9223372036854775807, tag=1, ignorable=True)


class FetchTopic(Struct):
    topic: String = v("0-12", default="", ignorable=True)
    topic_id: Uuid = v("13+", default=bytes(16), ignorable=True)
    partitions: list[FetchPartition]


class ForgottenTopic(Struct):
    topic: String = v("7-12", default="", ignorable=True)
    topic_id: Uuid = v("13+", default=bytes(16), ignorable=True)
    partitions: list[Int32] = v("7+", factory=list)


class FetchRequest(Request, key=1, versions="0-18", flexible="12+"):
    cluster_id: String | None = v("12+", default=None, tag=0, ignorable=True)
    replica_id: Int32 = v("0-14", default=-1)
    replica_state: ReplicaState = v("15+", factory=ReplicaState, tag=1)
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = v("3+", default=2147483647, ignorable=True)
    isolation_level: Int8 = v("4+", default=0, ignorable=True)
    session_id: Int32 = v("7+", default=0, ignorable=True)
    session_epoch: Int32 = v("7+", default=-1, ignorable=True)
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic] = v("7+", factory=list)
    rack_id: String = v("11+", default="", ignorable=True)


class EpochEndOffset(Struct):
    epoch: Int32 = v("12+", default=-1)
    end_offset: Int64 = v("12+", default=-1)


class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = v("12+", default=-1)
    leader_epoch: Int32 = v("12+", default=-1)


class SnapshotId(Struct):
    end_offset: Int64 = v(default=-1)
    epoch: Int32 = v(default=-1)


class AbortedTransaction(Struct):
    producer_id: Int64 = v("4+", default=0)
    first_offset: Int64 = v("4+", default=0)


class PartitionData(Struct):
    partition_index: Int32
    error_code: Int16
    high_watermark: Int64
    last_stable_offset: Int64 = v("4+", default=-1, ignorable=True)
    log_start_offset: Int64 = v("5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = v("12+", factory=EpochEndOffset, tag=0)
    current_leader: LeaderIdAndEpoch = v("12+", factory=LeaderIdAndEpoch, tag=1)
    snapshot_id: SnapshotId = v("12+", factory=SnapshotId, tag=2)
    aborted_transactions: list[AbortedTransaction] | None = v("4+", factory=list, ignorable=True)
    preferred_read_replica: Int32 = v("11+", default=-1)
    records: Records | None


class FetchableTopicResponse(Struct):
    topic: String = v("0-12", default="", ignorable=True)
    topic_id: Uuid = v("13+", default=bytes(16), ignorable=True)
    partitions: list[PartitionData]


class NodeEndpoint(Struct):
    node_id: Int32 = v("16+", default=0)
    host: String = v("16+", default="")
    port: Int32 = v("16+", default=0)
    rack: String | None = v("16+", default=None)


class FetchResponse(Response, key=1, versions="0-18", flexible="12+"):
    throttle_time_ms: Int32 = v("1+", default=0, ignorable=True)
    error_code: Int16 = v("7+", default=0, ignorable=True)
    session_id: Int32 = v("7+", default=0)
    responses: list[FetchableTopicResponse]
    node_endpoints: list[NodeEndpoint] = v("16+", factory=list, tag=0)
