"""ConsumerProtocolAssignment: versions 0-3. What consumers put into JoinGroup and SyncGroup."""

from __future__ import annotations

from txbroker.wire.schema import Bytes, Data, Int32, String, Struct, v


class TopicPartition(Struct):
    topic: String
    partitions: list[Int32]


class ConsumerProtocolAssignment(Data, versions="0-3"):
    assigned_partitions: list[TopicPartition]
    user_data: Bytes | None = v(default=None)
