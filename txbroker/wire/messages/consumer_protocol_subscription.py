"""ConsumerProtocolSubscription: versions 0-3. What consumers put into JoinGroup and SyncGroup."""

from __future__ import annotations

from txbroker.wire.schema import Bytes, Data, Int32, String, Struct, v


class TopicPartition(Struct):
    topic: String = v("1+", default="")
    partitions: list[Int32] = v("1+", factory=list)


class ConsumerProtocolSubscription(Data, versions="0-3"):
    topics: list[String]
    user_data: Bytes | None = v(default=None)
    owned_partitions: list[TopicPartition] = v("1+", factory=list, ignorable=True)
    generation_id: Int32 = v("2+", default=-1, ignorable=True)
    rack_id: String | None = v("3+", default=None, ignorable=True)
