"""Records of `__consumer_offsets` that groups of Kafka Streams write (KIP-1071). The version of a key says what the record is."""

from __future__ import annotations

from txbroker.wire.schema import Data, Int8, Int16, Int32, Int64, String, Struct, Uint16, v


class StreamsGroupMetadataKey(Data, versions="17"):
    group_id: String


class LastAssignmentConfig(Struct):
    key: String
    value: String


class StreamsGroupMetadataValue(Data, versions="0", flexible="0+"):
    epoch: Int32
    metadata_hash: Int64
    validated_topology_epoch: Int32 = v(default=-1, tag=0)
    last_assignment_configs: list[LastAssignmentConfig] | None = v(factory=list, tag=1)


class StreamsGroupMemberMetadataKey(Data, versions="19"):
    group_id: String
    member_id: String


class Endpoint(Struct):
    host: String
    port: Uint16


class KeyValue(Struct):
    key: String
    value: String


class StreamsGroupMemberMetadataValue(Data, versions="0", flexible="0+"):
    instance_id: String | None
    rack_id: String | None
    client_id: String
    client_host: String
    rebalance_timeout_ms: Int32 = v(default=-1)
    topology_epoch: Int32
    process_id: String
    user_endpoint: Endpoint | None = v(default=None)
    client_tags: list[KeyValue]


class StreamsGroupTargetAssignmentMetadataKey(Data, versions="20"):
    group_id: String


class StreamsGroupTargetAssignmentMetadataValue(Data, versions="0", flexible="0+"):
    assignment_epoch: Int32
    assignment_timestamp: Int64 = v(default=0, tag=0, ignorable=True)


class StreamsGroupTargetAssignmentMemberKey(Data, versions="21"):
    group_id: String
    member_id: String


class StreamsGroupTargetAssignmentMemberTaskIds(Struct):
    subtopology_id: String
    partitions: list[Int32]


class StreamsGroupTargetAssignmentMemberValue(Data, versions="0", flexible="0+"):
    active_tasks: list[StreamsGroupTargetAssignmentMemberTaskIds]
    standby_tasks: list[StreamsGroupTargetAssignmentMemberTaskIds]
    warmup_tasks: list[StreamsGroupTargetAssignmentMemberTaskIds]


class StreamsGroupCurrentMemberAssignmentKey(Data, versions="22"):
    group_id: String
    member_id: String


class StreamsGroupCurrentMemberAssignmentTaskIds(Struct):
    subtopology_id: String
    partitions: list[Int32]
    assignment_epochs: list[Int32] | None = v(factory=list, tag=0)


class StreamsGroupCurrentMemberAssignmentValue(Data, versions="0", flexible="0+"):
    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    active_tasks: list[StreamsGroupCurrentMemberAssignmentTaskIds]
    standby_tasks: list[StreamsGroupCurrentMemberAssignmentTaskIds]
    warmup_tasks: list[StreamsGroupCurrentMemberAssignmentTaskIds]
    active_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentTaskIds]
    standby_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentTaskIds]
    warmup_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentTaskIds]


class StreamsGroupTopologyKey(Data, versions="23"):
    group_id: String


class TopicConfig(Struct):
    key: String
    value: String


class TopicInfo(Struct):
    name: String
    partitions: Int32
    replication_factor: Int16
    topic_configs: list[TopicConfig]


class CopartitionGroup(Struct):
    source_topics: list[Int16]
    source_topic_regex: list[Int16]
    repartition_source_topics: list[Int16]


class Subtopology(Struct):
    subtopology_id: String
    source_topics: list[String]
    source_topic_regex: list[String]
    state_changelog_topics: list[TopicInfo]
    repartition_sink_topics: list[String]
    repartition_source_topics: list[TopicInfo]
    copartition_groups: list[CopartitionGroup]


class StreamsGroupTopologyValue(Data, versions="0", flexible="0+"):
    epoch: Int32
    subtopologies: list[Subtopology]
