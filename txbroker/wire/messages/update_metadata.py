"""UpdateMetadata (key 6): versions 0-8, flexible from 6."""

from __future__ import annotations

from txbroker.wire.schema import Bool, Int8, Int16, Int32, Int64, Request, Response, String, Struct, Uuid, v


class UpdateMetadataPartitionState(Struct):
    topic_name: String = v("0-4", default="", ignorable=True)
    partition_index: Int32
    controller_epoch: Int32
    leader: Int32
    leader_epoch: Int32
    isr: list[Int32]
    zk_version: Int32
    replicas: list[Int32]
    offline_replicas: list[Int32] = v("4+", factory=list, ignorable=True)


class UpdateMetadataTopicState(Struct):
    topic_name: String = v("5+", default="")
    topic_id: Uuid = v("7+", default=bytes(16), ignorable=True)
    partition_states: list[UpdateMetadataPartitionState] = v("5+", factory=list)


class UpdateMetadataEndpoint(Struct):
    port: Int32 = v("1+", default=0)
    host: String = v("1+", default="")
    listener: String = v("3+", default="", ignorable=True)
    security_protocol: Int16 = v("1+", default=0)


class UpdateMetadataBroker(Struct):
    id: Int32
    v0_host: String = v("0", default="", ignorable=True)
    v0_port: Int32 = v("0", default=0, ignorable=True)
    endpoints: list[UpdateMetadataEndpoint] = v("1+", factory=list, ignorable=True)
    rack: String | None = v("2+", default="", ignorable=True)


class UpdateMetadataRequest(Request, key=6, versions="0-8", flexible="6+"):
    controller_id: Int32
    is_k_raft_controller: Bool = v("8+", default=False)
    type: Int8 = v("8+", default=0, tag=0, ignorable=True)  # Kafka before 3.4 does not know it
    controller_epoch: Int32
    broker_epoch: Int64 = v("5+", default=-1, ignorable=True)
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = v("0-4", factory=list)
    topic_states: list[UpdateMetadataTopicState] = v("5+", factory=list)
    live_brokers: list[UpdateMetadataBroker]


class UpdateMetadataResponse(Response, key=6, versions="0-8", flexible="6+"):
    error_code: Int16
