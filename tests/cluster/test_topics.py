from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import TypeVar, cast

import pytest
from twisted.internet.defer import Deferred

from tests.support.fakes.losing_tree import LosingTree, Loss
from tests.support.fakes.turns import Turns
from txbroker.cluster import node_paths
from txbroker.cluster.broker_ids import create_structure
from txbroker.cluster.node_data import ReplicaAssignment, TopicAssignment, decode_config, decode_topic
from txbroker.cluster.topics import PARTITIONS_MAX, CreatedTopic, NewTopic, TopicAdmin
from txbroker.cluster.tree.interface import Tree
from txbroker.cluster.tree.memory import MemoryTrees
from txbroker.errors import BrokerError, ErrorCode
from txbroker.names import INTERNAL_TOPICS, NULL_TOPIC_ID, id_to_text

T = TypeVar("T")


class TopicsHarness:
    def __init__(self) -> None:
        self.turns = Turns()
        self.trees = MemoryTrees(self.turns.call_soon)
        self.tree = LosingTree(self.trees.session())
        self.brokers: dict[int, str | None] = {1: None, 2: None, 3: None}
        self.suspected: set[int] = set()
        self.random_bytes: Callable[[int], bytes] = Random(3).randbytes
        self.result(create_structure(cast(Tree, self.tree)))

    @property
    def admin(self) -> TopicAdmin:
        return TopicAdmin(
            cast(Tree, self.tree),
            brokers=lambda: self.brokers,
            validate_configs=self.validate,
            partition_count=4,
            replication_factor=2,
            random=Random(1),
            random_bytes=self.random_bytes,
            suspected=lambda: self.suspected,
        )

    def validate(self, configs: Mapping[str, str | None]) -> None:
        if None in configs.values():
            raise BrokerError(ErrorCode.INVALID_CONFIG, "null")

    def result(self, deferred: Deferred[T]) -> T:
        return self.turns.result(deferred)

    def create(self, name: str, *, validate_only: bool = False, **what: object) -> CreatedTopic:
        return self.result(self.admin.create(NewTopic(name=name, **what), validate_only=validate_only))  # type: ignore[arg-type]

    def stored(self, name: str) -> TopicAssignment:
        return decode_topic(self.result(self.tree.get(node_paths.topic(name)))[0])

    def names(self) -> list[str]:
        return self.result(self.tree.children(node_paths.TOPICS))


@pytest.fixture
def harness() -> TopicsHarness:
    return TopicsHarness()


def refused(harness: TopicsHarness, deferred: Deferred[T]) -> ErrorCode:
    with pytest.raises(BrokerError) as caught:
        harness.result(deferred)
    return caught.value.code


def test_defaults_numbers_and_configs(harness: TopicsHarness) -> None:
    created = harness.create("t", configs={"retention.ms": "5"})
    assert (created.name, created.partition_count, created.replication_factor) == ("t", 4, 2)
    assert created.configs == {"retention.ms": "5"}
    stored = harness.stored("t")
    assert stored.topic_id == created.topic_id != NULL_TOPIC_ID
    assert [len(set(a.replicas)) for a in stored.partitions.values()] == [2] * 4
    assert decode_config(harness.result(harness.tree.get("/config/topics/t"))[0]) == {"retention.ms": "5"}
    assert harness.create("u", partition_count=7, replication_factor=3).partition_count == 7
    assert harness.create("v", partition_count=1).replication_factor == 2


def test_explicit_assignments(harness: TopicsHarness) -> None:
    created = harness.create("t", assignments=[(1, [3, 1]), (0, [2, 3])])
    assert (created.partition_count, created.replication_factor) == (2, 2)
    assert harness.stored("t").partitions == {0: ReplicaAssignment((2, 3)), 1: ReplicaAssignment((3, 1))}


def test_validating_writes_nothing(harness: TopicsHarness) -> None:
    created = harness.create("t", validate_only=True, partition_count=9)
    assert (created.topic_id, created.partition_count, created.replication_factor) == (NULL_TOPIC_ID, 9, 2)
    assert harness.names() == []
    assert harness.result(harness.tree.children("/config/topics")) == []


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic(name=""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic(name=".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic(name="a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic(name="x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic(name="there"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (NewTopic(name="col_lides"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (NewTopic(name="t", partition_count=0), ErrorCode.INVALID_PARTITIONS),
        (NewTopic(name="t", partition_count=-5), ErrorCode.INVALID_PARTITIONS),
        (NewTopic(name="t", partition_count=PARTITIONS_MAX + 1), ErrorCode.POLICY_VIOLATION),
        (NewTopic(name="t", replication_factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic(name="t", replication_factor=4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic(name="t", configs={"a": None}), ErrorCode.INVALID_CONFIG),
        (NewTopic(name="t", configs={"a": "x" * 2_000_000}), ErrorCode.INVALID_CONFIG),
        (NewTopic(name="t", partition_count=1, assignments=[(0, [1])]), ErrorCode.INVALID_REQUEST),
        (NewTopic(name="t", replication_factor=1, assignments=[(0, [1])]), ErrorCode.INVALID_REQUEST),
        (NewTopic(name="t", assignments=[(1, [1])]), ErrorCode.INVALID_REPLICATION_ASSIGNMENT),
        (NewTopic(name="t", assignments=[(0, [1]), (2, [1])]), ErrorCode.INVALID_REPLICATION_ASSIGNMENT),
        (NewTopic(name="t", assignments=[(0, [1]), (0, [2])]), ErrorCode.INVALID_REPLICATION_ASSIGNMENT),
        (NewTopic(name="t", assignments=[(-1, [1]), (0, [1])]), ErrorCode.INVALID_REPLICATION_ASSIGNMENT),
        (NewTopic(name="t", assignments=[(0, [1, 1])]), ErrorCode.INVALID_REPLICATION_ASSIGNMENT),
        (NewTopic(name="t", assignments=[(0, [])]), ErrorCode.INVALID_REPLICATION_ASSIGNMENT),
        (NewTopic(name="t", assignments=[(0, [1]), (1, [1, 2])]), ErrorCode.INVALID_REPLICATION_ASSIGNMENT),
        (NewTopic(name="t", assignments=[(0, [9])]), ErrorCode.INVALID_REPLICATION_ASSIGNMENT),
    ],
)
def test_invalid_topics_are_refused(harness: TopicsHarness, topic: NewTopic, code: ErrorCode) -> None:
    harness.create("there")
    harness.create("col.lides")
    for validate_only in (True, False):
        assert refused(harness, harness.admin.create(topic, validate_only=validate_only)) == code
    assert harness.names() == ["col.lides", "there"]


def test_two_at_once_one_wins(harness: TopicsHarness) -> None:
    first, second = harness.admin.create(NewTopic(name="t")), harness.admin.create(NewTopic(name="t", partition_count=9))
    created = harness.result(first)
    assert refused(harness, second) == ErrorCode.TOPIC_ALREADY_EXISTS
    assert harness.stored("t").topic_id == created.topic_id


def test_a_configuration_without_a_topic_is_replaced(harness: TopicsHarness) -> None:
    harness.result(harness.tree.create("/config/topics/t", b'{"version":1,"config":{"retention.ms":"1"}}'))
    harness.create("t", configs={"segment.bytes": "100"})
    assert decode_config(harness.result(harness.tree.get("/config/topics/t"))[0]) == {"segment.bytes": "100"}


def test_ids_that_look_like_options_or_are_reserved_are_skipped(harness: TopicsHarness) -> None:
    dash = bytes([0xFB]) + bytes(15)
    drawn = iter([dash, bytes(range(16))])
    harness.random_bytes = lambda _: next(drawn)
    assert id_to_text(dash).startswith("-")
    assert not id_to_text(harness.create("t").topic_id).startswith("-")
    assert next(drawn, None) is None


def test_a_repeated_deletion_request_is_accepted(harness: TopicsHarness) -> None:
    harness.create("t")
    harness.result(harness.admin.delete("t"))
    harness.result(harness.admin.delete("t"))
    assert harness.result(harness.tree.children(node_paths.DELETE_TOPICS)) == ["t"]
    assert refused(harness, harness.admin.delete("u")) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert refused(harness, harness.admin.create(NewTopic(name="t"))) == ErrorCode.TOPIC_ALREADY_EXISTS
    assert refused(harness, harness.admin.create_partitions("t", 9)) == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_more_partitions(harness: TopicsHarness) -> None:
    created = harness.create("t", assignments=[(0, [2, 3]), (1, [3, 1])])
    harness.result(harness.admin.create_partitions("t", 3, validate_only=True))
    assert len(harness.stored("t").partitions) == 2
    harness.result(harness.admin.create_partitions("t", 4))
    stored = harness.stored("t")
    assert stored.topic_id == created.topic_id
    assert [stored.partitions[p].replicas[0] for p in range(4)] == [2, 3, 1, 2]
    assert all(len(set(a.replicas)) == 2 for a in stored.partitions.values())
    harness.result(harness.admin.create_partitions("t", 6, [[1, 2], [3, 2]]))
    assert harness.stored("t").partitions[5] == ReplicaAssignment((3, 2))


@pytest.mark.parametrize(
    ("count", "assignments", "code"),
    [
        (2, None, ErrorCode.INVALID_PARTITIONS),
        (1, None, ErrorCode.INVALID_PARTITIONS),
        (-1, None, ErrorCode.INVALID_PARTITIONS),
        (2_000_000, None, ErrorCode.POLICY_VIOLATION),
        (3, [], ErrorCode.INVALID_REPLICATION_ASSIGNMENT),
        (3, [[1, 2], [1, 2]], ErrorCode.INVALID_REPLICATION_ASSIGNMENT),
        (3, [[1]], ErrorCode.INVALID_REPLICATION_ASSIGNMENT),
        (3, [[1, 1]], ErrorCode.INVALID_REPLICATION_ASSIGNMENT),
        (3, [[1, 9]], ErrorCode.INVALID_REPLICATION_ASSIGNMENT),
    ],
)
def test_partitions_that_are_refused(harness: TopicsHarness, count: int, assignments: list[list[int]] | None, code: ErrorCode) -> None:
    harness.create("t", assignments=[(0, [2, 3]), (1, [3, 1])])
    assert refused(harness, harness.admin.create_partitions("t", count, assignments)) == code
    assert len(harness.stored("t").partitions) == 2


@pytest.mark.parametrize("name", sorted(INTERNAL_TOPICS))
def test_internal_topics_keep_their_partitions(harness: TopicsHarness, name: str) -> None:
    harness.result(harness.admin.create(NewTopic(name=name, partition_count=2, replication_factor=1)))
    assert refused(harness, harness.admin.create_partitions(name, 3)) == ErrorCode.INVALID_REQUEST


def test_partitions_of_unknown_and_reassigned_topics_and_without_brokers_are_refused(harness: TopicsHarness) -> None:
    assert refused(harness, harness.admin.create_partitions("t", 3)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    moving = TopicAssignment(bytes(16), {0: ReplicaAssignment((1, 2), adding=(2,))})
    harness.result(harness.tree.create(node_paths.topic("m"), moving.encode()))
    assert refused(harness, harness.admin.create_partitions("m", 3)) == ErrorCode.REASSIGNMENT_IN_PROGRESS
    harness.create("t")
    harness.brokers = {1: None}
    assert refused(harness, harness.admin.create_partitions("t", 5)) == ErrorCode.INVALID_REPLICATION_FACTOR
    harness.brokers = {}
    assert refused(harness, harness.admin.create(NewTopic(name="u"))) == ErrorCode.INVALID_REPLICATION_FACTOR


def test_concurrent_enlargements(harness: TopicsHarness) -> None:
    harness.create("t", partition_count=1)
    first, second = harness.admin.create_partitions("t", 3), harness.admin.create_partitions("t", 5)
    harness.result(first)
    harness.result(second)
    assert len(harness.stored("t").partitions) == 5


def test_suspected_brokers_get_replicas_only_if_there_are_too_few_others() -> None:
    topics = TopicsHarness()
    topics.suspected = {2}
    topics.create("two", partition_count=4, replication_factor=2)
    topics.create("three", partition_count=4, replication_factor=3)
    assert {frozenset(partition.replicas) for partition in topics.stored("two").partitions.values()} == {frozenset({1, 3})}
    assert {len(partition.replicas) for partition in topics.stored("three").partitions.values()} == {3}


# The connection to ZooKeeper is lost during a write


def test_a_creation_whose_answer_is_lost_succeeds(harness: TopicsHarness) -> None:
    harness.tree.next_loss = Loss.ANSWER
    created = harness.create("t", configs={"retention.ms": "5"})
    assert harness.stored("t").topic_id == created.topic_id


def test_a_creation_whose_request_is_lost_can_be_repeated(harness: TopicsHarness) -> None:
    harness.tree.next_loss = Loss.REQUEST
    assert refused(harness, harness.admin.create(NewTopic(name="t"))) == ErrorCode.NOT_CONTROLLER
    assert harness.names() == []
    assert harness.stored(harness.create("t").name).partitions


def test_a_topic_of_another_request_is_no_success(harness: TopicsHarness) -> None:
    """Both have checked that there is no such topic; the write of one does not arrive."""
    other = TopicAssignment(bytes(15) + b"1", {0: ReplicaAssignment((1,))})
    harness.tree.next_loss = Loss.REQUEST
    harness.tree.lost = lambda: harness.trees.session().create(node_paths.topic("t"), other.encode())
    assert refused(harness, harness.admin.create(NewTopic(name="t", assignments=[(0, [1])]))) == ErrorCode.NOT_CONTROLLER
    assert harness.stored("t") == other


@pytest.mark.parametrize("loss", Loss)
def test_new_partitions_whose_write_is_lost(harness: TopicsHarness, loss: Loss) -> None:
    harness.create("t")
    harness.tree.next_loss = loss
    added = harness.admin.create_partitions("t", 6)
    if loss is Loss.ANSWER:
        harness.result(added)
    else:
        assert refused(harness, added) == ErrorCode.NOT_CONTROLLER
    assert len(harness.stored("t").partitions) == (6 if loss is Loss.ANSWER else 4)


@pytest.mark.parametrize("loss", Loss)
def test_a_deletion_whose_write_is_lost(harness: TopicsHarness, loss: Loss) -> None:
    harness.create("t")
    harness.tree.next_loss = loss
    deleted = harness.admin.delete("t")
    if loss is Loss.ANSWER:
        harness.result(deleted)
    else:
        assert refused(harness, deleted) == ErrorCode.NOT_CONTROLLER
    assert harness.result(harness.tree.children(node_paths.DELETE_TOPICS)) == (["t"] if loss is Loss.ANSWER else [])
