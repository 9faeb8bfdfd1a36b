"""How a controller's term begins and ends, after failures and with damaged or unusual nodes, too."""

from __future__ import annotations

import json
from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail

from tests.cluster.brokers import FakeCluster, cluster_of, new_topic
from txbroker.cluster import node_paths
from txbroker.cluster.controller.elect_leaders import ElectionType
from txbroker.cluster.controller.term import ControllerTerm
from txbroker.cluster.node_data import BrokerRegistration, TopicAssignment, decode_topic
from txbroker.cluster.tree.interface import ConnectionLost
from txbroker.errors import BrokerError, ErrorCode, StartError
from txbroker.names import NULL_TOPIC_ID, TopicPartition


def test_brokers_do_not_forget_a_topic_whose_nodes_are_malformed() -> None:
    cluster = cluster_of(1, 2)
    cluster.create_topic("t", (2,))
    cluster.create_topic("u", (2,))
    cluster.result(cluster.observer.set(node_paths.topic("t"), b"?"))
    cluster.result(cluster.observer.set(node_paths.state(TopicPartition("u", 0)), b"?"))
    cluster.kill(1)
    assert sorted(cluster.brokers[2].image.topics) == ["t", "u"]


def test_a_topic_that_was_created_without_a_controller() -> None:
    cluster = cluster_of(1)
    cluster.kill(1)
    cluster.result(cluster.observer.create(node_paths.topic("t"), b'{"partitions":{"0":[1],"1":[1]},"version":3}'))
    cluster.result(cluster.observer.create(node_paths.partitions("t")))
    cluster.result(cluster.observer.create(node_paths.partition(TopicPartition("t", 1))))  # and half of its nodes
    cluster.start(1)
    assert "LAI t-0 leader 1 epoch 0 isr 1 new" in cluster.taken()[1]
    assert cluster.state("t", 1).leader == 1


def test_brokers_do_not_forget_a_topic_without_states() -> None:
    """An operator has deleted a damaged state node, as the log says: the topic exists, and groups have offsets in it."""
    cluster = cluster_of(1, 2)
    cluster.create_topic("t", (1, 2))
    cluster.result(cluster.observer.delete(node_paths.state(TopicPartition("t", 0))))
    forgotten: list[str] = []
    image, apply = cluster.brokers[2].image, cluster.brokers[2].image.apply
    image.apply = lambda request: forgotten.extend((found := apply(request)).deleted) or found  # type: ignore[method-assign, func-returns-value]
    cluster.kill(1)
    assert not forgotten
    assert cluster.state("t").leader == 2


def test_the_controller_node_is_deleted_by_hand() -> None:
    cluster = cluster_of(1)
    cluster.result(cluster.observer.delete(node_paths.CONTROLLER))
    assert cluster.controller.epoch == 2


def test_another_controller_was_elected_in_between() -> None:
    """A term whose fence does not hold any longer writes nothing, and this broker stands again."""
    cluster = cluster_of(1)
    cluster.create_topic("t", (1,))
    cluster.result(cluster.observer.set(node_paths.CONTROLLER_EPOCH, b"7"))
    cluster.result(cluster.admin.create(new_topic("u", (1,))))
    assert cluster.result(cluster.observer.exists(node_paths.partitions("u"))) is None
    assert not cluster.brokers[1].controller.active
    cluster.run_later()
    assert cluster.controller.epoch == 8
    assert cluster.state("u").leader == 1


def test_the_node_of_a_failed_term_is_deleted_by_another_one(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """What a broker reads from ZooKeeper may be old: the node that it finds is no longer there when it deletes it."""
    cluster = cluster_of(1)
    cluster.result(cluster.observer.set(node_paths.CONTROLLER_EPOCH, b"7"))
    cluster.result(cluster.admin.create(new_topic("u", (1,))))
    assert not cluster.brokers[1].controller.active
    tree = cluster.brokers[1].tree
    exists = type(tree).exists
    deleted: list[Deferred[None]] = []

    def exists_then_deleted(self: Any, path: str, *, watch: Any = None) -> Any:
        found = exists(self, path, watch=watch)
        if self is tree and not deleted:
            deleted.append(cluster.observer.delete(node_paths.CONTROLLER))
        return found

    monkeypatch.setattr(type(tree), "exists", exists_then_deleted)
    cluster.run_later()
    assert deleted and cluster.controller.epoch == 8
    assert "a controller step failed" not in caplog.text


def test_a_step_that_waits_does_not_begin_in_a_failed_term(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The first state of a partition is written, and the answer is lost: the term does not know that the node exists."""
    cluster = cluster_of(1, 2)
    tree = cluster.brokers[1].tree
    multi = type(tree).multi
    lost: list[Deferred[Any]] = []

    def multi_without_an_answer(self: Any, ops: Any) -> Any:
        written = multi(self, ops)
        if self is tree and not lost:
            lost.append(written)
            cluster.trees.expire(cluster.brokers.pop(2).tree)  # which the next step of the term is about
            for _ in range(5):
                written.addCallback(lambda _: cluster.observer.exists("/"))
            written.addCallback(lambda _: fail(ConnectionLost("/")))
        return written

    monkeypatch.setattr(type(tree), "multi", multi_without_an_answer)
    cluster.result(cluster.admin.create(new_topic("t", (2, 1))))
    assert lost and not cluster.brokers[1].controller.active
    assert "a controller step failed" not in caplog.text
    assert cluster.state("t").isr == (2, 1), "nothing was written since"
    assert cluster.run_later() == [1.0]
    assert (cluster.controller.epoch, cluster.state("t").leader, cluster.state("t").isr) == (2, 1, (1,))


def test_a_session_that_expires_ends_the_term() -> None:
    cluster = cluster_of(1, 2)
    controller = cluster.brokers[1].controller
    cluster.trees.expire(cluster.brokers[1].tree)
    cluster.result(cluster.observer.create(node_paths.topic("t"), b'{"partitions":{"0":[2]},"version":3}'))
    with pytest.raises(BrokerError) as caught:
        cluster.result(controller.elect_leaders(ElectionType.PREFERRED, None))
    assert caught.value.code == ErrorCode.NOT_CONTROLLER
    assert cluster.brokers[2].controller.active


def test_a_stopped_controller_sends_nothing() -> None:
    cluster = cluster_of(1)
    cluster.brokers[1].controller.stop()
    cluster.result(cluster.admin.create(new_topic("t", (1,))))
    assert cluster.taken() == {}


def test_damaged_nodes_are_ignored(caplog: pytest.LogCaptureFixture) -> None:
    cluster = cluster_of(1)
    cluster.result(cluster.observer.create(node_paths.topic("bad"), b"?"))
    cluster.result(cluster.observer.create(node_paths.topic("not valid!"), b'{"version":1,"partitions":{"0":[1]}}'))
    for number, partitions in enumerate(("-1:[1]", "4294967296:[1]", "0:[1,1]", "0:[-1]", "0:[4294967296]", "0:[]")):
        index, _, replicas = partitions.partition(":")
        data = f'{{"version":1,"partitions":{{"{index}":{replicas}}}}}'
        cluster.result(cluster.observer.create(node_paths.topic(f"bad{number}"), data.encode()))
    cluster.result(cluster.observer.create(node_paths.broker(9), b"{}", ephemeral=True))
    cluster.result(cluster.observer.create(node_paths.broker(4294967296), BrokerRegistration(()).encode(0), ephemeral=True))
    cluster.result(cluster.admin.create(new_topic("good", (1,))))
    assert cluster.state("good").leader == 1
    assert list(cluster.brokers[1].image.brokers) == [1]
    assert "ignoring topic bad" in caplog.text
    cluster.kill(1)
    cluster.start(1)
    assert list(cluster.brokers[1].image.topics) == ["good"], "a new controller can send requests about all the others"
    assert list(cluster.brokers[1].image.brokers) == [1]
    assert "ignoring the malformed registration of broker 9" in caplog.text


def test_a_malformed_partition_state_stops_neither_a_takeover_nor_other_partitions(caplog: pytest.LogCaptureFixture) -> None:
    cluster = cluster_of(1, 2)
    cluster.create_topic("good", (1, 2))
    cluster.create_topic("bad", (1, 2), (2, 1))
    cluster.result(cluster.observer.set(node_paths.state(TopicPartition("bad", 0)), b"?"))
    cluster.kill(1)
    assert cluster.controller.epoch == 2
    assert cluster.state("good").leader == 2 == cluster.state("bad", 1).leader
    assert cluster.result(cluster.observer.get(node_paths.state(TopicPartition("bad", 0))))[0] == b"?"
    assert "partition bad-0 is not served, repair or delete /brokers/topics/bad/partitions/0/state" in caplog.text


def test_a_controller_that_fails_to_take_over_deletes_its_node(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    cluster = cluster_of(1, 2, 3)
    cluster.create_topic("t", (1, 2, 3))
    failed: list[int] = []
    begin = ControllerTerm.begin

    async def failing() -> list[TopicPartition]:
        raise ZeroDivisionError

    async def failing_once(self: ControllerTerm) -> None:
        if not failed:
            failed.append(self.controlling.broker_id)
            monkeypatch.setattr(self._reads, "new_topics", failing)
        await begin(self)

    monkeypatch.setattr(ControllerTerm, "begin", failing_once)
    cluster.kill(1)
    [first] = failed
    assert not cluster.brokers[first].controller.active
    assert cluster.brokers[5 - first].controller.active
    assert "a controller step failed, next election in 10 s" in caplog.text
    assert cluster.state("t").leader in (2, 3)


def test_an_unexpected_error_ends_the_term_and_the_next_one_repairs(caplog: pytest.LogCaptureFixture) -> None:
    cluster = cluster_of(1)
    term = cluster.term

    def failing(_: object) -> None:
        raise ZeroDivisionError

    term.outbox.send = failing  # type: ignore[method-assign]
    cluster.result(cluster.admin.create(new_topic("t", (1,))))
    assert not cluster.brokers[1].controller.active
    assert cluster.result(cluster.observer.exists(node_paths.CONTROLLER)) is None
    assert "ZeroDivisionError" in caplog.text
    assert cluster.run_later() == [10.0]
    assert (cluster.controller.epoch, cluster.state("t").leader) == (2, 1)
    assert cluster.brokers[1].roles[TopicPartition("t", 0)] == (1, 0)


def test_a_malformed_controller_epoch_refuses_the_start() -> None:
    cluster = FakeCluster()
    cluster.result(cluster.observer.create(node_paths.CONTROLLER_EPOCH, b"?"))
    with pytest.raises(StartError, match=r"'\?' is not a controller epoch. Repair or restore it."):
        cluster.start(1)


def test_json_of_the_nodes_is_kafkas() -> None:
    cluster = cluster_of(1)
    cluster.create_topic("t", (1,), retention_ms="5")
    topic = json.loads(cluster.result(cluster.observer.get(node_paths.topic("t")))[0] or b"")
    assert list(topic) == ["partitions", "topic_id", "adding_replicas", "removing_replicas", "version"]
    config = cluster.result(cluster.observer.get("/config/topics/t"))[0]
    assert config == b'{"version":1,"config":{"retention.ms":"5"}}'


def test_topics_of_old_tools_get_ids() -> None:
    """As by Kafka's controller: fetches of followers name topics by their ids."""
    cluster = cluster_of(1, 2)
    cluster.result(cluster.observer.create(node_paths.topic("old"), b'{"version":1,"partitions":{"0":[1,2]},"kept":1}'))
    assert cluster.state("old").isr == (1, 2)

    def node() -> tuple[TopicAssignment, int]:
        data, stat = cluster.result(cluster.observer.get(node_paths.topic("old")))
        return decode_topic(data), stat.version

    topic, version = node()
    assert topic.topic_id != NULL_TOPIC_ID
    assert topic.other == {"kept": 1}
    assert {broker.image.topics["old"].topic_id for broker in cluster.brokers.values()} == {topic.topic_id}
    assert cluster.brokers[2].assigned[TopicPartition("old", 0)][0] == topic.topic_id
    cluster.kill(next(broker.id for broker in cluster.brokers.values() if broker.controller.active))
    assert node() == (topic, version), "the next controller keeps it"
