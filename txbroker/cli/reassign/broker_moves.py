"""Reassignments between brokers (KIP-455): the controller's requests and answers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from txbroker.cli import clients
from txbroker.cli.ongoing_reassignments import Ongoing
from txbroker.cli.reassign.reassignment_file import Assignment
from txbroker.cli.results import Results
from txbroker.console.failures import CommandFailed, broker_error, warn
from txbroker.errors import ErrorCode
from txbroker.names import TopicPartition


def reassign(
    admin: Any, targets: Mapping[TopicPartition, Sequence[int] | None], timeout_ms: int, *, factor_may_change: bool = True
) -> list[TopicPartition]:
    """Begin reassignments, or cancel those with the target None. Returns the accepted partitions, and warns of the others."""
    from kafka.protocol.admin import AlterPartitionReassignmentsRequest

    topic_type = AlterPartitionReassignmentsRequest.ReassignableTopic
    by_topic: dict[str, list[Any]] = defaultdict(list)
    for partition, target in sorted(targets.items()):
        by_topic[partition.topic].append(topic_type.ReassignablePartition(partition_index=partition.partition, replicas=target))
    topics = [topic_type(name=name, partitions=partitions) for name, partitions in by_topic.items()]
    request = AlterPartitionReassignmentsRequest(timeout_ms=timeout_ms, topics=topics, allow_replication_factor_change=factor_may_change)
    response = clients.send_to_controller(admin, request)
    if response.error_code != ErrorCode.NONE:
        raise broker_error("no partition was reassigned", response.error_code, response.error_message)
    accepted = []
    for topic in response.responses:
        for answer in topic.partitions:
            partition = TopicPartition(topic.name, answer.partition_index)
            if answer.error_code == ErrorCode.NONE:
                accepted.append(partition)
            else:
                warn(str(broker_error(f"{partition} was not reassigned", answer.error_code, answer.error_message)))
    return accepted


def names(partitions: Sequence[TopicPartition]) -> str:
    """Partitions as Kafka's tool lists them."""
    return ",".join(map(str, sorted(partitions)))


def check_none_ongoing(ongoing: Mapping[TopicPartition, Ongoing]) -> None:
    """CommandFailed if a reassignment is in progress."""
    if ongoing:
        raise CommandFailed(
            "Cannot execute because there is an existing partition assignment: add --additional to reassign partitions in addition to it, "
            "or to change its throttle by the same file"
        )


def show_states(
    shown: Results,
    wanted: Mapping[TopicPartition, Assignment],
    replicas: Mapping[TopicPartition, Sequence[int]],
    ongoing: Mapping[TopicPartition, Ongoing],
) -> None:
    """Print the state of each reassignment."""
    if not shown.as_json:
        shown.line("Status of partition reassignment:")
    for partition, assignment in sorted(wanted.items()):
        now, target = list(replicas.get(partition, ())), list(assignment.replicas)
        if partition in ongoing:
            state, sentence = "in_progress", f"Reassignment of partition {partition} is still in progress."
        elif now == target:
            state, sentence = "completed", f"Reassignment of partition {partition} is completed."
        else:
            is_, should = (",".join(map(str, brokers)) for brokers in (now, target))
            state = "not_active"
            sentence = f"There is no active reassignment of partition {partition}, but replica set is {is_} rather than {should}."
        shown.done(sentence, topic=partition.topic, partition=partition.partition, state=state, replicas=now, target=target)
