"""What this broker does when its controller speaks: large requests are carried out some partitions at a time."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from tests.cluster.test_replicas import OTHER, OWN, ReplicasHarness
from tests.log_directories.support import NOW, TOPIC_ID
from tests.support.fakes.faulty_disk import WRITES
from txbroker.cluster.image import FULL
from txbroker.cluster.own_broker import PARTITIONS_PER_TURN, RETRY_S, ROLES_PER_TURN, OwnBroker
from txbroker.cluster.partition import Partition
from txbroker.cluster.tree.interface import Refused
from txbroker.errors import BrokerError, ErrorCode, StorageError
from txbroker.names import TopicPartition
from txbroker.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
)
from txbroker.wire.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from txbroker.wire.messages.update_metadata import UpdateMetadataPartitionState, UpdateMetadataRequest, UpdateMetadataTopicState

OTHER_ID = bytes(range(1, 17))


class Configs:
    """Knows that no topic has a configuration of its own. `refused`: topics whose configurations cannot be read."""

    def __init__(self) -> None:
        self.refused: dict[str, Refused] = {}

    def load_topics(self, names: Iterable[str]) -> Deferred[dict[str, Refused]]:
        return succeed({name: self.refused[name] for name in names if name in self.refused})

    def forget_topic(self, name: str) -> None:
        self.refused.pop(name, None)


class OwnBrokerHarness:
    def __init__(self, path: Path) -> None:
        self.harness = ReplicasHarness(path)
        self.clock = Clock()
        self.epoch = -1
        self.asked_again: list[float] = []
        self.configs: Any = Configs()
        self.image = self.harness.image
        self.own = OwnBroker(
            self.harness.replicas, self.image, self.configs, lambda: NOW, lambda changes: None, self.clock, lambda: self.epoch,
            self._ask_again,
        )  # fmt: skip
        self.answers: list[Any] = []

    def _ask_again(self) -> None:
        self.asked_again.append(self.clock.seconds())

    def lead(self, *topics: tuple[str, bytes, int], controller_epoch: int = 1, leader_epoch: int = 0) -> None:
        """The topics' names, ids and numbers of partitions."""
        states = [
            LeaderAndIsrTopicState(topic_name=name, topic_id=topic_id, partition_states=[
                LeaderAndIsrPartitionState(partition_index=n, controller_epoch=1, leader=OWN, leader_epoch=leader_epoch, isr=[OWN],
                                           partition_epoch=leader_epoch, replicas=[OWN], is_new=True) for n in range(count)])
            for name, topic_id, count in topics
        ]
        request = LeaderAndIsrRequest(controller_id=1, controller_epoch=controller_epoch, topic_states=states, live_leaders=[])
        self.own.send(request).addBoth(self.answers.append)

    def delete(self, name: str) -> int:
        """Delete partition 0; the error code."""
        states = [StopReplicaPartitionState(partition_index=0, leader_epoch=0, delete_partition=True)]
        topics = [StopReplicaTopicState(topic_name=name, partition_states=states)]
        self.own.send(StopReplicaRequest(controller_id=1, controller_epoch=1, topic_states=topics)).addBoth(self.answers.append)
        return int(self.answers.pop().partition_errors[0].error_code)


@pytest.fixture
def own(tmp_path: Path) -> OwnBrokerHarness:
    return OwnBrokerHarness(tmp_path)


def test_creating_many_logs_yields_to_other_work(own: OwnBrokerHarness) -> None:
    own.lead(("t", TOPIC_ID, PARTITIONS_PER_TURN + 3), ("u", OTHER_ID, PARTITIONS_PER_TURN))
    made: list[int] = []

    def other() -> None:
        made.append(len(own.harness.replicas))
        if not own.answers:
            own.clock.callLater(0, other)

    other()
    own.clock.advance(0)
    assert made == [PARTITIONS_PER_TURN, 2 * PARTITIONS_PER_TURN, 2 * PARTITIONS_PER_TURN + 3]
    (answer,) = own.answers
    assert isinstance(answer, LeaderAndIsrResponse)
    errors = {topic.topic_id: [(p.partition_index, p.error_code) for p in topic.partition_errors] for topic in answer.topics}
    assert errors == {
        TOPIC_ID: [(n, ErrorCode.NONE) for n in range(PARTITIONS_PER_TURN + 3)],
        OTHER_ID: [(n, ErrorCode.NONE) for n in range(PARTITIONS_PER_TURN)],
    }


def test_the_roles_of_open_logs_yield_less_often(own: OwnBrokerHarness) -> None:
    count = ROLES_PER_TURN + 1
    own.lead(("t", TOPIC_ID, count))
    while not own.answers:
        own.clock.advance(0)
    own.answers.clear()
    changed: list[int] = []

    def other() -> None:
        changed.append(sum(partition.leader_epoch == 1 for partition in own.harness.replicas))
        if not own.answers:
            own.clock.callLater(0, other)

    own.lead(("t", TOPIC_ID, count), leader_epoch=1)
    other()
    own.clock.advance(0)
    assert changed == [ROLES_PER_TURN, count]


def test_a_defect_in_one_partition_leaves_the_others_their_roles(
    own: OwnBrokerHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def leading(partition: Partition) -> None:
        if partition.topic_partition.partition == 1:
            raise RuntimeError("a defect")

    monkeypatch.setattr(own.harness, "leading", leading)
    own.lead(("t", TOPIC_ID, 3))
    (answer,) = own.answers
    assert [p.error_code for p in answer.topics[0].partition_errors] == [ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE]
    assert own.harness.replicas.get("t", 2).is_leader
    assert "t-1: failed to become leader or follower" in caplog.text and "a defect" in caplog.text


@pytest.mark.parametrize(
    ("change", "deleted"),
    [
        ({}, True), ({"leader_epoch": 4}, True), ({"topic_id": OTHER_ID}, False), ({"leader_epoch": 2}, False), ({"type": 0}, False),
        ({"replicas": [OTHER, OWN]}, False), ({"isr": [OTHER, OWN]}, False), ({"leader": OWN}, False),
    ],
)  # fmt: skip
def test_a_replica_that_only_others_have_is_deleted(own: OwnBrokerHarness, change: dict[str, Any], deleted: bool) -> None:
    """When all metadata has come: the controller that has removed it did not reach this broker."""
    own.lead(("t", TOPIC_ID, 1), leader_epoch=3)
    fields: dict[str, Any] = {"leader": OTHER, "leader_epoch": 3, "isr": [OTHER], "replicas": [OTHER], "topic_id": TOPIC_ID, "type": FULL}
    fields.update(change)
    topic_id, kind = fields.pop("topic_id"), fields.pop("type")
    state = UpdateMetadataPartitionState(partition_index=0, controller_epoch=2, zk_version=9, **fields)
    topic = UpdateMetadataTopicState(topic_name="t", topic_id=topic_id, partition_states=[state])
    request = UpdateMetadataRequest(controller_id=2, type=kind, controller_epoch=2, topic_states=[topic], live_brokers=[])
    own.own.send(request).addBoth(own.answers.append)
    assert own.answers[-1].error_code == ErrorCode.NONE
    assert (own.harness.replicas.find("t", 0) is None) == deleted
    assert (own.harness.broker.directories.get(TopicPartition("t", 0)) is None) == deleted


def test_a_replica_that_only_others_have_is_deleted_when_the_disk_has_space_again(
    own: OwnBrokerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    """A reassignment does not wait for it, and no later request deletes the replica."""
    own.lead(("t", TOPIC_ID, 1))
    disk = own.harness.broker.disk
    disk.fail("rename", error=errno.ENOSPC)
    assert own.delete("t") == ErrorCode.KAFKA_STORAGE_ERROR
    state = UpdateMetadataPartitionState(
        partition_index=0, controller_epoch=1, zk_version=9, leader=OTHER, leader_epoch=1, isr=[OTHER], replicas=[OTHER]
    )
    topic = UpdateMetadataTopicState(topic_name="t", topic_id=TOPIC_ID, partition_states=[state])
    own.own.send(UpdateMetadataRequest(controller_id=1, controller_epoch=1, topic_states=[topic], live_brokers=[]))
    for _ in range(3):
        own.clock.advance(RETRY_S)
    assert own.harness.replicas.find("t", 0) is not None
    assert caplog.text.count("t-0: failed to delete the replica") == 1
    disk.repair()
    own.clock.advance(RETRY_S)
    assert own.harness.replicas.find("t", 0) is None
    asked = len(own.asked_again)
    own.clock.advance(3 * RETRY_S)
    assert len(own.asked_again) == asked


def test_a_request_for_nothing_is_answered_and_its_controller_checked(own: OwnBrokerHarness) -> None:
    own.lead(controller_epoch=5)
    assert own.answers.pop().topics == []
    own.lead(controller_epoch=4)
    assert own.answers.pop().value.code == ErrorCode.STALE_CONTROLLER_EPOCH


def test_a_stopping_broker_creates_no_more_logs(own: OwnBrokerHarness) -> None:
    own.lead(("t", TOPIC_ID, 3 * PARTITIONS_PER_TURN))
    own.own.stop()
    own.clock.advance(0)
    assert len(own.harness.replicas) == PARTITIONS_PER_TURN
    error = own.answers.pop().value
    assert isinstance(error, BrokerError)
    assert error.code == ErrorCode.BROKER_NOT_AVAILABLE


def test_a_role_that_a_full_disk_prevents_is_asked_for_again(own: OwnBrokerHarness) -> None:
    disk = own.harness.broker.disk
    disk.fail(WRITES, error=errno.ENOSPC)
    own.lead(("t", TOPIC_ID, 1))
    assert own.answers.pop().topics[0].partition_errors[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    own.clock.advance(RETRY_S)
    assert len(own.asked_again) == 1, "the controller sends the roles again, and elects a leader when they succeed"
    disk.repair()
    own.lead(("t", TOPIC_ID, 1))
    assert own.answers.pop().topics[0].partition_errors[0].error_code == ErrorCode.NONE
    own.clock.advance(2 * RETRY_S)
    assert len(own.asked_again) == 1


def test_a_deletion_that_a_full_disk_prevents_is_asked_for_again(own: OwnBrokerHarness) -> None:
    own.lead(("t", TOPIC_ID, 1))
    disk = own.harness.broker.disk
    disk.fail("rename", error=errno.ENOSPC)
    assert own.delete("t") == ErrorCode.KAFKA_STORAGE_ERROR
    own.clock.advance(RETRY_S)
    assert len(own.asked_again) == 1, "the controller sends the deletion again"
    disk.repair()
    assert own.delete("t") == ErrorCode.NONE
    own.clock.advance(2 * RETRY_S)
    assert len(own.asked_again) == 1 and own.harness.replicas.find("t", 0) is None
    own.answers.clear()
    own.lead(("t", OTHER_ID, 1))
    assert own.answers.pop().topics[0].partition_errors[0].error_code == ErrorCode.NONE, "the topic is created again"


def test_a_role_in_a_directory_that_is_offline_is_not_asked_for_again(own: OwnBrokerHarness) -> None:
    own.lead(("t", TOPIC_ID, 1))
    partition = own.harness.replicas.get("t", 0)
    own.harness.broker.directories.fail(partition.log, StorageError("the disk is broken"))
    own.answers.clear()
    own.lead(("t", TOPIC_ID, 1))
    assert own.answers.pop().topics[0].partition_errors[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    own.clock.advance(2 * RETRY_S)
    assert own.asked_again == []


def test_a_topic_whose_configuration_cannot_be_read_does_not_stop_the_others(
    own: OwnBrokerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    own.configs.refused["t"] = Refused("/config/topics/t")
    own.lead(("t", TOPIC_ID, 1), ("u", OTHER_ID, 1))
    own.clock.advance(0)
    codes = {topic.topic_id: topic.partition_errors[0].error_code for topic in own.answers.pop().topics}
    assert codes == {TOPIC_ID: ErrorCode.UNKNOWN_SERVER_ERROR, OTHER_ID: ErrorCode.NONE}
    assert own.harness.replicas.find("t", 0) is None, "the default retention could delete its records"
    assert "topic t is not served: its configuration cannot be read, retrying: Refused at /config/topics/t" in caplog.text
    own.clock.advance(RETRY_S)
    assert len(own.asked_again) == 1
    own.configs.refused.clear()
    own.lead(("t", TOPIC_ID, 1))
    assert own.answers.pop().topics[0].partition_errors[0].error_code == ErrorCode.NONE
