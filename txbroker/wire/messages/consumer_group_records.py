"""Records of `__consumer_offsets` that the new consumer groups write (KIP-848). The version of a key says what the record is."""

from __future__ import annotations

from txbroker.wire.schema import Bytes, Data, Int8, Int32, Int64, String, Struct, Uuid, v


class ConsumerGroupMetadataKey(Data, versions="3"):
    group_id: String


class ConsumerGroupMetadataValue(Data, versions="0", flexible="0+"):
    epoch: Int32
    metadata_hash: Int64 = v(default=0, tag=0)


class ConsumerGroupPartitionMetadataKey(Data, versions="4"):
    group_id: String


class PartitionMetadata(Struct):
    partition: Int32
    racks: list[String]


class TopicMetadata(Struct):
    topic_id: Uuid
    topic_name: String
    num_partitions: Int32
    partition_metadata: list[PartitionMetadata]


class ConsumerGroupPartitionMetadataValue(Data, versions="0", flexible="0+"):
    topics: list[TopicMetadata]


class ConsumerGroupMemberMetadataKey(Data, versions="5"):
    group_id: String
    member_id: String


class ClassicProtocol(Struct):
    name: String
    metadata: Bytes


class ClassicMemberMetadata(Struct):
    session_timeout_ms: Int32 = v(default=0)
    supported_protocols: list[ClassicProtocol] = v(factory=list)


class ConsumerGroupMemberMetadataValue(Data, versions="0", flexible="0+"):
    instance_id: String | None
    rack_id: String | None
    client_id: String
    client_host: String
    subscribed_topic_names: list[String]
    subscribed_topic_regex: String | None
    rebalance_timeout_ms: Int32 = v(default=-1)
    server_assignor: String | None
    classic_member_metadata: ClassicMemberMetadata | None = v(factory=ClassicMemberMetadata, tag=0)


class ConsumerGroupTargetAssignmentMetadataKey(Data, versions="6"):
    group_id: String


class ConsumerGroupTargetAssignmentMetadataValue(Data, versions="0", flexible="0+"):
    assignment_epoch: Int32
    assignment_timestamp: Int64 = v(default=0, tag=0, ignorable=True)


class ConsumerGroupTargetAssignmentMemberKey(Data, versions="7"):
    group_id: String
    member_id: String


class TopicPartition(Struct):
    topic_id: Uuid
    partitions: list[Int32]


class ConsumerGroupTargetAssignmentMemberValue(Data, versions="0", flexible="0+"):
    topic_partitions: list[TopicPartition]


class ConsumerGroupCurrentMemberAssignmentKey(Data, versions="8"):
    group_id: String
    member_id: String


class TopicPartitions(Struct):
    topic_id: Uuid
    partitions: list[Int32]
    assignment_epochs: list[Int32] | None = v(factory=list, tag=0)


class ConsumerGroupCurrentMemberAssignmentValue(Data, versions="0", flexible="0+"):
    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[TopicPartitions]
    partitions_pending_revocation: list[TopicPartitions]


class ConsumerGroupRegularExpressionKey(Data, versions="16"):
    group_id: String
    regular_expression: String


class ConsumerGroupRegularExpressionValue(Data, versions="0", flexible="0+"):
    topics: list[String]
    version: Int64
    timestamp: Int64
