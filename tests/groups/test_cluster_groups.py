"""Groups on a cluster of real brokers: the offsets topic and its replicas, and coordinators that are killed, paused and stopped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer
from kafka.protocol.consumer import OffsetCommitRequest, OffsetFetchRequest
from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest, MetadataRequest

from tests.support.broker import BrokerProcess
from tests.support.cluster import CLUSTER_OVERRIDES, Cluster
from tests.support.kafka import KafkaMember
from tests.support.members import Member, until_shared
from tests.support.raw import RawConnection
from tests.support.records import Received
from tests.support.server import Server
from tests.support.waiting import until
from txbroker.names import coordinator_partition

OFFSETS_TOPIC = "__consumer_offsets"
NOT_AVAILABLE = 15
RETRIABLE = {3, 7, 14, 15, 16}  # the topic is not known yet, a timeout, and the errors of coordinators that move
PARTITIONS = 4
SESSION_MS = 240_000  # of the members: no pause of a loaded machine may end it


class Committer:
    """Commits larger and larger offsets of one group, on the broker that FindCoordinator names, and reads them back."""

    def __init__(self, cluster: Cluster, group: str, topic: str) -> None:
        self._cluster = cluster
        self._group = group
        self._topic = topic
        self.acknowledged = 0

    def coordinator(self) -> int:
        """The id of the coordinator by any broker that runs; -1 if there is none at the moment."""
        for server in self._cluster.serving.values():
            try:
                with RawConnection(server.address) as connection:
                    found = connection.call(FindCoordinatorRequest(key=self._group, key_type=CoordinatorType.GROUP), 2)
            except OSError:
                continue
            if not found.error_code and found.node_id in self._cluster.serving:
                return int(found.node_id)
        return -1

    def commit(self) -> None:
        """Commit the next offset."""
        offset = self.acknowledged + 1
        partition = OffsetCommitRequest.OffsetCommitRequestTopic.OffsetCommitRequestPartition
        partitions = [partition(partition_index=0, committed_offset=offset, committed_metadata="")]
        topics = [OffsetCommitRequest.OffsetCommitRequestTopic(name=self._topic, partitions=partitions)]

        def attempt() -> bool:
            request = OffsetCommitRequest(group_id=self._group, generation_id_or_member_epoch=-1, member_id="", topics=topics)
            answer = self._call(request, 7)
            if answer is None:
                return False
            code = answer.topics[0].partitions[0].error_code
            assert code == 0 or code in RETRIABLE, code
            return bool(code == 0)

        until(attempt, f"offset {offset} is committed")
        self.acknowledged = offset

    def check(self) -> None:
        """The coordinator returns the offset that was acknowledged last."""
        wanted = [OffsetFetchRequest.OffsetFetchRequestTopic(name=self._topic, partition_indexes=[0])]

        def attempt() -> int | None:
            answer = self._call(OffsetFetchRequest(group_id=self._group, topics=wanted), 5)
            if answer is None or answer.error_code:
                assert answer is None or answer.error_code in RETRIABLE, answer.error_code
                return None
            return int(answer.topics[0].partitions[0].committed_offset)

        assert until(attempt, "the committed offset") == self.acknowledged

    def _call(self, request: Any, version: int) -> Any:
        """The coordinator's response; None without one."""
        coordinator = self.coordinator()
        if coordinator < 0:
            return None
        try:
            with RawConnection(self._cluster.brokers[coordinator].address) as connection:
                return connection.call(request, version)
        except OSError:
            return None


class Reader:
    """A member of the group, with librdkafka."""

    def __init__(self, cluster: Cluster, group: str, topic: str) -> None:
        self._consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "auto.offset.reset": "earliest",
                                   "enable.auto.commit": False, "heartbeat.interval.ms": 500,
                                   "session.timeout.ms": SESSION_MS})  # fmt: skip
        self._consumer.subscribe([topic])

    def poll(self) -> list[Received]:
        self._consumer.poll(0.1)
        return []

    def assignment(self) -> set[int]:
        return {p.partition for p in self._consumer.assignment()}

    def close(self) -> None:
        self._consumer.close()


def codes(cluster: Cluster, group: str) -> list[int]:
    """The error code of FindCoordinator at each broker."""
    found = []
    for server in cluster.serving.values():
        with RawConnection(server.address) as connection:
            found.append(connection.call(FindCoordinatorRequest(key=group, key_type=CoordinatorType.GROUP), 2).error_code)
    return found


def same_partition(group: str) -> str:
    """Another group in the same partition of the offsets topic."""
    count = int(CLUSTER_OVERRIDES["offsets.topic.num.partitions"])
    names = (f"{group}-{n}" for n in range(1000))
    return next(other for other in names if coordinator_partition(other, count) == coordinator_partition(group, count))


def create_by_metadata(server: Server, topic: str) -> None:
    """A client that only asks for a topic's metadata creates it, at any broker."""
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True)
    with RawConnection(server.address) as connection:
        until(lambda: connection.call(request, 8).topics[0].error_code == 0, f"{topic} is created")


@pytest.mark.parametrize("others", [BrokerProcess.kind, KafkaMember.kind])
def test_offsets_and_members_survive_their_coordinators(start_cluster: Callable[..., Cluster], name: str, others: str) -> None:
    settings = {"num.partitions": str(PARTITIONS), "default.replication.factor": "2", "group.initial.rebalance.delay.ms": "500"}
    cluster = start_cluster(kinds=(BrokerProcess.kind, others), overrides=settings)
    assert codes(cluster, name) == [NOT_AVAILABLE] * 2, "two brokers cannot hold three replicas"
    other = next(server for broker_id, server in cluster.brokers.items() if broker_id != cluster.controller())
    create_by_metadata(other, name)
    assert len(cluster.partitions(name)) == PARTITIONS

    cluster.add(3, others)
    cluster.start_brokers([3])
    until(lambda: codes(cluster, name) == [0] * 3, "every broker finds the coordinator")
    cluster.until_in_sync(OFFSETS_TOPIC, name)
    assert all(len(state.replicas) == 3 for state in cluster.partitions(OFFSETS_TOPIC).values())

    # A group has either members or a client that commits without them: the other group is in the same partition.
    committer = Committer(cluster, same_partition(name), name)
    with Member(lambda: Reader(cluster, name, name)) as one, Member(lambda: Reader(cluster, name, name)) as two:
        until_shared(set(range(PARTITIONS)), one, two)
        before = len(one.assignments), len(two.assignments)
        for fault in (Server.kill, Server.pause, Server.stop):
            committer.commit()
            victim = committer.coordinator()
            server = cluster.brokers[victim]
            fault(server)
            committer.check()
            committer.commit()
            assert committer.coordinator() != victim
            if server.paused:
                server.resume()
            else:
                server.start()
            cluster.until_registered()
            cluster.until_in_sync()
            committer.check()
        assert (len(one.assignments), len(two.assignments)) == before, "no member was lost, and there was no rebalance"
        until_shared(set(range(PARTITIONS)), one, two)
