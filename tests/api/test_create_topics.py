"""CreateTopics with many topics: they are written at the same time, and each fails or succeeds alone."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from tests.api.lone_broker import no_client_quotas
from tests.cluster.brokers import FakeCluster
from txbroker.api import create_topics
from txbroker.api.create_topics import CreateTopicsHandler
from txbroker.api.request_context import RequestContext, Session
from txbroker.api.topic_waiting import TopicWaiting
from txbroker.cluster.topics import CreatedTopic, NewTopic
from txbroker.config.resolve import BrokerConfig
from txbroker.errors import ErrorCode
from txbroker.purgatory import Purgatory
from txbroker.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse

SESSION = Session(peer_host="", peer_port=0, local_host="", local_port=0, listener="L", number=1)


class CreateHarness:
    """A controller whose tree does nothing until `result`. `asked` are the topics whose creation has begun."""

    def __init__(self) -> None:
        self._cluster = FakeCluster()
        self._cluster.start(1)
        self._image = self._cluster.brokers[1].image
        self._waiting = TopicWaiting(self._image, Purgatory(Clock(), "topics"), self._cluster.admin.is_deleting)
        self._handler = CreateTopicsHandler(self._cluster.admin, self._waiting, BrokerConfig({}), no_client_quotas(), lambda: None)
        self.asked: list[str] = []
        create = self._cluster.admin.create

        def noted(topic: NewTopic, **options: Any) -> Deferred[CreatedTopic]:
            self.asked.append(topic.name)
            return create(topic, **options)

        self._cluster.admin.create = noted  # type: ignore[method-assign]

    def ask(self, *names: str) -> Deferred[CreateTopicsResponse]:
        topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]) for name in names]
        request = CreateTopicsRequest(topics=topics, timeout_ms=60_000, validate_only=False)
        return self._handler(request, RequestContext(19, 7, 1, None, SESSION))

    def result(self, asked: Deferred[CreateTopicsResponse]) -> dict[str, int]:
        """The errors by topic, in the order of the response."""
        found: list[CreateTopicsResponse] = []
        asked.addCallback(found.append)
        while not found:
            self._cluster.turns.step()
            self._waiting.changed(self._image.topics)  # as the owner of the image does
        return {topic.name: topic.error_code for topic in found[0].topics}


def test_the_topics_of_a_request_are_written_at_the_same_time() -> None:
    harness = CreateHarness()
    names = [f"t{number}" for number in range(create_topics.WRITTEN_TOGETHER_MAX + 1)]
    asked = harness.ask(*names)
    assert harness.asked == names[:-1], "the last one is in the next group"
    assert harness.result(asked) == dict.fromkeys(names, ErrorCode.NONE)
    assert harness.asked == names


def test_each_topic_fails_alone_and_the_response_has_the_order_of_the_request() -> None:
    harness = CreateHarness()
    assert harness.result(harness.ask("b")) == {"b": ErrorCode.NONE}
    expected = {
        "t": ErrorCode.NONE, "b": ErrorCode.TOPIC_ALREADY_EXISTS, "twice": ErrorCode.INVALID_REQUEST,
        "bad name!": ErrorCode.INVALID_TOPIC_EXCEPTION, "a": ErrorCode.NONE,
    }  # fmt: skip
    found = harness.result(harness.ask("t", "b", "twice", "bad name!", "twice", "a"))
    assert list(found.items()) == list(expected.items())


def test_the_second_of_two_names_that_collide_is_refused() -> None:
    harness = CreateHarness()
    found = harness.result(harness.ask("a.b", "other", "a_b"))
    assert found == {"a.b": ErrorCode.NONE, "other": ErrorCode.NONE, "a_b": ErrorCode.INVALID_TOPIC_EXCEPTION}
