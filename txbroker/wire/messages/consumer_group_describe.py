"""ConsumerGroupDescribe (key 69): versions 0-1, flexible from 0."""

from __future__ import annotations

from txbroker.wire.schema import Bool, Int8, Int16, Int32, Request, Response, String, Struct, Uuid, v


class ConsumerGroupDescribeRequest(Request, key=69, versions="0-1", flexible="0+"):
    group_ids: list[String]
    include_authorized_operations: Bool


class TopicPartitions(Struct):
    topic_id: Uuid
    topic_name: String
    partitions: list[Int32]


class Assignment(Struct):
    topic_partitions: list[TopicPartitions]


class Member(Struct):
    member_id: String
    instance_id: String | None = v(default=None)
    rack_id: String | None = v(default=None)
    member_epoch: Int32
    client_id: String
    client_host: String
    subscribed_topic_names: list[String]
    subscribed_topic_regex: String | None = v(default=None)
    assignment: Assignment
    target_assignment: Assignment
    member_type: Int8 = v("1+", default=-1, ignorable=True)


class DescribedGroup(Struct):
    error_code: Int16
    error_message: String | None = v(default=None)
    group_id: String
    group_state: String
    group_epoch: Int32
    assignment_epoch: Int32
    assignor_name: String
    members: list[Member]
    authorized_operations: Int32 = v(default=-2147483648)


class ConsumerGroupDescribeResponse(Response, key=69, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32
    groups: list[DescribedGroup]
