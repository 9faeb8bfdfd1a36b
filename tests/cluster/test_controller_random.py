"""Brokers that start and die at any moment, topics that are created, enlarged, reassigned and deleted meanwhile: in the end all is well.

Between two actions only some of what is queued runs, so that everything may meet everything half-done. The seed decides all.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from tests.cluster.brokers import FakeBroker, FakeCluster, registration
from tests.support.examples import quarter
from txbroker.cluster import node_paths
from txbroker.cluster.broker_ids import register
from txbroker.cluster.controller.controller import Controller
from txbroker.cluster.controller.elect_leaders import ElectionType
from txbroker.cluster.node_data import PartitionState, decode_state, decode_topic
from txbroker.cluster.topics import NewTopic
from txbroker.names import TopicPartition
from txbroker.wire.messages.alter_partition import AlterPartitionRequest, BrokerState, PartitionData, TopicData

BROKERS = (1, 2, 3)
TOPICS = ("a", "b")

ACTIONS = [
    *[("start", broker) for broker in BROKERS] * 2,
    *[("kill", broker) for broker in BROKERS],
    *[(kind, topic) for topic in TOPICS for kind in ("create", "create", "enlarge", "delete", "reassign", "reassign", "cancel", "grow")],
    ("elect", None),
    ("depose", None),
]
TARGETS = [(1,), (2,), (3,), (1, 2), (3, 1), (2, 3), (1, 2, 3)]


class Simulation:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.cluster = FakeCluster()
        self.epochs: dict[tuple[bytes, int], PartitionState] = {}

    def act(self, kind: str, what: object) -> None:
        if kind == "start" and what not in self.cluster.brokers:
            self.start(int(str(what)))
        elif kind == "kill" and what in self.cluster.brokers:
            self.cluster.trees.expire(self.cluster.brokers.pop(int(str(what))).tree)
        elif kind == "create":
            topic = NewTopic(name=str(what), partition_count=2, replication_factor=max(1, min(2, len(self.cluster.brokers))))
            self.ignoring(self.cluster.admin.create(topic))
        elif kind == "enlarge":
            self.ignoring(self.cluster.admin.create_partitions(str(what), 3))
        elif kind == "delete":
            self.ignoring(self.cluster.admin.delete(str(what)))
        elif kind in ("reassign", "cancel", "elect", "grow"):
            controllers = [broker.controller for broker in self.cluster.brokers.values() if broker.controller.active]
            if controllers:
                self.request(controllers[0], kind, TopicPartition(str(what), self.random.randrange(2)))
        elif kind == "depose":
            self.ignoring(self.cluster.observer.delete(node_paths.CONTROLLER))

    def request(self, controller: Controller, kind: str, topic_partition: TopicPartition) -> None:
        if kind == "elect":
            self.ignoring(controller.elect_leaders(ElectionType.PREFERRED, None))
        elif kind == "grow":
            self.grow(controller, topic_partition)
        else:
            target = None if kind == "cancel" else self.random.choice(TARGETS)
            self.ignoring(controller.reassign({topic_partition: target}))

    def grow(self, controller: Controller, topic_partition: TopicPartition) -> None:
        """The leader adds all replicas that follow it to the ISR."""
        node = self.cluster.trees._nodes.get(node_paths.state(topic_partition))
        if node is None:
            return
        state = decode_state(node.data, node.version)
        leader = self.cluster.brokers.get(state.leader)
        current = (state.leader, state.leader_epoch)
        if leader is None or leader.roles.get(topic_partition) != current:
            return
        topic_id, replicas = leader.assigned[topic_partition]
        brokers = self.cluster.brokers
        following = [r for r in replicas if r in brokers and brokers[r].roles.get(topic_partition) == current]
        members = dict.fromkeys([*state.isr, *following])
        data = PartitionData(
            partition_index=topic_partition.partition,
            leader_epoch=state.leader_epoch,
            new_isr_with_epochs=[BrokerState(broker_id=member, broker_epoch=-1) for member in members],
            partition_epoch=state.partition_epoch,
        )
        topics = [TopicData(topic_id=topic_id, partitions=[data])]
        request = AlterPartitionRequest(broker_id=state.leader, broker_epoch=leader.epoch or -1, topics=topics)
        self.ignoring(controller.alter_partition(request))

    def start(self, broker_id: int) -> None:
        tree = self.cluster.trees.session()
        broker = self.cluster.brokers[broker_id] = FakeBroker(broker_id, tree, self.cluster)
        started: Deferred[Any] = register(tree, broker_id, registration(broker_id), 1)

        def registered(epoch: int) -> Deferred[None]:
            broker.epoch = epoch
            return broker.controller.start()

        started.addCallback(registered)
        self.ignoring(started)

    def ignoring(self, deferred: object) -> None:
        deferred.addErrback(lambda _: None)  # type: ignore[attr-defined]

    def step(self, turns: int) -> None:
        for _ in range(turns):
            if not self.cluster.turns.step():
                break
        self.check_epochs()

    def settle(self) -> None:
        while True:
            self.cluster.turns.run()
            if not self.cluster.later:
                return
            self.cluster.run_later()

    def check_epochs(self) -> None:
        """Within one topic id: a leader epoch never goes back, and has one leader."""
        nodes = self.cluster.trees._nodes
        for name in nodes.names_under(node_paths.TOPICS):
            topic = nodes.get(node_paths.topic(name))
            assert topic is not None
            assignment = decode_topic(topic.data)
            for partition in assignment.partitions:
                node = nodes.get(node_paths.state(TopicPartition(name, partition)))
                if node is None:
                    continue
                state = decode_state(node.data, node.version)
                before = self.epochs.get((assignment.topic_id, partition))
                if before is not None:
                    assert state.leader_epoch >= before.leader_epoch
                    assert state.partition_epoch >= before.partition_epoch
                    assert state.leader_epoch > before.leader_epoch or state.leader == before.leader
                assert state.isr
                assert state.leader == -1 or state.leader in state.isr
                self.epochs[assignment.topic_id, partition] = state

    def check_settled(self) -> None:
        """Every broker knows exactly what the tree says, every replica its role, and all that can be led is led."""
        cluster = self.cluster
        live = cluster.brokers.keys()
        deleted = cluster.result(cluster.observer.children(node_paths.DELETE_TOPICS))  # these wait for brokers that are down
        topics = cluster.result(cluster.observer.children(node_paths.TOPICS))
        names = [name for name in topics if name not in deleted]
        for broker in cluster.brokers.values():
            assert broker.image.controller_epoch == cluster.controller.epoch
            assert broker.image.brokers.keys() == live
            for name in names:
                self.check_topic(broker, name)

    def check_topic(self, broker: FakeBroker, name: str) -> None:
        cluster = self.cluster
        live = cluster.brokers.keys()
        assignment = decode_topic(cluster.result(cluster.observer.get(node_paths.topic(name)))[0])
        for partition, replicas in assignment.partitions.items():
            known = broker.image.partition(name, partition)
            if cluster.result(cluster.observer.exists(node_paths.state(TopicPartition(name, partition)))) is None:
                assert known is None and not live & set(replicas.replicas)
                continue
            state = cluster.state(name, partition)
            assert known is not None and known.replicas == replicas.replicas
            assert set(state.isr) <= set(replicas.replicas)
            assert (known.leader, known.leader_epoch) == (state.leader, state.leader_epoch)
            assert (known.isr, known.partition_epoch) == (state.isr, state.partition_epoch)
            assert set(known.offline_replicas) == set(replicas.replicas) - live
            if live & set(state.isr):
                assert state.leader in live
                assert set(state.isr) <= live
            else:
                assert state.leader == -1
            if broker.id in replicas.replicas:
                assert broker.roles[TopicPartition(name, partition)] == (state.leader, state.leader_epoch)


@pytest.mark.parametrize("seed", quarter(range(60)))
def test_everything_converges(seed: int) -> None:
    random = Random(seed)
    simulation = Simulation(random)
    for broker_id in BROKERS:
        simulation.start(broker_id)
    simulation.step(random.randrange(200))
    for _ in range(40):
        kind, what = random.choice(ACTIONS)
        simulation.act(kind, what)
        simulation.step(random.choice((0, 1, 5, 20, 60, 200)))
    simulation.settle()
    if simulation.cluster.brokers:
        simulation.check_settled()
    for broker_id in BROKERS:
        simulation.act("start", broker_id)
    simulation.settle()
    simulation.check_epochs()
    simulation.check_settled()
    assert simulation.cluster.result(simulation.cluster.observer.children(node_paths.DELETE_TOPICS)) == []
