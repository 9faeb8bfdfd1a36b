"""DeleteTopics is answered when the name of the topic can be used again, and not before."""

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
        """The answer, once it is there."""
        session = Session(peer_host="", peer_port=0, local_host="", local_port=0, listener="L", number=1)
        answers: list[DeleteTopicsResponse] = []
        request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=timeout_ms)
        self.handler(request, RequestContext(20, 3, 1, None, session)).addCallback(answers.append)
        return answers

    def step(self) -> bool:
        more = self.cluster.turns.step()
        self.waiting.changed(["t"])  # as whoever applies what the controller says
        return more


def test_a_topic_can_be_made_anew_as_soon_as_its_deletion_is_answered() -> None:
    house = House()
    answers = house.delete()
    gone_from_image = False
    while not answers:
        assert house.step(), "it was never answered"
        gone_from_image = gone_from_image or (house.image.topic("t") is None and not answers)
    assert gone_from_image, "the controller is done later than the image"
    assert answers[0].responses[0].error_code == ErrorCode.NONE
    assert house.cluster.result(house.cluster.admin.create(NewTopic(name="t"))).name == "t"


def test_a_deletion_that_takes_longer_than_the_client_waits_times_out() -> None:
    house = House()
    house.cluster.brokers[1].stop_error = lambda _: ErrorCode.KAFKA_STORAGE_ERROR
    answers = house.delete()
    while house.step():
        pass
    assert house.image.topic("t") is None and not answers
    house.clock.advance(1)
    assert answers[0].responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT


def test_a_deletion_that_is_over_before_it_could_be_watched_is_over() -> None:
    house = House()
    house.cluster.kill(1)
    admin = house.cluster.admin
    asked: Deferred[None] = admin.delete("t")
    while house.cluster.result(house.cluster.observer.exists(node_paths.deletion("t"))) is None:
        house.cluster.turns.step()
    house.cluster.observer.delete(node_paths.deletion("t"))
    house.cluster.result(asked)
    assert not admin.is_deleting("t")


def test_a_tree_that_cannot_be_used_fails_each_topic_and_clients_try_again() -> None:
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
