"""Requests of `txbroker groups`: groups, their members, coordinators and committed offsets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from txbroker.cli import clients
from txbroker.cli.results import Row
from txbroker.errors import ErrorCode
from txbroker.names import TopicPartition

# Groups of consumers, and groups that only commit offsets (Kafka's ListGroupsOptions.forConsumerGroups).
CONSUMERS = ("consumer", "")


class Coordinator(NamedTuple):
    """The coordinator of a group."""

    node_id: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}  ({self.node_id})"


class Member(NamedTuple):
    """A member of a group. Its partitions are not known if the group has another protocol than consumers."""

    consumer_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: list[TopicPartition]


class Group(NamedTuple):
    """The description of a group by its coordinator, or `error`: a code and a message."""

    name: str
    state: str
    assignor: str
    coordinator: Coordinator
    members: list[Member]
    error: tuple[int, str | None] | None

    @property
    def missing(self) -> bool:
        """Whether the group does not exist, which older versions of DescribeGroups report as a state."""
        return self.state == "Dead" if self.error is None else self.error[0] == ErrorCode.GROUP_ID_NOT_FOUND


def list_groups(admin: Any, timeout_ms: int) -> list[Row]:
    """All groups of consumers, sorted by name, with state and type."""
    found = clients.retried(admin.list_groups, timeout_ms)
    rows = [
        {"group": group["group_id"], "state": group.get("group_state") or "Unknown", "type": (group.get("group_type") or "classic").title()}
        for group in found
        if group["protocol_type"] in CONSUMERS
    ]
    return sorted(rows, key=lambda row: str(row["group"]))


def coordinators(admin: Any, names: Sequence[str], timeout_ms: int) -> dict[str, Coordinator]:
    """The coordinator of each group; KafkaError. The first request creates __consumer_offsets, and may have to wait for it."""
    from kafka.errors import for_code
    from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest

    def find() -> dict[str, Coordinator]:
        # Version 4 has several keys: Kafka 3.0 (KIP-699).
        request = FindCoordinatorRequest(key_type=CoordinatorType.GROUP.value, coordinator_keys=list(names), min_version=4)
        found = {}
        for answer in clients.send(admin, request).coordinators:
            if answer.error_code != ErrorCode.NONE:
                raise for_code(answer.error_code)(answer.error_message)
            found[answer.key] = Coordinator(answer.node_id, answer.host, answer.port)
        return found

    return clients.retried(find, timeout_ms) if names else {}


def describe_groups(admin: Any, names: Iterable[str], timeout_ms: int) -> list[Group]:
    """The groups, sorted by name; KafkaError if a coordinator does not answer."""
    from kafka.protocol.admin import DescribeGroupsRequest

    groups: list[Group] = []
    for coordinator, some in _by_coordinator(coordinators(admin, sorted(set(names)), timeout_ms)).items():
        response = clients.send(admin, DescribeGroupsRequest(groups=some), coordinator.node_id)
        groups += [_group(group, coordinator) for group in response.groups]
    return sorted(groups)


def delete_groups(admin: Any, names: Iterable[str], timeout_ms: int) -> dict[str, int]:
    """Delete groups; the error code of each, sorted by name."""
    from kafka.protocol.admin import DeleteGroupsRequest

    found: dict[str, int] = {}
    for coordinator, some in _by_coordinator(coordinators(admin, sorted(set(names)), timeout_ms)).items():
        response = clients.send(admin, DeleteGroupsRequest(groups_names=some), coordinator.node_id)
        found |= {result.group_id: result.error_code for result in response.results}
    return dict(sorted(found.items()))


def committed_offsets(admin: Any, names: Sequence[str], timeout_ms: int) -> dict[str, dict[TopicPartition, Any]]:
    """The committed offset, leader epoch and metadata of each group, by partition."""
    if not names:
        return {}
    found = clients.retried(lambda: admin.list_group_offsets(dict.fromkeys(names)), timeout_ms)
    return {
        group: {TopicPartition(*partition): offset for partition, offset in sorted(offsets.items()) if offset.offset >= 0}
        for group, offsets in found.items()
    }


def commit_offsets(admin: Any, group: str, offsets: Mapping[TopicPartition, int], metadata: str = "") -> dict[TopicPartition, int]:
    """Commit as a tool does, without a generation and a leader epoch; the error codes of the partitions that are refused. KafkaError."""
    from kafka import TopicPartition as KafkaPartition
    from kafka.structs import OffsetAndMetadata

    wanted = {KafkaPartition(*partition): OffsetAndMetadata(offset, metadata, None) for partition, offset in offsets.items()}
    answers = admin.alter_group_offsets(group, wanted)
    return {TopicPartition(*partition): error.errno for partition, error in answers.items() if error.errno != ErrorCode.NONE}


def _by_coordinator(found: Mapping[str, Coordinator]) -> dict[Coordinator, list[str]]:
    groups: dict[Coordinator, list[str]] = defaultdict(list)
    for name, coordinator in found.items():
        groups[coordinator].append(name)
    return groups


def _group(found: Any, coordinator: Coordinator) -> Group:
    error = (found.error_code, getattr(found, "error_message", None)) if found.error_code != ErrorCode.NONE else None
    consumers = found.protocol_type in CONSUMERS
    members = [_member(member, consumers) for member in found.members]
    return Group(found.group_id, found.group_state, found.protocol_data or "", coordinator, members, error)


def _member(found: Any, consumer: bool) -> Member:
    partitions = _assignment(bytes(found.member_assignment)) if consumer and found.member_assignment else []
    instance_id = getattr(found, "group_instance_id", None)
    return Member(found.member_id, instance_id, found.client_id, found.client_host, partitions)


def _assignment(data: bytes) -> list[TopicPartition]:
    """The partitions of a member; none if they cannot be decoded: the bytes are those of the group's leader."""
    from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

    try:
        topics = ConsumerProtocolAssignment.decode(data).assigned_partitions
        return sorted(TopicPartition(topic.topic, partition) for topic in topics for partition in topic.partitions)
    except Exception:
        return []
