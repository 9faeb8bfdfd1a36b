"""The response to DeleteTopics is sent when the name can be used again, and not before."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from tests.api.lone_broker import no_client_quotas
from tests.cluster.brokers import FakeCluster
from txbroker.api.delete_topics import DeleteTopicsHandler
from txbroker.api.request_context import RequestContext, Session
from txbroker.api.topic_waiting import TopicWaiting
from txbroker.cluster import node_paths
from txbroker.cluster.topics import NewTopic
from txbroker.errors import BrokerError, ErrorCode
from txbroker.purgatory import Purgatory
from txbroker.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse


class DeletionHarness:
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
        self.handler = DeleteTopicsHandler(admin, self.waiting, self.image, no_client_quotas(), lambda: None, lambda: True)

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
    harness = DeletionHarness()
    answers = harness.delete()
    gone_from_image = False
    while not answers:
        assert harness.step(), "there was no response"
        gone_from_image = gone_from_image or (harness.image.topic("t") is None and not answers)
    assert gone_from_image, "the controller finishes after the image changed"
    assert answers[0].responses[0].error_code == ErrorCode.NONE
    assert harness.cluster.result(harness.cluster.admin.create(NewTopic(name="t"))).name == "t"


def test_a_deletion_that_exceeds_the_timeout_of_the_request() -> None:
    harness = DeletionHarness()
    harness.cluster.brokers[1].stop_error = lambda _: ErrorCode.KAFKA_STORAGE_ERROR
    answers = harness.delete()
    while harness.step():
        pass
    assert harness.image.topic("t") is None and not answers
    harness.clock.advance(1)
    assert answers[0].responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT


def test_a_deletion_that_completes_at_once() -> None:
    harness = DeletionHarness()
    harness.cluster.kill(1)
    admin = harness.cluster.admin
    asked: Deferred[None] = admin.delete("t")
    while harness.cluster.result(harness.cluster.observer.exists(node_paths.deletion("t"))) is None:
        harness.cluster.turns.step()
    harness.cluster.observer.delete(node_paths.deletion("t"))
    harness.cluster.result(asked)
    assert not admin.is_deleting("t")


def test_a_failed_metadata_store_returns_a_retriable_error_for_each_topic() -> None:
    harness = DeletionHarness()
    answers = harness.delete()
    harness.cluster.trees.expire(harness.cluster.observer)
    harness.cluster.turns.run()
    assert answers[0].responses[0].error_code == ErrorCode.NOT_CONTROLLER
    admin = harness.cluster.admin
    refused: list[Deferred[Any]] = [admin.create(NewTopic(name="u")), admin.create_partitions("t", 2)]
    for failing in refused:
        with pytest.raises(BrokerError) as error:
            harness.cluster.result(failing)
        assert error.value.code == ErrorCode.NOT_CONTROLLER
