"""The controller's requests over real connections: carried out, refused, and repeated while the broker cannot be reached."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.client.test_twisted_connection import Turning
from tests.log_directories.support import TOPIC_ID
from tests.peers.network import Held, Node, channel, link
from txbroker.api.api_versions import ApiVersionsHandler
from txbroker.api.registry import Registry
from txbroker.client.client_errors import Closed
from txbroker.cluster.tree.interface import ConnectionLost
from txbroker.errors import BrokerError, ErrorCode
from txbroker.peers.peer_channel import OwnLink, PeerChannel
from txbroker.security.acl_authorizer import AclAuthorizer
from txbroker.security.acl_index import AclIndex
from txbroker.security.acl_model import AclEntry, AclOperation, AclPermission, AclResource, PatternType, ResourcePattern
from txbroker.wire.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest, LeaderAndIsrTopicState
from txbroker.wire.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from txbroker.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)

OWN, OTHER = 1, 2


def roles(*, topic: str = "t", leader_epoch: int = 0, replicas: tuple[int, ...] = (OWN, OTHER), index: int = 0, **fields: Any) -> Any:
    state = LeaderAndIsrPartitionState(partition_index=index, controller_epoch=1, leader=OWN, leader_epoch=leader_epoch, isr=[OWN],
                                       partition_epoch=leader_epoch, replicas=list(replicas), is_new=True)  # fmt: skip
    topics = [LeaderAndIsrTopicState(topic_name=topic, topic_id=TOPIC_ID, partition_states=[state])]
    given = {"controller_id": 7, "controller_epoch": 1, "broker_epoch": 100, "topic_states": topics, "live_leaders": [], **fields}
    return LeaderAndIsrRequest(**given)


def metadata(**fields: Any) -> UpdateMetadataRequest:
    brokers = [UpdateMetadataBroker(id=7, endpoints=[UpdateMetadataEndpoint(port=9, host="h", listener="PLAINTEXT")])]
    given = {"controller_id": 7, "controller_epoch": 1, "broker_epoch": 100, "live_brokers": brokers, **fields}
    return UpdateMetadataRequest(**given)


def stop(*, topic: str = "t", leader_epoch: int = 0, delete: bool = False, **fields: Any) -> StopReplicaRequest:
    partition = StopReplicaPartitionState(partition_index=0, leader_epoch=leader_epoch, delete_partition=delete)
    topics = [StopReplicaTopicState(topic_name=topic, partition_states=[partition])]
    return StopReplicaRequest(**{"controller_id": 7, "controller_epoch": 1, "broker_epoch": 100, "topic_states": topics, **fields})


def errors(response: Any) -> tuple[int, list[int]]:
    """The error of the response, and those of its partitions."""
    if hasattr(response, "topics"):
        return response.error_code, [partition.error_code for topic in response.topics for partition in topic.partition_errors]
    return response.error_code, [partition.error_code for partition in getattr(response, "partition_errors", [])]


def test_a_broker_carries_out_what_the_controller_sends(turning: Turning, node: Node) -> None:
    to_node = channel(turning, node.port)
    assert errors(turning.outcome(to_node.send(roles()))) == (0, [0])
    partition = node.harness.replicas.get("t", 0)
    assert partition.is_leader and partition.log.topic_id == TOPIC_ID
    assert turning.outcome(to_node.send(metadata())).error_code == 0
    assert node.image.controller_id == 7 and node.image.endpoint(7, "PLAINTEXT") == ("h", 9, 0)
    assert errors(turning.outcome(to_node.send(stop(delete=True)))) == (0, [0])
    assert node.harness.replicas.find("t", 0) is None
    assert len(node.connections) == 1
    to_node.close()


@pytest.mark.parametrize(("request_made", "code"), [
    (lambda: roles(broker_epoch=99), ErrorCode.STALE_BROKER_EPOCH),
    (lambda: metadata(broker_epoch=99), ErrorCode.STALE_BROKER_EPOCH),
    (lambda: stop(broker_epoch=99), ErrorCode.STALE_BROKER_EPOCH),
    (lambda: roles(controller_epoch=4), ErrorCode.STALE_CONTROLLER_EPOCH),
    (lambda: metadata(controller_epoch=4), ErrorCode.STALE_CONTROLLER_EPOCH),
    (lambda: stop(controller_epoch=4), ErrorCode.STALE_CONTROLLER_EPOCH),
    (lambda: roles(topic="../t"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (lambda: roles(index=-1), ErrorCode.INVALID_REQUEST),
    (lambda: roles(replicas=(1, 1)), ErrorCode.INVALID_REQUEST),
    (lambda: roles(is_k_raft_controller=True), ErrorCode.INVALID_REQUEST),
    (lambda: stop(topic=""), ErrorCode.INVALID_TOPIC_EXCEPTION),
    (lambda: metadata(live_brokers=[UpdateMetadataBroker(id=-1)]), ErrorCode.INVALID_REQUEST),
])  # fmt: skip
def test_requests_that_are_refused_as_a_whole_change_nothing(turning: Turning, node: Node, request_made: Any, code: ErrorCode) -> None:
    to_node = channel(turning, node.port)
    # Any request raises the controller epoch for all kinds of requests.
    assert turning.outcome(to_node.send(metadata(controller_epoch=5, controller_id=8))).error_code == 0
    request = request_made()
    if request.controller_epoch == 1:
        request.controller_epoch = 5
    found, partitions = errors(turning.outcome(to_node.send(request)))
    assert found == code
    assert partitions == ([] if isinstance(request, UpdateMetadataRequest) else [code])
    assert len(node.harness.replicas) == 0
    assert (node.image.controller_id, node.image.version) == (8, 1)
    to_node.close()


def test_epochs_that_are_newer_or_unknown_are_accepted(turning: Turning, node: Node) -> None:
    to_node = channel(turning, node.port)
    for epoch in (101, -1):
        assert turning.outcome(to_node.send(metadata(broker_epoch=epoch))).error_code == 0
    to_node.close()


def test_a_partition_that_is_not_assigned_to_the_broker_is_not_created(turning: Turning, node: Node) -> None:
    to_node = channel(turning, node.port)
    assert errors(turning.outcome(to_node.send(roles(replicas=(OTHER,))))) == (0, [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
    assert len(node.harness.replicas) == 0
    to_node.close()


def test_requests_are_repeated_until_the_broker_answers(turning: Turning, node: Node, caplog: pytest.LogCaptureFixture) -> None:
    node.stop()
    to_node = channel(turning, node.port)
    answers: list[Any] = []
    to_node.send(metadata()).addBoth(answers.append)
    turning.until(lambda: "cannot send requests to broker 1" in caplog.text, "an attempt failed")
    assert not answers
    node.start()
    turning.until(lambda: answers, "the broker has answered")
    assert answers[0].error_code == 0
    assert caplog.text.count("cannot send requests") == 1
    to_node.close()


@pytest.mark.parametrize("made", [metadata, roles, stop])
def test_requests_are_repeated_until_the_acls_of_the_broker_permit_them(
    turning: Turning, node: Node, caplog: pytest.LogCaptureFixture, made: Callable[[], Any]
) -> None:
    authorizer = AclAuthorizer((), allow_everyone=False)
    node.registry.authorizer = authorizer
    node.registry.routes.clear()
    to_node = channel(turning, node.port)
    answers: list[Any] = []
    to_node.send(made()).addBoth(answers.append)
    turning.until(lambda: "its ACLs do not permit ClusterAction" in caplog.text, "an attempt was denied")
    assert not answers and len(node.harness.replicas) == 0
    cluster = ResourcePattern(AclResource.CLUSTER, PatternType.LITERAL, "kafka-cluster")
    entry = AclEntry("User:ANONYMOUS", "*", AclOperation.CLUSTER_ACTION, AclPermission.ALLOW)
    authorizer.publish(AclIndex({cluster: frozenset({entry})}))
    turning.until(lambda: answers, "the broker has answered")
    assert answers[0].error_code == 0
    assert caplog.text.count("cannot send requests") == 1
    to_node.close()


def test_a_closed_channel_stops_sending(turning: Turning, node: Node, caplog: pytest.LogCaptureFixture) -> None:
    node.stop()
    to_node = channel(turning, node.port)
    sent = to_node.send(metadata())
    turning.until(lambda: "cannot send requests to broker 1" in caplog.text, "an attempt failed")
    to_node.close()
    assert isinstance(turning.outcome(sent), Closed)
    assert isinstance(turning.outcome(to_node.send(metadata())), Closed)


def test_a_request_that_is_not_answered_in_time_is_sent_on_another_connection(
    turning: Turning, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    held = Held(UpdateMetadataRequest, lambda request: UpdateMetadataResponse(error_code=0))
    node = Node(turning, tmp_path)
    node.registry = Registry()
    for handler in (ApiVersionsHandler(node.registry.ranges), held):
        node.registry.register(handler)
    to_node = channel(turning, node.port, timeout_s=0.2)
    answers: list[Any] = []
    to_node.send(metadata()).addBoth(answers.append)
    turning.until(lambda: len(held.received) == 2, "the request came again")
    assert len(node.connections) == 2 and not answers
    assert "did not respond to UpdateMetadata in time" in caplog.text
    held.received[1][1].callback(UpdateMetadataResponse(error_code=0))
    turning.until(lambda: answers or len(held.received) > 2, "the answer, or a third attempt on a loaded machine")
    to_node.close()
    node.stop()


def test_a_broker_without_its_metadata_store_answers_when_it_has_it_again(turning: Turning, node: Node) -> None:
    node.configs.failure = ConnectionLost("/config/topics/t")
    to_node = channel(turning, node.port)
    answers: list[Any] = []
    to_node.send(roles()).addBoth(answers.append)
    turning.until(lambda: node.registry.closed["failed_without_answer"] >= 2, "the connection was closed without an answer")
    assert not answers
    node.configs.failure = None
    turning.until(lambda: answers, "the broker has answered")
    assert errors(answers[0]) == (0, [0])
    to_node.close()


def test_the_controllers_own_broker_is_called_again_when_it_has_its_metadata_store(turning: Turning, node: Node) -> None:
    node.configs.failure = ConnectionLost("/config/topics/t")
    to_self = PeerChannel(1, OwnLink(node.own), turning.reactor, Random(1).random)
    answers: list[Any] = []
    to_self.send(roles()).addBoth(answers.append)
    turning.until(lambda: node.configs.reads >= 2, "it is retried")
    assert not answers
    node.configs.failure = None
    turning.until(lambda: answers, "the broker has answered")
    assert errors(answers[0]) == (0, [0])
    refused = turning.outcome(to_self.send(roles(broker_epoch=1)))
    assert isinstance(refused, BrokerError) and refused.code == ErrorCode.STALE_BROKER_EPOCH
    to_self.close()


def test_versions_before_topic_ids_have_names_in_the_response(turning: Turning, node: Node) -> None:
    to_node = link(turning, node.port)
    request = roles()
    turning.outcome(to_node.send(metadata()))
    response = turning.outcome(to_node._connection.send(request, version_max=4))
    assert [(p.topic_name, p.partition_index, p.error_code) for p in response.partition_errors] == [("t", 0, 0)]
    stale = turning.outcome(to_node._connection.send(roles(broker_epoch=1), version_max=4))
    assert stale.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert [(p.topic_name, p.error_code) for p in stale.partition_errors] == [("t", ErrorCode.STALE_BROKER_EPOCH)]
    to_node.close()
