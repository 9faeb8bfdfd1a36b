"""The quota of changes in the requests for topics: strict versions are refused above it, older ones are delayed (KIP-599)."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from tests.cluster.brokers import FakeCluster
from txbroker.api.create_partitions import CreatePartitionsHandler
from txbroker.api.create_topics import CreateTopicsHandler
from txbroker.api.delete_topics import DeleteTopicsHandler
from txbroker.api.request_context import RequestContext, Session
from txbroker.api.topic_creation import TopicCreation
from txbroker.api.topic_waiting import TopicWaiting
from txbroker.client_quotas.quotas import MUTATION_RATE, ClientQuotas
from txbroker.cluster.node_paths import Entity
from txbroker.cluster.topics import NewTopic
from txbroker.config.resolve import BrokerConfig
from txbroker.errors import ErrorCode
from txbroker.purgatory import Purgatory
from txbroker.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from txbroker.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from txbroker.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

SESSION = Session(peer_host="", peer_port=0, local_host="", local_port=0, listener="L", number=1)
THROTTLED = ErrorCode.THROTTLING_QUOTA_EXCEEDED


class Controller:
    """A controller at which every client may change one partition a second, and ten at once. A topic t has four."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.cluster.start(1)
        self.cluster.create_topic("t", (1,), (1,), (1,), (1,))
        self.image = self.cluster.brokers[1].image
        self.clock = Clock()
        self.quotas = ClientQuotas(self.clock, sample_count=11, sample_s=1, burst_s=10)
        self.quotas.configure(Entity("clients", "<default>"), {MUTATION_RATE: "1"})
        admin = self.cluster.admin
        self.waiting = TopicWaiting(self.image, Purgatory(self.clock, "topics"), admin.is_deleting)
        admin.on_deleted(lambda name: self.waiting.changed([name]))
        self._creates = CreateTopicsHandler(admin, self.waiting, BrokerConfig({}), self.quotas, lambda: None)
        self._extends = CreatePartitionsHandler(admin, self.waiting, self.quotas, lambda: None)
        self._deletes = DeleteTopicsHandler(admin, self.waiting, self.image, self.quotas, lambda: None, lambda: True)

    def create(self, version: int, *, validate_only: bool = False, **topics: int) -> tuple[list[int], int]:
        """The errors by topic in the order of the request, and the throttle time."""
        none: dict[str, Any] = {"replication_factor": 1, "assignments": [], "configs": []}
        wanted = [CreatableTopic(name=name, num_partitions=count, **none) for name, count in topics.items()]
        request = CreateTopicsRequest(topics=wanted, timeout_ms=60_000, validate_only=validate_only)
        answer = self.result(self._creates(request, RequestContext(19, version, 1, "c", SESSION)))
        return [topic.error_code for topic in answer.topics], answer.throttle_time_ms

    def extend(self, version: int, **topics: int) -> tuple[list[int], int]:
        wanted = [CreatePartitionsTopic(name=name, count=n, assignments=None) for name, n in topics.items()]
        request = CreatePartitionsRequest(topics=wanted, timeout_ms=60_000, validate_only=False)
        answer = self.result(self._extends(request, RequestContext(37, version, 1, "c", SESSION)))
        return [topic.error_code for topic in answer.results], answer.throttle_time_ms

    def delete(self, version: int, *names: str) -> tuple[list[int], int]:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names], topic_names=list(names), timeout_ms=60_000)
        answer = self.result(self._deletes(request, RequestContext(20, version, 1, "c", SESSION)))
        return [topic.error_code for topic in answer.responses], answer.throttle_time_ms

    def result(self, asked: Deferred[Any]) -> Any:
        found: list[Any] = []
        asked.addCallback(found.append)
        while not found:
            self.cluster.turns.step()
            self.waiting.changed({*self.image.topics, "t", "a", "b"})  # as the owner of the image does
        return found[0]


def test_topics_above_the_quota_are_refused_each_alone() -> None:
    controller = Controller()
    assert controller.create(6, a=12, b=3) == ([0, THROTTLED], 2000)
    assert controller.create(7, a=1, b=1) == ([ErrorCode.TOPIC_ALREADY_EXISTS, THROTTLED], 2000), "what exists costs nothing"
    assert controller.create(7, validate_only=True, b=1) == ([0], 0)
    controller.clock.advance(2)
    assert controller.create(7, b=1) == ([0], 0)


def test_an_older_creation_is_only_delayed() -> None:
    controller = Controller()
    assert controller.create(5, a=12) == ([0], 2000)
    assert controller.create(5, b=1) == ([0], 3000)


@pytest.mark.parametrize(("version", "error", "throttle_ms"), [(3, THROTTLED, 2000), (2, 0, 3000)])
def test_partitions_above_the_quota(version: int, error: int, throttle_ms: int) -> None:
    controller = Controller()
    assert controller.extend(version, t=16) == ([0], 0 if error else 2000), "twelve are added"
    assert controller.extend(version, t=17) == ([error], throttle_ms)


@pytest.mark.parametrize(("version", "error", "throttle_ms"), [(6, THROTTLED, 2000), (5, THROTTLED, 2000), (4, 0, 6000)])
def test_deletions_above_the_quota(version: int, error: int, throttle_ms: int) -> None:
    controller = Controller()
    assert controller.create(7, a=12)[0] == [0]
    assert controller.delete(version, "t") == ([error], throttle_ms)
    assert controller.delete(version, "ghost")[0] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert (controller.image.topic("t") is None) is not bool(error)


def test_a_topic_that_metadata_creates_counts() -> None:
    controller = Controller()
    creation = TopicCreation(
        controller.cluster.admin, controller.waiting, enabled=lambda: True, internal_topic=lambda name: NewTopic(name=name),
        mutations=lambda context: controller.quotas.mutations(context.principal, context.client_id, strict=False),
    )  # fmt: skip
    context = RequestContext(3, 9, 1, "c", SESSION)
    created = creation.on_demand([f"t{number}" for number in range(12)], context)
    assert created is not None
    while controller.cluster.turns.step():
        controller.waiting.changed(controller.image.topics)
    assert controller.create(7, b=1) == ([THROTTLED], 2000)
