"""The controller's requests that wait for a broker which does not answer."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from txbroker.cluster.controller.request_batch import ControllerRequest
from txbroker.cluster.controller.waiting_requests import WaitingRequests
from txbroker.cluster.image import FULL
from txbroker.wire.codec import encode_bytes
from txbroker.wire.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from txbroker.wire.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from txbroker.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

VERSIONS: dict[type, int] = {LeaderAndIsrRequest: 7, UpdateMetadataRequest: 8, StopReplicaRequest: 4}


def topic_id(number: int) -> bytes:
    return bytes(15) + bytes([number])


def role(topic: str, partition: int, epoch: int, *, leader: int = 1, is_new: bool = False, id_number: int = 1) -> LeaderAndIsrRequest:
    state = LeaderAndIsrPartitionState(partition_index=partition, controller_epoch=1, leader=leader, leader_epoch=epoch, isr=[1],
                                       partition_epoch=epoch, replicas=[1], is_new=is_new)  # fmt: skip
    led = LeaderAndIsrTopicState(topic_name=topic, topic_id=topic_id(id_number), partition_states=[state])
    live = [LeaderAndIsrLiveLeader(broker_id=leader, host_name=f"at-{epoch}", port=1)]
    return LeaderAndIsrRequest(controller_id=1, controller_epoch=1, broker_epoch=7, topic_states=[led], live_leaders=live)


def metadata(topic: str, partition: int, epoch: int, *, live: int = 1, id_number: int = 1) -> UpdateMetadataRequest:
    state = UpdateMetadataPartitionState(
        partition_index=partition, controller_epoch=1, leader=1, leader_epoch=epoch, isr=[1], zk_version=epoch, replicas=[1]
    )
    known = UpdateMetadataTopicState(topic_name=topic, topic_id=topic_id(id_number), partition_states=[state])
    brokers = [UpdateMetadataBroker(id=broker, endpoints=[]) for broker in range(live)]
    return UpdateMetadataRequest(controller_id=1, controller_epoch=1, broker_epoch=7, topic_states=[known], live_brokers=brokers)


def stop(topic: str, partition: int, *, delete: bool = False) -> StopReplicaRequest:
    state = StopReplicaPartitionState(partition_index=partition, leader_epoch=-2, delete_partition=delete)
    states = [StopReplicaTopicState(topic_name=topic, partition_states=[state])]
    return StopReplicaRequest(controller_id=1, controller_epoch=1, broker_epoch=7, topic_states=states)


def taken(waiting: WaitingRequests) -> list[ControllerRequest]:
    """All that waits; each can be encoded."""
    requests = [waiting.take() for _ in range(len(waiting))]
    for request in requests:
        encode_bytes(request, VERSIONS[type(request)])
    return requests


def states(request: Any) -> list[tuple[str, int, int, int]]:
    """Topic, number of its id, partition and leader epoch."""
    return [
        (topic.topic_name, topic.topic_id[-1], state.partition_index, state.leader_epoch)
        for topic in request.topic_states
        for state in topic.partition_states
    ]


def waiting_for(*requests: ControllerRequest) -> WaitingRequests:
    waiting = WaitingRequests()
    for request in requests:
        waiting.put(request)
    return waiting


def test_a_thousand_changes_for_a_silent_broker_wait_as_two_requests_with_the_last_states() -> None:
    waiting = waiting_for(metadata("t", 0, 0, live=9))
    taken(waiting)
    for epoch in range(1000):
        waiting.put(role("t", epoch % 3, epoch))
        waiting.put(metadata("t", epoch % 3, epoch, live=9 - epoch // 200))
    roles, known = taken(waiting)
    assert isinstance(roles, LeaderAndIsrRequest) and isinstance(known, UpdateMetadataRequest)
    last = [("t", 1, 0, 999), ("t", 1, 1, 997), ("t", 1, 2, 998)]
    assert sorted(states(roles)) == sorted(states(known)) == last
    assert [(leader.broker_id, leader.host_name) for leader in roles.live_leaders] == [(1, "at-999")]
    assert len(known.live_brokers) == 5 and roles.broker_epoch == known.broker_epoch == 7


def test_a_state_is_never_sent_to_clients_before_the_role() -> None:
    kinds = [type(request) for request in taken(waiting_for(metadata("t", 0, 1), role("t", 0, 2), metadata("t", 0, 2)))]
    assert kinds == [UpdateMetadataRequest, LeaderAndIsrRequest, UpdateMetadataRequest]


def test_a_role_does_not_overtake_the_address_of_a_leader_that_has_started() -> None:
    waiting = waiting_for(metadata("t", 0, 1, live=2))
    taken(waiting)
    for request in (role("t", 0, 2), metadata("t", 0, 2, live=3), role("t", 0, 3, leader=2), metadata("t", 0, 3, live=3)):
        waiting.put(request)
    assert [states(request)[0][-1] for request in taken(waiting)] == [2, 2, 3, 3]


def test_nothing_overtakes_a_stop() -> None:
    requests = [role("t", 0, 1), metadata("t", 0, 1), stop("t", 0), stop("t", 0, delete=True), metadata("t", 0, 2), role("t", 0, 2)]
    assert taken(waiting_for(*requests)) == requests


def test_a_log_that_was_to_be_created_is_still_created() -> None:
    first, second = role("t", 0, 0, is_new=True), role("t", 0, 1)
    (merged,) = taken(waiting_for(first, second))
    (state,) = merged.topic_states[0].partition_states
    assert isinstance(state, LeaderAndIsrPartitionState)
    assert state.is_new and state.leader_epoch == 1
    assert not second.topic_states[0].partition_states[0].is_new, "the request of another broker"


def test_a_topic_that_was_created_again_is_another_one() -> None:
    (merged,) = taken(waiting_for(metadata("t", 0, 5), metadata("t", 0, 0, id_number=2)))
    assert states(merged) == [("t", 1, 0, 5), ("t", 2, 0, 0)]


@pytest.mark.parametrize("first", [True, False])
def test_a_full_request_stays_one(first: bool) -> None:
    full, other = metadata("t", 0, 5), metadata("u", 0, 0)
    full.type = FULL
    (merged,) = taken(waiting_for(*((full, other) if first else (other, full))))
    assert isinstance(merged, UpdateMetadataRequest)
    assert merged.type == FULL
    assert len(states(merged)) == 2
    assert other.type != FULL, "the request of another broker"


def test_requests_that_are_shared_with_other_brokers_do_not_change() -> None:
    requests = [metadata("t", 0, 0), metadata("t", 1, 0)]
    before = [encode_bytes(request, 8) for request in requests]
    taken(waiting_for(*requests))
    assert [encode_bytes(request, 8) for request in requests] == before


@pytest.mark.parametrize("seed", range(20))
def test_a_broker_ends_with_the_same_states_as_without_merging(seed: int) -> None:
    random = Random(seed)
    requests: list[ControllerRequest] = []
    for epoch in range(60):
        partition = random.randrange(3)
        kind = random.choice((role, role, metadata, metadata, stop))
        requests.append(stop("t", partition) if kind is stop else kind("t", partition, epoch))

    def outcome(sent: list[ControllerRequest]) -> dict[tuple[bool, int], int]:
        """Roles and metadata by partition, as a broker has them in the end."""
        found: dict[tuple[bool, int], int] = {}
        for request in sent:
            for topic in request.topic_states:
                for state in topic.partition_states:
                    key = isinstance(request, UpdateMetadataRequest), state.partition_index
                    found[key] = -1 if isinstance(request, StopReplicaRequest) else state.leader_epoch
        return found

    merged = taken(waiting_for(*requests))
    assert len(merged) < len(requests) and outcome(merged) == outcome(requests)
