"""AlterPartition (key 56): versions 0-3, flexible from 0."""

from __future__ import annotations

from txbroker.wire.schema import Int8, Int16, Int32, Int64, Request, Response, String, Struct, Uuid, v


class BrokerState(Struct):
    broker_id: Int32 = v("3+", default=0)
    broker_epoch: Int64 = v("3+", default=-1)


class PartitionData(Struct):
    partition_index: Int32
    leader_epoch: Int32
    new_isr: list[Int32] = v("0-2", factory=list)
    new_isr_with_epochs: list[BrokerState] = v("3+", factory=list)
    leader_recovery_state: Int8 = v("1+", default=0)
    partition_epoch: Int32


class TopicData(Struct):
    topic_name: String = v("0-1", default="", ignorable=True)
    topic_id: Uuid = v("2+", default=bytes(16), ignorable=True)
    partitions: list[PartitionData]


class AlterPartitionRequest(Request, key=56, versions="0-3", flexible="0+"):
    broker_id: Int32
    broker_epoch: Int64 = v(default=-1)
    topics: list[TopicData]


class PartitionDataResult(Struct):
    partition_index: Int32
    error_code: Int16
    leader_id: Int32
    leader_epoch: Int32
    isr: list[Int32]
    leader_recovery_state: Int8 = v("1+", default=0, ignorable=True)
    partition_epoch: Int32


class TopicDataResult(Struct):
    topic_name: String = v("0-1", default="", ignorable=True)
    topic_id: Uuid = v("2+", default=bytes(16), ignorable=True)
    partitions: list[PartitionDataResult]


class AlterPartitionResponse(Response, key=56, versions="0-3", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    topics: list[TopicDataResult]
