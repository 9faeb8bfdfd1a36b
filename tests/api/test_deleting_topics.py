"""The response to DeleteTopics is sent when the name can be used again, and not before."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from tests.cluster.brokers import FakeCluster
from txbroker.api.delete_topics import DeleteTopicsHandler
from txbroker.api.request_context import RequestContext, Session
from txbroker.api.topic_waiting import TopicWaiting
from txbroker.cluster import node_paths
from txbroker.cluster.topics import NewTopic
from txbroker.errors import BrokerError, ErrorCode
from txbroker.purgatory import Purgatory
from txbroker.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse


class House:
    """A cluster of one broker, which serves DeleteTopics."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.cluster.start(1)
        self.cluster.create_topic("t", (1,))
        self.clock = Clock()
        self.image = self.cluster.brokers[1].image
        admin = self.cluster.admin
        self.waiting = TopicWaiting(self.image, Purgatory(self.clock, "topics"), admin.is_deleting)
        admin.on_deleted(lambda name: self.waiting.changed([name]))
        self.handler = DeleteTopicsHandler(admin, self.waiting, self.image, lambda: None, lambda: True)

    def delete(self, timeout_ms: int = 1000) -> list[DeleteTopicsResponse]:
        """The response, when there is one."""
        session = Session(peer_host="", peer_port=0, local_host="", local_port=0, listener="L", number=1)
        answers: list[DeleteTopicsResponse] = []
        request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=timeout_ms)
        self.handler(request, RequestContext(20, 3, 1, None, session)).addCallback(answers.append)
        return answers

    def step(self) -> bool:
        more = self.cluster.turns.step()
        self.waiting.changed(["t"])  # as the owner of the image does
        return more


def test_a_topic_can_be_created_again_after_the_response_to_its_deletion() -> None:
    house = House()
    answers = house.delete()
    gone_from_image = False
    while not answers:
        assert house.step(), "there was no response"
        gone_from_image = gone_from_image or (house.image.topic("t") is None and not answers)
    assert gone_from_image, "the controller finishes after the image changed"
    assert answers[0].responses[0].error_code == ErrorCode.NONE
    assert house.cluster.result(house.cluster.admin.create(NewTopic(name="t"))).name == "t"


def test_a_deletion_that_exceeds_the_timeout_of_the_request() -> None:
    house = House()
    house.cluster.brokers[1].stop_error = lambda _: ErrorCode.KAFKA_STORAGE_ERROR
    answers = house.delete()
    while house.step():
        pass
    assert house.image.topic("t") is None and not answers
    house.clock.advance(1)
    assert answers[0].responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT


def test_a_deletion_that_completes_at_once() -> None:
    house = House()
    house.cluster.kill(1)
    admin = house.cluster.admin
    asked: Deferred[None] = admin.delete("t")
    while house.cluster.result(house.cluster.observer.exists(node_paths.deletion("t"))) is None:
        house.cluster.turns.step()
    house.cluster.observer.delete(node_paths.deletion("t"))
    house.cluster.result(asked)
    assert not admin.is_deleting("t")


def test_a_failed_metadata_store_returns_a_retriable_error_for_each_topic() -> None:
    house = House()
    answers = house.delete()
    house.cluster.trees.expire(house.cluster.observer)
    house.cluster.turns.run()
    assert answers[0].responses[0].error_code == ErrorCode.NOT_CONTROLLER
    admin = house.cluster.admin
    refused: list[Deferred[Any]] = [admin.create(NewTopic(name="u")), admin.create_partitions("t", 2)]
    for failing in refused:
        with pytest.raises(BrokerError) as error:
            house.cluster.result(failing)
        assert error.value.code == ErrorCode.NOT_CONTROLLER
