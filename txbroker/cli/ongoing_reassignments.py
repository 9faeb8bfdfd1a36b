"""The reassignments of partitions between brokers that are in progress (KIP-455)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from txbroker.cli import clients
from txbroker.console.failures import broker_error
from txbroker.errors import ErrorCode
from txbroker.names import TopicPartition

TIMEOUT_MS = 10_000


class Ongoing(NamedTuple):
    """A reassignment in progress: all replicas, and those that it adds and removes."""

    replicas: Sequence[int]
    adding: Sequence[int]
    removing: Sequence[int]

    def __str__(self) -> str:
        parts = {"replicas": self.replicas, "adding": self.adding, "removing": self.removing}
        return " ".join(f"{name}: {','.join(map(str, brokers))}." for name, brokers in parts.items() if brokers)


def find_ongoing(admin: Any) -> dict[TopicPartition, Ongoing]:
    """The reassignments in progress."""
    from kafka.protocol.admin import ListPartitionReassignmentsRequest

    response = clients.send_to_controller(admin, ListPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=None))
    if response.error_code != ErrorCode.NONE:
        raise broker_error("the reassignments cannot be listed", response.error_code, response.error_message)
    return {
        TopicPartition(topic.name, partition.partition_index): Ongoing(
            partition.replicas, partition.adding_replicas, partition.removing_replicas
        )
        for topic in response.topics
        for partition in topic.partitions
    }
