"""Leadership that moves between the brokers of a cluster: by reassignment and election, and by kill -9."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafka.protocol.admin import AlterPartitionReassignmentsRequest, ElectionType, ElectLeadersRequest

from tests.support.cluster import NOT_CONTROLLER, Cluster
from tests.support.raw import RawConnection

_TIMEOUT_MS = 30_000
_ELECTION_NOT_NEEDED = 84

Replicas = Mapping[str, Mapping[int, tuple[int, ...]]]  # by topic and partition, the preferred leader first


def move_leaders(cluster: Cluster, prefix: str) -> None:
    """Move the leader of each partition of the topics with this prefix, and of internal topics, to the next replica.

    When the followers have copied everything, the replicas are reassigned in another order, and the first of them is elected. Returns when
    every broker knows it.
    """
    targets = {topic: {number: (*replicas[1:], replicas[0]) for number, replicas in partitions.items()}
               for topic, partitions in _replicas(cluster).items() if topic.startswith((prefix, "__"))}
    if targets:
        _until_copied(cluster, targets)
        _reassign(cluster, targets)
        _elect(cluster, targets)


def kill_leader(cluster: Cluster, prefix: str) -> None:
    """kill -9 of the leader of the first partition of the first topic with this prefix; other brokers lead; it returns, and leads again."""
    victim = cluster.leader(min(topic for topic in _replicas(cluster) if topic.startswith(prefix)))
    cluster.brokers[victim].kill()
    cluster.until_registered()
    cluster.until_leader_is_not(victim)
    cluster.start_brokers([victim])
    cluster.until_in_sync()
    _elect(cluster, _replicas(cluster))


def _replicas(cluster: Cluster) -> Replicas:
    return {topic: {number: state.replicas for number, state in partitions.items()} for topic, partitions in cluster.topics().items()}


def _until_copied(cluster: Cluster, topics: Replicas) -> None:
    """Wait until the replicas' segments are equally long: an election removes what producers with acks=1 sent, and only the leader has."""
    def sizes(topic: str, number: int, replicas: Sequence[int]) -> set[int]:
        return {sum(file.stat().st_size for file in cluster.brokers[replica].partition_directory(topic, number).glob("*.log"))
                for replica in replicas}

    cluster.until(lambda: all(len(sizes(topic, number, replicas)) == 1 for topic, partitions in topics.items()
                              for number, replicas in partitions.items()), "the followers have copied everything")


def _reassign(cluster: Cluster, targets: Replicas) -> None:
    topic_type = AlterPartitionReassignmentsRequest.ReassignableTopic
    topics = [
        topic_type(name=topic, partitions=[topic_type.ReassignablePartition(partition_index=number, replicas=list(replicas))
                                           for number, replicas in partitions.items()])
        for topic, partitions in targets.items()
    ]
    answer = _ask(cluster, lambda: AlterPartitionReassignmentsRequest(timeout_ms=_TIMEOUT_MS, topics=topics), 0)
    refused = [(topic.name, part) for topic in answer.responses for part in topic.partitions if part.error_code]
    assert not refused, f"refused reassignments: {refused}"


def _elect(cluster: Cluster, targets: Replicas) -> None:
    """Elect the first replica of each partition, and wait until every broker knows it."""
    topic_type = ElectLeadersRequest.TopicPartitions
    topics = [topic_type(topic=topic, partitions=list(partitions)) for topic, partitions in targets.items()]
    wanted = {"election_type": ElectionType.PREFERRED, "topic_partitions": topics, "timeout_ms": _TIMEOUT_MS}
    answer = _ask(cluster, lambda: ElectLeadersRequest(**wanted), 2)
    refused = [(topic.topic, part) for topic in answer.replica_election_results for part in topic.partition_result
               if part.error_code not in (0, _ELECTION_NOT_NEEDED)]
    assert not refused, f"refused elections: {refused}"

    def elected(broker_id: int) -> bool:
        found = cluster.topics(broker_id)
        states = [(found.get(topic, {}).get(number), replicas) for topic, partitions in targets.items()
                  for number, replicas in partitions.items()]
        return all(state is not None and (state.leader, state.replicas) == (replicas[0], replicas) for state, replicas in states)

    cluster.until(lambda: all(map(elected, cluster.serving)), f"every broker knows the elected leaders of {', '.join(targets)}")


def _ask(cluster: Cluster, request: Callable[[], Any], version: int) -> Any:
    """The controller's answer, whose error code is 0."""
    def attempt() -> Any:
        with RawConnection(cluster.brokers[cluster.controller()].address) as connection:
            answer = connection.call(request(), version)
        return None if answer.error_code == NOT_CONTROLLER else answer

    answer = cluster.until(attempt, "the controller answers")
    assert answer.error_code == 0, answer
    return answer
