"""ShareGroupHeartbeat (key 76): versions 0-1, flexible from 0."""

from __future__ import annotations

from txbroker.wire.schema import Int16, Int32, Request, Response, String, Struct, Uuid, v


class ShareGroupHeartbeatRequest(Request, key=76, versions="0-1", flexible="0+"):
    group_id: String
    member_id: String
    member_epoch: Int32
    rack_id: String | None = v(default=None)
    subscribed_topic_names: list[String] | None = v(default=None)


class TopicPartitions(Struct):
    topic_id: Uuid
    partitions: list[Int32]


class Assignment(Struct):
    topic_partitions: list[TopicPartitions]


class ShareGroupHeartbeatResponse(Response, key=76, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = v(default=None)
    member_id: String | None = v(default=None)
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: Assignment | None = v(default=None)
