from __future__ import annotations

import pytest
from twisted.internet.task import Clock

from tests.support.fakes.turns import Turns
from txbroker.cluster import node_paths
from txbroker.cluster.broker_ids import cluster_id, create_structure, register, report_log_dir_failure
from txbroker.cluster.node_data import BrokerRegistration, RegisteredEndpoint, decode_broker
from txbroker.cluster.tree.memory import MemoryTrees
from txbroker.errors import StartError

REGISTRATION = BrokerRegistration((RegisteredEndpoint("PLAINTEXT", "h", 9092),))


def test_several_brokers_create_the_root_nodes_once() -> None:
    turns = Turns()
    trees = MemoryTrees(turns.call_soon)
    one, two = trees.session(), trees.session()
    first, second = create_structure(one), create_structure(two)
    turns.result(first)
    turns.result(second)
    turns.result(create_structure(one))
    for path in node_paths.STRUCTURE:
        assert turns.result(two.get(path))[0] is None
    assert turns.result(one.children("/config")) == ["brokers", "changes", "clients", "ips", "topics", "users"]


def test_the_first_broker_writes_the_cluster_id() -> None:
    turns = Turns()
    trees = MemoryTrees(turns.call_soon)
    one, two = trees.session(), trees.session()
    turns.result(create_structure(one))
    first, second = cluster_id(one, lambda: "first"), cluster_id(two, lambda: "second")
    assert turns.result(first) == turns.result(second) == "first"
    assert turns.result(one.get("/cluster/id"))[0] == b'{"version":"1","id":"first"}'
    turns.result(one.set("/cluster/id", b"?"))
    with pytest.raises(StartError, match="damaged"):
        turns.result(cluster_id(one, lambda: "x"))


def test_registration() -> None:
    turns = Turns()
    trees = MemoryTrees(turns.call_soon)
    one, two = trees.session(), trees.session()
    turns.result(create_structure(one))
    epoch = turns.result(register(one, 7, REGISTRATION, 5))
    data, stat = turns.result(two.get("/brokers/ids/7"))
    assert (stat.czxid, stat.version, stat.ephemeral_owner) == (epoch, 1, one.session_id)
    assert decode_broker(data) == REGISTRATION
    with pytest.raises(StartError, match="Broker id 7 is in use"):
        turns.result(register(two, 7, REGISTRATION, 5))
    trees.expire(one)
    assert turns.result(register(two, 7, REGISTRATION, 5)) > epoch


def test_a_failed_log_directory_is_reported() -> None:
    turns = Turns()
    trees = MemoryTrees(turns.call_soon)
    tree, other = trees.session(), trees.session()
    turns.result(create_structure(tree))
    turns.result(report_log_dir_failure(tree, 3))
    assert turns.result(tree.children(node_paths.LOG_DIR_EVENTS)) == ["log_dir_event_0000000000"]
    trees.expire(other)
    turns.result(report_log_dir_failure(other, 3))  # it registers again, and gets its roles
    assert len(turns.result(tree.children(node_paths.LOG_DIR_EVENTS))) == 1
    assert turns.result(tree.get("/log_dir_event_notification/log_dir_event_0000000000"))[0] == b'{"version":1,"broker":3,"event":1}'


@pytest.mark.parametrize(("port", "waits"), [(9092, 3), (9093, 1)])
def test_the_registration_of_an_earlier_run_is_waited_for_longer(port: int, waits: int) -> None:
    """Its session begins its timeout again when ZooKeeper's servers elect a leader. Another broker with the same id is reported soon."""
    turns, clock = Turns(), Clock()
    trees = MemoryTrees(turns.call_soon)
    one, two = trees.session(), trees.session()
    turns.result(create_structure(one))
    turns.result(register(one, 7, BrokerRegistration((RegisteredEndpoint("PLAINTEXT", "h", port),)), 5))
    registered = register(two, 7, REGISTRATION, 5, clock=clock, wait_s=11.0)
    for _ in range(waits):
        turns.run()
        assert not registered.called
        clock.advance(11.0)
    with pytest.raises(StartError, match="Broker id 7 is in use"):
        turns.result(registered)


def test_a_registration_that_ends_in_the_last_period_of_waiting_is_replaced() -> None:
    turns, clock = Turns(), Clock()
    trees = MemoryTrees(turns.call_soon)
    one, two = trees.session(), trees.session()
    turns.result(create_structure(one))
    before = turns.result(register(one, 7, REGISTRATION, 5))
    registered = register(two, 7, REGISTRATION, 5, clock=clock, wait_s=11.0)
    for _ in range(2):
        turns.run()
        clock.advance(11.0)
    turns.run()
    assert not registered.called
    trees.expire(one)
    assert turns.result(registered) > before
