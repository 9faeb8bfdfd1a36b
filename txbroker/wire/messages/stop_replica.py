"""StopReplica (key 5): versions 0-4, flexible from 2."""

from __future__ import annotations

from txbroker.wire.schema import Bool, Int16, Int32, Int64, Request, Response, String, Struct, v


class StopReplicaPartitionV0(Struct):
    topic_name: String = v("0", default="")
    partition_index: Int32 = v("0", default=0)


class StopReplicaTopicV1(Struct):
    name: String = v("1-2", default="")
    partition_indexes: list[Int32] = v("1-2", factory=list)


class StopReplicaPartitionState(Struct):
    partition_index: Int32 = v("3+", default=0)
    leader_epoch: Int32 = v("3+", default=-1)
    delete_partition: Bool = v("3+", default=False)


class StopReplicaTopicState(Struct):
    topic_name: String = v("3+", default="")
    partition_states: list[StopReplicaPartitionState] = v("3+", factory=list)


class StopReplicaRequest(Request, key=5, versions="0-4", flexible="2+"):
    controller_id: Int32
    is_k_raft_controller: Bool = v("4+", default=False)
    controller_epoch: Int32
    broker_epoch: Int64 = v("1+", default=-1, ignorable=True)
    delete_partitions: Bool = v("0-2", default=False)
    ungrouped_partitions: list[StopReplicaPartitionV0] = v("0", factory=list)
    topics: list[StopReplicaTopicV1] = v("1-2", factory=list)
    topic_states: list[StopReplicaTopicState] = v("3+", factory=list)


class StopReplicaPartitionError(Struct):
    topic_name: String
    partition_index: Int32
    error_code: Int16


class StopReplicaResponse(Response, key=5, versions="0-4", flexible="2+"):
    error_code: Int16
    partition_errors: list[StopReplicaPartitionError]
