"""CreateTopics (key 19): versions 0-7, flexible from 5."""

from __future__ import annotations

from txbroker.wire.schema import Bool, Int8, Int16, Int32, Request, Response, String, Struct, Uuid, v


class CreatableReplicaAssignment(Struct):
    partition_index: Int32
    broker_ids: list[Int32]


class CreatableTopicConfig(Struct):
    name: String
    value: String | None


class CreatableTopic(Struct):
    name: String
    num_partitions: Int32
    replication_factor: Int16
    assignments: list[CreatableReplicaAssignment]
    configs: list[CreatableTopicConfig]


class CreateTopicsRequest(Request, key=19, versions="0-7", flexible="5+"):
    topics: list[CreatableTopic]
    timeout_ms: Int32 = v(default=60000)
    validate_only: Bool = v("1+", default=False)


class CreatableTopicConfigs(Struct):
    name: String = v("5+", default="")
    value: String | None = v("5+", default="")
    read_only: Bool = v("5+", default=False)
    config_source: Int8 = v("5+", default=-1, ignorable=True)
    is_sensitive: Bool = v("5+", default=False)


class CreatableTopicResult(Struct):
    name: String
    topic_id: Uuid = v("7+", default=bytes(16), ignorable=True)
    error_code: Int16
    error_message: String | None = v("1+", default="", ignorable=True)
    topic_config_error_code: Int16 = v("5+", default=0, tag=0, ignorable=True)
    num_partitions: Int32 = v("5+", default=-1, ignorable=True)
    replication_factor: Int16 = v("5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = v("5+", factory=list, ignorable=True)


class CreateTopicsResponse(Response, key=19, versions="0-7", flexible="5+"):
    throttle_time_ms: Int32 = v("2+", default=0, ignorable=True)
    topics: list[CreatableTopicResult]
