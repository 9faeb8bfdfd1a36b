"""Cached metadata responses: equal to newly encoded ones, and never of an old state of the cluster."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.task import Clock

from txbroker.api.encoded.cached_response import CachedResponse, ResponseCache
from txbroker.api.endpoints import Endpoints
from txbroker.api.metadata import FIRST_BROKERS_WAIT_MS, MetadataHandler
from txbroker.api.request_context import RequestContext, Session
from txbroker.api.topic_waiting import TopicWaiting
from txbroker.cluster.image import ClusterImage
from txbroker.errors import ErrorCode
from txbroker.purgatory import Purgatory
from txbroker.security.principals import ANONYMOUS
from txbroker.wire.codec import decode, encoder
from txbroker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from txbroker.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

VERSION = 12
TOPIC_ID = bytes(range(16))


class NoCreation:
    def on_demand(self, names: list[str], context: Any) -> None:
        return None


def update(image: ClusterImage, *, leader: int = 1, partitions: int = 2, topic: str = "t") -> None:
    states = [
        UpdateMetadataPartitionState(
            partition_index=index,
            controller_epoch=1,
            leader=leader,
            leader_epoch=0,
            isr=[1],
            zk_version=0,
            replicas=[1],
            offline_replicas=[],
        )
        for index in range(partitions)
    ]
    endpoint = UpdateMetadataEndpoint(host="advertised", port=9092, listener="PLAINTEXT", security_protocol=0)
    image.apply(
        UpdateMetadataRequest(
            controller_id=1,
            controller_epoch=1,
            topic_states=[UpdateMetadataTopicState(topic_name=topic, topic_id=TOPIC_ID, partition_states=states)],
            live_brokers=[UpdateMetadataBroker(id=broker_id, endpoints=[endpoint]) for broker_id in sorted({1, leader})],
        )
    )


@pytest.fixture
def image() -> ClusterImage:
    image = ClusterImage()
    update(image)
    return image


@pytest.fixture
def handler(image: ClusterImage) -> MetadataHandler:
    return make_handler(image, TopicWaiting(image, Purgatory(Clock(), "topics"), lambda topic: False))


def make_handler(image: ClusterImage, waiting: TopicWaiting) -> MetadataHandler:
    creation: Any = NoCreation()
    return MetadataHandler(image, Endpoints(1, image, ["PLAINTEXT"]), creation, waiting, "cluster")


def ask(
    handler: MetadataHandler, request: MetadataRequest, *, version: int = VERSION, reached: str = "10.0.0.1", principal: str = ANONYMOUS
) -> Any:
    session = Session(
        peer_host="p", peer_port=1, local_host=reached, local_port=2, listener="PLAINTEXT", number=0, principal=principal
    )
    return handler(request, RequestContext(3, version, 1, None, session))


def opened(answer: Any, version: int = VERSION) -> MetadataResponse:
    assert isinstance(answer, CachedResponse)
    return decode(MetadataResponse, version, answer.body(encoder(MetadataResponse, version)))


def of(*names: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False)


def test_equal_requests_share_a_response_until_the_image_changes(handler: MetadataHandler, image: ClusterImage) -> None:
    first = ask(handler, of("t"))
    assert ask(handler, of("t")) is first
    assert opened(first).topics[0].partitions[0].leader_id == 1
    update(image, leader=2)
    assert opened(ask(handler, of("t"))).topics[0].partitions[0].leader_id == 2


def test_principals_share_no_response(handler: MetadataHandler) -> None:
    alice, bob = (ask(handler, of("t"), principal=principal) for principal in ("User:alice", "User:bob"))
    assert alice is not bob and ask(handler, of("t"), principal="User:bob") is bob
    assert ask(handler, of("t"), principal="User:alice") is alice


@pytest.mark.parametrize("in_time", [True, False])
def test_a_broker_that_has_just_started_waits_for_the_first_metadata(in_time: bool) -> None:
    image, clock = ClusterImage(), Clock()
    waiting = TopicWaiting(image, Purgatory(clock, "topics"), lambda topic: False)
    answers: list[Any] = []
    ask(make_handler(image, waiting), of("t")).addCallback(answers.append)
    assert not answers
    if in_time:
        update(image)
        waiting.brokers_changed()
        (answer,) = answers
        assert [broker.node_id for broker in opened(answer).brokers] == [1] and opened(answer).topics[0].error_code == 0
    else:
        clock.advance(FIRST_BROKERS_WAIT_MS / 1000 + 0.1)
        (answer,) = answers
        assert answer.brokers == [] and answer.topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE


def test_different_requests_get_different_responses(handler: MetadataHandler) -> None:
    everything = MetadataRequest(topics=None)
    by_id = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=TOPIC_ID)])
    operations = MetadataRequest(topics=of("t").topics, include_topic_authorized_operations=True)
    answers = [ask(handler, of("t")), ask(handler, everything), ask(handler, by_id), ask(handler, operations), ask(handler, of())]
    assert len(set(map(id, answers))) == len(answers)
    assert [len(opened(answer).topics) for answer in answers] == [1, 1, 1, 1, 0]
    assert opened(answers[3]).topics[0].topic_authorized_operations != opened(answers[0]).topics[0].topic_authorized_operations


def test_a_repeated_topic_is_returned_once(handler: MetadataHandler) -> None:
    assert [topic.name for topic in opened(ask(handler, of(*["t"] * 1000))).topics] == ["t"]


def test_versions_do_not_share_a_response(handler: MetadataHandler) -> None:
    old, new = ask(handler, of("t"), version=1), ask(handler, of("t"))
    assert opened(old, 1).topics[0].topic_id == bytes(16)
    assert opened(new).topics[0].topic_id == TOPIC_ID


def test_the_response_has_the_address_of_the_clients_listener(handler: MetadataHandler) -> None:
    assert opened(ask(handler, of("t"), reached="10.0.0.1")).brokers[0].host == "10.0.0.1"
    assert opened(ask(handler, of("t"), reached="10.0.0.2")).brokers[0].host == "10.0.0.2"


def test_responses_with_errors_are_not_cached(handler: MetadataHandler, image: ClusterImage) -> None:
    assert isinstance(ask(handler, of("t", "missing")), MetadataResponse)


def test_the_cache_is_bounded() -> None:
    kept = ResponseCache(10)
    first = kept.keep(1, "a", MetadataResponse(brokers=[], topics=[]), 6)
    assert kept.get(1, "a") is first
    kept.keep(1, "b", MetadataResponse(brokers=[], topics=[]), 5)
    assert kept.get(1, "a") is None
    assert kept.get(1, "b") is not None
    kept.keep(1, "c", MetadataResponse(brokers=[], topics=[]), 11)
    assert kept.get(1, "c") is None
    assert kept.get(1, "b") is not None
    assert kept.get(2, "b") is None
