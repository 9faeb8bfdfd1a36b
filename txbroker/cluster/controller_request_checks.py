"""Checks the values of a controller's request before any of them is used: a request comes from the network."""

from __future__ import annotations

from collections.abc import Iterable

from txbroker.cluster.controller.request_batch import EPOCH_DURING_DELETE, ControllerRequest
from txbroker.cluster.image import LEADER_DURING_DELETE
from txbroker.cluster.node_data import NO_LEADER
from txbroker.errors import BrokerError, ErrorCode
from txbroker.names import check_topic_name
from txbroker.wire.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest
from txbroker.wire.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest
from txbroker.wire.messages.update_metadata import UpdateMetadataBroker, UpdateMetadataPartitionState, UpdateMetadataRequest


def check_values(request: ControllerRequest) -> None:
    """INVALID_REQUEST or INVALID_TOPIC_EXCEPTION for values that no controller sends."""
    if request.is_k_raft_controller:
        raise _invalid("it comes from a KRaft controller, and this broker takes requests of controllers on ZooKeeper only")
    _check(request.controller_id >= 0 and request.controller_epoch >= 0, "its controller id or controller epoch is negative")
    for topic in request.topic_states:
        check_topic_name(topic.topic_name)
    if isinstance(request, LeaderAndIsrRequest):
        for topic in request.topic_states:
            for role in topic.partition_states:
                _check_role(role)
    elif isinstance(request, UpdateMetadataRequest):
        for metadata in request.topic_states:
            for partition in metadata.partition_states:
                _check_partition(partition)
        for broker in request.live_brokers:
            _check_broker(broker)
    else:
        _check_stops(request)


def _check_role(role: LeaderAndIsrPartitionState) -> None:
    _check(role.partition_index >= 0, "a partition index is negative")
    _check(role.leader >= NO_LEADER and role.leader_epoch >= 0 and role.partition_epoch >= 0, "a leader or its epoch is negative")
    _check_replicas(role.replicas)
    _check_replicas(role.isr)


def _check_partition(partition: UpdateMetadataPartitionState) -> None:
    _check(partition.partition_index >= 0, "a partition index is negative")
    _check(partition.leader >= LEADER_DURING_DELETE, "a leader is negative")
    _check_replicas(partition.replicas)
    _check_replicas(partition.isr)
    _check_replicas(partition.offline_replicas)


def _check_broker(broker: UpdateMetadataBroker) -> None:
    _check(broker.id >= 0, "a broker id is negative")
    _check(all(0 <= endpoint.port <= 0xFFFF for endpoint in broker.endpoints), "a port is not between 0 and 65535")


def _check_stops(request: StopReplicaRequest) -> None:
    stops: Iterable[StopReplicaPartitionState] = (state for topic in request.topic_states for state in topic.partition_states)
    for stop in stops:
        _check(stop.partition_index >= 0 and stop.leader_epoch >= EPOCH_DURING_DELETE, "a partition index or leader epoch is negative")


def _check_replicas(replicas: list[int]) -> None:
    _check(not replicas or min(replicas) >= 0, "a replica's broker id is negative")
    _check(len(set(replicas)) == len(replicas), "a broker is listed twice among the replicas of a partition")


def _check(valid: bool, problem: str) -> None:
    if not valid:
        raise _invalid(problem)


def _invalid(problem: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REQUEST, f"the controller's request is refused: {problem}")
