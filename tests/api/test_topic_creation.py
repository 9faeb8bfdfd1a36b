"""Topics that Metadata and FindCoordinator create: the response does not wait for a slow creation, and a slow creation goes on."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from tests.cluster.brokers import FakeCluster
from txbroker.api import topic_creation
from txbroker.api.endpoints import Endpoints
from txbroker.api.metadata import MetadataHandler
from txbroker.api.request_context import RequestContext, Session
from txbroker.api.topic_creation import TopicCreation
from txbroker.api.topic_waiting import TopicWaiting
from txbroker.cluster.topics import CreatedTopic, NewTopic
from txbroker.errors import BrokerError, ErrorCode
from txbroker.names import OFFSETS_TOPIC
from txbroker.purgatory import Purgatory
from txbroker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic


class CreationHarness:
    """A cluster of one broker that creates topics when clients name them. Its tree does nothing until `step`."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.cluster.start(1)
        self.clock = Clock()
        self.image = self.cluster.brokers[1].image
        self.created: list[str] = []
        create = self.cluster.admin.create

        def noted(topic: NewTopic, **options: Any) -> Deferred[CreatedTopic]:
            self.created.append(topic.name)
            return create(topic, **options)

        self.cluster.admin.create = noted  # type: ignore[method-assign]
        self.waiting = TopicWaiting(self.image, Purgatory(self.clock, "topics"), self.cluster.admin.is_deleting)
        self.creation = TopicCreation(
            self.cluster.admin, self.waiting, enabled=lambda: True, internal_topic=lambda name: NewTopic(name=name, partition_count=3)
        )
        self.handler = MetadataHandler(self.image, Endpoints(1, self.image, ["L"]), self.creation, self.waiting, "cluster")

    def ask(self, *names: str) -> dict[str, int]:
        """The errors of the response by topic, once there is one."""
        session = Session(peer_host="", peer_port=0, local_host="", local_port=0, listener="L", number=1)
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=True)
        errors: dict[str, int] = {}
        answer: Any = self.handler(request, RequestContext(3, 9, 1, None, session))
        answer.addCallback(lambda response: errors.update({topic.name: topic.error_code for topic in response.topics}))
        return errors

    def run(self) -> None:
        """Let the tree and the controller do all that they have to do."""
        while self.cluster.turns.step():
            self.waiting.changed(self.image.topics)  # as the owner of the image does
        self.waiting.changed(self.image.topics)


@pytest.fixture
def harness() -> CreationHarness:
    return CreationHarness()


def test_a_topic_that_is_created_quickly_is_in_the_response(harness: CreationHarness) -> None:
    errors = harness.ask("t", "u", "bad name!")
    assert not errors
    harness.run()
    assert errors == {"t": 0, "u": 0, "bad name!": ErrorCode.INVALID_TOPIC_EXCEPTION}


def test_a_slow_creation_is_answered_as_kafka_does_and_goes_on(harness: CreationHarness) -> None:
    errors = harness.ask("t", "u", "bad name!")
    harness.clock.advance(0.099)
    assert not errors
    harness.clock.advance(0.001)
    assert errors == dict.fromkeys(("t", "u"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) | {"bad name!": ErrorCode.INVALID_TOPIC_EXCEPTION}
    harness.run()
    assert {"t", "u"} <= harness.image.topics.keys()


def test_a_topic_is_created_once_whoever_names_it_meanwhile(harness: CreationHarness) -> None:
    first = harness.ask("t")
    harness.clock.advance(0.1)
    second, third = harness.ask("t"), harness.ask("u", "t")
    harness.run()
    assert (first, second, third) == ({"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}, {"t": 0}, {"u": 0, "t": 0})
    assert harness.created == ["t", "u"]


def test_creations_at_the_same_time_have_a_limit(harness: CreationHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_creation, "CREATIONS_MAX", 2)
    first, second = harness.ask("t", "u", "v"), harness.ask("w")
    assert second == {"w": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}, "it waits for nothing"
    harness.run()
    assert first == {"t": 0, "u": 0, "v": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    third = harness.ask("v", "w")
    harness.run()
    assert third == {"v": 0, "w": 0}


def test_a_failure_is_logged_once_until_the_topic_can_be_created(
    harness: CreationHarness, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_creation, "LOGGED_MAX", 3)
    works, refusal = harness.cluster.admin.create, BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "No space left on device")
    for create in (lambda *_, **__: fail(refusal), works, lambda *_, **__: fail(refusal)):
        monkeypatch.setattr(harness.cluster.admin, "create", create)
        for _ in range(3):
            harness.ask("t", "bad name!")
            harness.run()
    lines = [record.message for record in caplog.records if "automatically" in record.message]
    assert len(lines) == 4 and lines[0] == "topic 't' cannot be created automatically: No space left on device"
    for number in range(10):
        harness.ask(f"bad{number}!")
        harness.run()
    assert len(harness.creation._logged) == 3


def test_the_offsets_topic_that_takes_long_is_answered_with_a_retriable_error(harness: CreationHarness) -> None:
    failures: list[Failure] = []
    harness.creation.internal(OFFSETS_TOPIC).addErrback(failures.append)
    harness.clock.advance(0.1)
    (failure,) = failures
    assert isinstance(failure.value, BrokerError) and failure.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    done = harness.creation.internal(OFFSETS_TOPIC)
    harness.run()
    assert done.called
    assert len(harness.image.topics[OFFSETS_TOPIC].partitions) == 3
    assert harness.created == [OFFSETS_TOPIC]
