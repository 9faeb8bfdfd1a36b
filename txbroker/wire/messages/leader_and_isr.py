"""LeaderAndIsr (key 4): versions 0-7, flexible from 4."""

from __future__ import annotations

from txbroker.wire.schema import Bool, Int8, Int16, Int32, Int64, Request, Response, String, Struct, Uuid, v


class LeaderAndIsrPartitionState(Struct):
    topic_name: String = v("0-1", default="", ignorable=True)
    partition_index: Int32
    controller_epoch: Int32
    leader: Int32
    leader_epoch: Int32
    isr: list[Int32]
    partition_epoch: Int32
    replicas: list[Int32]
    adding_replicas: list[Int32] = v("3+", factory=list, ignorable=True)
    removing_replicas: list[Int32] = v("3+", factory=list, ignorable=True)
    is_new: Bool = v("1+", default=False, ignorable=True)
    leader_recovery_state: Int8 = v("6+", default=0)


class LeaderAndIsrTopicState(Struct):
    topic_name: String = v("2+", default="")
    topic_id: Uuid = v("5+", default=bytes(16), ignorable=True)
    partition_states: list[LeaderAndIsrPartitionState] = v("2+", factory=list)


class LeaderAndIsrLiveLeader(Struct):
    broker_id: Int32
    host_name: String
    port: Int32


class LeaderAndIsrRequest(Request, key=4, versions="0-7", flexible="4+"):
    controller_id: Int32
    is_k_raft_controller: Bool = v("7+", default=False)
    controller_epoch: Int32
    broker_epoch: Int64 = v("2+", default=-1, ignorable=True)
    type: Int8 = v("5+", default=0)
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = v("0-1", factory=list)
    topic_states: list[LeaderAndIsrTopicState] = v("2+", factory=list)
    live_leaders: list[LeaderAndIsrLiveLeader]


class LeaderAndIsrPartitionError(Struct):
    topic_name: String = v("0-4", default="", ignorable=True)
    partition_index: Int32
    error_code: Int16


class LeaderAndIsrTopicError(Struct):
    topic_id: Uuid = v("5+", default=bytes(16))
    partition_errors: list[LeaderAndIsrPartitionError] = v("5+", factory=list)


class LeaderAndIsrResponse(Response, key=4, versions="0-7", flexible="4+"):
    error_code: Int16
    partition_errors: list[LeaderAndIsrPartitionError] = v("0-4", factory=list)
    topics: list[LeaderAndIsrTopicError] = v("5+", factory=list)
