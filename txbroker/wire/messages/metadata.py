"""Metadata (key 3): versions 0-13, flexible from 9."""

from __future__ import annotations

from txbroker.wire.schema import Bool, Int16, Int32, Request, Response, String, Struct, Uuid, v


class MetadataRequestTopic(Struct):
    topic_id: Uuid = v("10+", default=bytes(16), ignorable=True)
    name: String | None = v(nullable="10+")


class MetadataRequest(Request, key=3, versions="0-13", flexible="9+"):
    topics: list[MetadataRequestTopic] | None = v(nullable="1+")
    allow_auto_topic_creation: Bool = v("4+", default=True)
    include_cluster_authorized_operations: Bool = v("8-10", default=False)
    include_topic_authorized_operations: Bool = v("8+", default=False)


class MetadataResponseBroker(Struct):
    node_id: Int32
    host: String
    port: Int32
    rack: String | None = v("1+", default=None, ignorable=True)


class MetadataResponsePartition(Struct):
    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = v("7+", default=-1, ignorable=True)
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    offline_replicas: list[Int32] = v("5+", factory=list, ignorable=True)


class MetadataResponseTopic(Struct):
    error_code: Int16
    name: String | None = v(nullable="12+")
    topic_id: Uuid = v("10+", default=bytes(16), ignorable=True)
    is_internal: Bool = v("1+", default=False, ignorable=True)
    partitions: list[MetadataResponsePartition]
    topic_authorized_operations: Int32 = v("8+", default=-2147483648)


class MetadataResponse(Response, key=3, versions="0-13", flexible="9+"):
    throttle_time_ms: Int32 = v("3+", default=0, ignorable=True)
    brokers: list[MetadataResponseBroker]
    cluster_id: String | None = v("2+", default=None, ignorable=True)
    controller_id: Int32 = v("1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic]
    cluster_authorized_operations: Int32 = v("8-10", default=-2147483648)
    error_code: Int16 = v("13+", default=0, ignorable=True)
