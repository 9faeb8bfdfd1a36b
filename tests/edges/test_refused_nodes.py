"""Nodes that the store does not let the controller read or write: their topic is concerned, and no other."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tests.cluster.brokers import FakeCluster, new_topic
from tests.support.fakes.refusing_tree import RefusingTree
from txbroker.cluster import node_paths
from txbroker.cluster.controller.elect_leaders import ElectionType
from txbroker.cluster.controller.term import REFUSED_RETRY_S
from txbroker.cluster.node_data import PartitionState
from txbroker.cluster.producer_ids import ProducerIds, allocate_block
from txbroker.cluster.tree.interface import DATA_SIZE_MAX, Refused, Tree
from txbroker.cluster.tree.operations import for_admin
from txbroker.errors import BrokerError, ErrorCode
from txbroker.names import TopicPartition

PROTECTED, OTHER = TopicPartition("protected", 0), TopicPartition("other", 0)
STATE, PARTITION, PARTITIONS = node_paths.state(PROTECTED), node_paths.partition(PROTECTED), node_paths.partitions("protected")
TOPIC, CONFIG = node_paths.topic("protected"), node_paths.topic_entity("protected").path


class Cluster(FakeCluster):
    """Brokers 1, 2 and 3; broker 1 is the controller. The same is refused to all; `tree` is the session of broker 1."""

    def __init__(self) -> None:
        super().__init__()
        self.tree = RefusingTree(self.trees.session())
        self.start_on(1, cast(Tree, self.tree))
        for broker_id in (2, 3):
            tree = RefusingTree(self.trees.session())
            tree.unreadable, tree.unwritable = self.tree.unreadable, self.tree.unwritable
            self.start_on(broker_id, cast(Tree, tree))
        for name in ("protected", "other"):
            self.create_topic(name, (2, 3))

    def still_controls(self, caplog: pytest.LogCaptureFixture) -> bool:
        """Whether the first term goes on."""
        return self.brokers[1].controller.epoch == 1 and "controller step failed" not in caplog.text


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_a_partition_whose_state_cannot_be_written(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.tree.unwritable.add(STATE)
    cluster.kill(2)
    assert (cluster.state("protected").leader, cluster.state("other").leader) == (2, 3)
    assert caplog.text.count(f"the state of partition protected-0 stays as it is: node {STATE} is protected") == 1
    cluster.start(4)
    cluster.create_topic("later", (1, 4))
    assert cluster.state("later").leader == 1
    assert cluster.still_controls(caplog) and caplog.text.count("is protected") == 1, "each attempt fails, and the first one is logged"
    cluster.tree.unwritable.clear()
    cluster.start(5)
    assert cluster.state("protected").leader == 3, "it is written at the next event when ZooKeeper lets it"


def test_a_state_is_written_some_time_after_its_node_was_made_writable(cluster: Cluster) -> None:
    cluster.tree.unwritable.add(STATE)
    cluster.kill(2)
    cluster.tree.unwritable.clear()
    assert cluster.run_later() == [REFUSED_RETRY_S]
    assert cluster.state("protected").leader == 3


@pytest.mark.parametrize("unreadable", [STATE, TOPIC])
def test_a_node_that_cannot_be_read_does_not_end_a_takeover(cluster: Cluster, caplog: pytest.LogCaptureFixture, unreadable: str) -> None:
    cluster.create_topic("third", (1, 2))
    cluster.tree.unreadable.add(unreadable)
    cluster.kill(1)
    assert (cluster.state("third").leader, cluster.state("other").leader, cluster.state("protected").leader) == (2, 2, 2)
    assert f"node {unreadable} is protected" in caplog.text and "controller step failed" not in caplog.text
    assert "protected" in cluster.brokers[3].image.topics, "brokers do not forget a topic that the controller cannot read"
    cluster.create_topic("later", (3,))
    assert cluster.state("later").leader == 3


@pytest.mark.parametrize(("unwritable", "missing", "said"), [
    (TOPIC, (STATE, PARTITION, PARTITIONS), "the partitions of topic protected get no leaders: "),
    (PARTITIONS, (STATE, PARTITION), "the state of partition protected-0 stays as it is: "),
    (PARTITION, (STATE,), "the state of partition protected-0 stays as it is: "),
])  # fmt: skip
def test_the_first_state_of_a_partition_cannot_be_written(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, unwritable: str, missing: tuple[str, ...], said: str
) -> None:
    cluster.create_topic("third", (1, 2))
    for path in missing:
        cluster.result(cluster.observer.delete(path))
    cluster.tree.unwritable.add(unwritable)
    cluster.kill(1)
    assert said in caplog.text and "controller step failed" not in caplog.text
    assert (cluster.state("third").leader, cluster.state("other").leader) == (2, 2)
    cluster.create_topic("later", (3,))
    assert cluster.state("later").leader == 3
    cluster.tree.unwritable.clear()
    assert cluster.run_later() == [REFUSED_RETRY_S]
    assert cluster.state("protected").leader == 2


def test_a_topic_whose_node_cannot_be_written_is_not_reassigned(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.tree.unwritable.add(TOPIC)
    controller = cluster.brokers[1].controller
    outcomes = cluster.result(controller.reassign({PROTECTED: [3, 1], OTHER: [3, 1]}))
    refused = outcomes[PROTECTED]
    assert refused is not None and refused.code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert f"node {TOPIC} is protected" in str(refused) and outcomes[OTHER] is None
    assert cluster.still_controls(caplog)
    cluster.result(cluster.observer.set(TOPIC, b"?"))
    cluster.tree.unwritable.clear()
    refused = cluster.result(controller.reassign({PROTECTED: [3, 1]}))[PROTECTED]
    assert refused is not None and "repair or restore it" in str(refused)
    assert cluster.still_controls(caplog)


def test_a_topic_whose_nodes_cannot_be_deleted(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.tree.unwritable.add(PARTITIONS)
    for name in ("protected", "other"):
        cluster.result(cluster.admin.delete(name))
    exists = [cluster.result(cluster.observer.exists(node_paths.topic(name))) is not None for name in ("protected", "other")]
    assert exists == [True, False]
    assert "the nodes of topic protected stay until the next deletion of a topic, or election: " in caplog.text
    assert cluster.still_controls(caplog)
    cluster.tree.unwritable.clear()
    cluster.create_topic("later", (1,))
    cluster.result(cluster.admin.delete("later"))
    assert cluster.result(cluster.observer.children(node_paths.TOPICS)) == []


def test_a_configuration_that_cannot_be_read_allows_no_unclean_election(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.unclean_default = True
    cluster.tree.unreadable.add(CONFIG)
    for name in ("protected", "other"):
        cluster.result(cluster.observer.set(node_paths.state(TopicPartition(name, 0)), b'{"controller_epoch":1,"leader":2,'
                                            b'"version":1,"leader_epoch":0,"isr":[2]}'))  # fmt: skip
        cluster.result(cluster.observer.create(f"{node_paths.ISR_CHANGES}/isr_change_", b'{"version":1,"partitions":[{"topic":"%s",'
                                               b'"partition":0}]}' % name.encode(), sequential=True))  # fmt: skip
    cluster.kill(2)
    assert (cluster.state("protected").leader, cluster.state("other").leader) == (-1, 3)
    assert f"no unclean election for topic protected: node {CONFIG} is protected" in caplog.text
    assert cluster.still_controls(caplog)


@pytest.mark.parametrize("unreadable", [node_paths.LOG_DIR_EVENTS, node_paths.ISR_CHANGES, node_paths.REASSIGN_PARTITIONS])
def test_the_term_goes_on_without_requests_that_it_cannot_read(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, unreadable: str
) -> None:
    """They are read again later, when ZooKeeper may let it."""
    cluster.tree.unreadable.add(unreadable)
    if unreadable == node_paths.REASSIGN_PARTITIONS:
        cluster.result(cluster.observer.create(unreadable, b'{"version":1,"partitions":[]}'))
    else:
        cluster.result(cluster.observer.create(f"{unreadable}/x_", b"?", sequential=True))
    assert f"repeats it in 60 s: node {unreadable} is protected" in caplog.text
    cluster.kill(2)
    assert cluster.state("other").leader == 3 and cluster.still_controls(caplog)
    cluster.tree.unreadable.clear()
    cluster.run_later()
    left = cluster.result(cluster.observer.exists(unreadable))
    assert left is None or left.children_count == 0


@pytest.mark.parametrize("unwritable", [node_paths.LOG_DIR_EVENTS, node_paths.ISR_CHANGES, "/admin", node_paths.DELETE_TOPICS])
def test_the_term_goes_on_when_it_cannot_delete_requests(cluster: Cluster, caplog: pytest.LogCaptureFixture, unwritable: str) -> None:
    cluster.tree.unwritable.add(unwritable)
    for path, data, sequential in (
        (f"{node_paths.LOG_DIR_EVENTS}/x_", b'{"version":1,"broker":2,"event":1}', True), (f"{node_paths.ISR_CHANGES}/x_", b"?", True),
        (node_paths.PREFERRED_ELECTION, b'{"version":1,"partitions":[]}', False), (node_paths.deletion("none"), None, False),
    ):  # fmt: skip
        cluster.result(cluster.observer.create(path, data, sequential=sequential))
    assert "stays: node" in caplog.text
    cluster.kill(2)
    assert cluster.state("other").leader == 3 and cluster.still_controls(caplog)


def test_a_refused_election_names_the_node(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """No term can begin without these nodes: it is an error with the node, and the broker runs for election again."""
    cluster.kill(2)
    cluster.kill(3)
    cluster.tree.unwritable.add("/")
    cluster.result(cluster.observer.delete(node_paths.CONTROLLER))
    assert "a controller step failed, next controller election in 10 s: node /controller is protected" in caplog.text
    assert "Traceback" not in caplog.text
    cluster.tree.unwritable.clear()
    cluster.run_later()
    assert cluster.brokers[1].controller.active


def test_requests_that_are_refused_have_an_error_with_the_node(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    tree = RefusingTree(cluster.observer)
    cluster.admin._tree = cast(Tree, tree)
    tree.unwritable |= {node_paths.TOPICS, node_paths.DELETE_TOPICS}
    for request, node in ((cluster.admin.create(new_topic("u", (1,))), node_paths.topic("u")),
                          (cluster.admin.delete("other"), node_paths.deletion("other"))):  # fmt: skip
        with pytest.raises(BrokerError, match=f"node {node} is protected") as caught:
            cluster.result(request)
        assert caught.value.code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert caplog.text.count(f"a request failed: node {node} is protected") == 1
    tree.unwritable = {TOPIC}
    with pytest.raises(BrokerError, match=f"node {TOPIC} is protected"):
        cluster.result(cluster.admin.create_partitions("protected", 4))
    cluster.result(cluster.observer.set(TOPIC, b"?"))
    with pytest.raises(BrokerError, match="repair or restore it"):
        cluster.result(cluster.admin.create_partitions("protected", 4))
    assert "Traceback" not in caplog.text


def test_a_topic_that_is_too_large_for_its_node(cluster: Cluster) -> None:
    async def write() -> None:
        await cluster.observer.set(TOPIC, bytes(DATA_SIZE_MAX + 1))

    with pytest.raises(BrokerError, match=f"exceed the maximum size of a node .*, {TOPIC}") as caught:
        cluster.result(for_admin(write()))
    assert caught.value.code == ErrorCode.POLICY_VIOLATION


def test_producer_ids_that_the_store_refuses_are_a_final_error(cluster: Cluster) -> None:
    tree = RefusingTree(cluster.observer)
    tree.unwritable.add(node_paths.PRODUCER_ID_BLOCK)
    ids = ProducerIds(lambda: allocate_block(cast(Tree, tree), 1))
    with pytest.raises(BrokerError, match="is protected") as caught:
        cluster.result(ids.next_id())
    assert caught.value.code == ErrorCode.UNKNOWN_SERVER_ERROR
    tree.unwritable.clear()
    assert cluster.result(ids.next_id()) == 0


def test_an_election_by_request_that_is_refused_is_an_error_of_the_partition(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("protected", "other"):
        cluster.put_state(name, PartitionState(leader=3, leader_epoch=1, isr=(2, 3), controller_epoch=1))
    cluster.kill(1)  # the next controller reads the states
    cluster.tree.unwritable.add(STATE)
    controller = next(broker.controller for broker in cluster.brokers.values() if broker.controller.active)
    results: Any = cluster.result(controller.elect_leaders(ElectionType.PREFERRED, None))
    assert results[PROTECTED].error == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert results[OTHER].error == ErrorCode.NONE and cluster.state("other").leader == 2
    assert controller.active and "controller step failed" not in caplog.text


def test_refused_is_an_error_of_the_interface() -> None:
    assert str(Refused("/a", 3)) == "Refused at /a (operation 3)"
