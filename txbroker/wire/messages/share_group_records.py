"""Records of `__consumer_offsets` that share groups write (KIP-932). The version of a key says what the record is."""

from __future__ import annotations

from txbroker.wire.schema import Data, Int8, Int32, Int64, String, Struct, Uuid, v


class ShareGroupMemberMetadataKey(Data, versions="10"):
    group_id: String
    member_id: String


class ShareGroupMemberMetadataValue(Data, versions="0", flexible="0+"):
    rack_id: String | None
    client_id: String
    client_host: String
    subscribed_topic_names: list[String]


class ShareGroupMetadataKey(Data, versions="11"):
    group_id: String


class ShareGroupMetadataValue(Data, versions="0", flexible="0+"):
    epoch: Int32
    metadata_hash: Int64


class ShareGroupTargetAssignmentMetadataKey(Data, versions="12"):
    group_id: String


class ShareGroupTargetAssignmentMetadataValue(Data, versions="0", flexible="0+"):
    assignment_epoch: Int32
    assignment_timestamp: Int64 = v(default=0, tag=0, ignorable=True)


class ShareGroupTargetAssignmentMemberKey(Data, versions="13"):
    group_id: String
    member_id: String


class TopicPartition(Struct):
    topic_id: Uuid
    partitions: list[Int32]


class ShareGroupTargetAssignmentMemberValue(Data, versions="0", flexible="0+"):
    topic_partitions: list[TopicPartition]


class ShareGroupCurrentMemberAssignmentKey(Data, versions="14"):
    group_id: String
    member_id: String


class TopicPartitions(Struct):
    topic_id: Uuid
    partitions: list[Int32]


class ShareGroupCurrentMemberAssignmentValue(Data, versions="0", flexible="0+"):
    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[TopicPartitions]


class ShareGroupStatePartitionMetadataKey(Data, versions="15"):
    group_id: String


class TopicPartitionsInfo(Struct):
    topic_id: Uuid
    topic_name: String
    partitions: list[Int32]


class TopicInfo(Struct):
    topic_id: Uuid
    topic_name: String


class ShareGroupStatePartitionMetadataValue(Data, versions="0", flexible="0+"):
    initializing_topics: list[TopicPartitionsInfo]
    initialized_topics: list[TopicPartitionsInfo]
    deleting_topics: list[TopicInfo]
