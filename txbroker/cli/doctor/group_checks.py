"""Checks of a consumer group: coordinator, state, members and lag."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from txbroker.cli.doctor.cluster_checks import Cluster
from txbroker.cli.doctor.findings import Findings, named
from txbroker.cli.doctor.topic_checks import offsets
from txbroker.client.blocking_connection import BlockingConnection
from txbroker.client.client_errors import ConnectionFailed
from txbroker.client.offset_requests import EARLIEST, LATEST
from txbroker.errors import ErrorCode, error_name
from txbroker.names import amount
from txbroker.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from txbroker.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from txbroker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from txbroker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse

# OffsetFetch names topics by id above OFFSET_FETCH_MAX; requests are for several groups from the *_BATCHED versions on.
OFFSET_FETCH_MAX, OFFSET_FETCH_BATCHED = 9, 8
FIND_COORDINATOR_BATCHED = 4
COORDINATOR_WAIT_S, COORDINATOR_EVERY_S = 15.0, 0.2
_COMING = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
ALL_TOPICS_FROM = 2  # the first version of OffsetFetch that can request all topics


class Committed(NamedTuple):
    """A committed offset."""

    topic: str
    partition: int
    offset: int


def check(findings: Findings, connection: BlockingConnection, cluster: Cluster, group: str) -> None:
    """Check a group."""
    what = f"group {group}"
    node_id, problem = _coordinator(connection, group)
    if problem:
        advice = "try again; __consumer_offsets may be without leaders: run `txbroker doctor --topic __consumer_offsets`"
        findings.failed(what, f"it has no coordinator: {problem}", advice)
        return
    coordinator = cluster.connections.get(node_id)
    if coordinator is None:
        found = f"its coordinator is broker {node_id}, which cannot be reached from this machine"
        findings.failed(what, found, "correct the broker's advertised address, see above")
        return
    request = DescribeGroupsRequest(groups=[group])
    described: DescribedGroup = _once_available(lambda: coordinator.call(request).groups[0])
    if described.error_code and described.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
        findings.failed(what, f"broker {node_id} answers with {error_name(described.error_code)}", "see the broker's log")
        return
    committed = _committed(coordinator, group)
    if described.group_state in ("Dead", "") and not committed:
        advice = (
            "check the group.id of the consumers: a group exists from the first member or committed offset on, until its offsets expire "
            "(offsets.retention.minutes)"
        )
        findings.failed(what, "it does not exist", advice)
        return
    state = described.group_state
    hosts = sorted({member.client_host.lstrip("/") for member in described.members})
    who = f" from {named(hosts)}" if hosts else ""
    offset_count = amount(len(committed), "committed offset")
    found = f"coordinator {node_id}, state {state}, {amount(len(described.members), 'member')}{who}, {offset_count}"
    if state in ("PreparingRebalance", "CompletingRebalance"):
        advice = (
            "if this state lasts, a member exceeds max.poll.interval.ms, or members join and leave all the time: see the clients' logs for "
            "session and poll timeouts"
        )
        findings.warning(what, f"{found}; it is rebalancing and does not read meanwhile", advice)
    elif state == "Empty":
        findings.warning(what, f"{found}; no member reads", "start its consumers; if they run, check their group.id and bootstrap.servers")
    else:
        findings.ok(what, found)
    if committed:
        _lag(findings, connection, cluster, group, committed)


def _coordinator(connection: BlockingConnection, group: str) -> tuple[int, str]:
    """The coordinator's id, and why there is none."""
    batched = (connection.version_of(FindCoordinatorRequest) or 0) >= FIND_COORDINATOR_BATCHED
    request = FindCoordinatorRequest(coordinator_keys=[group]) if batched else FindCoordinatorRequest(key=group)

    def ask() -> Any:
        answer: FindCoordinatorResponse = connection.call(request)
        return answer.coordinators[0] if batched else answer

    found = _once_available(ask)
    if found.error_code:
        return -1, f"{error_name(found.error_code)}{f' ({found.error_message})' if found.error_message else ''}"
    return found.node_id, ""


def _once_available(ask: Callable[[], Any]) -> Any:
    """Ask, and ask again while the coordinator is not available yet: Kafka creates __consumer_offsets on the first request."""
    deadline = time.monotonic() + COORDINATOR_WAIT_S
    while True:
        answer = ask()
        if answer.error_code not in _COMING or time.monotonic() > deadline:
            return answer
        time.sleep(COORDINATOR_EVERY_S)


def _committed(connection: BlockingConnection, group: str) -> list[Committed]:
    version = min(connection.version_of(OffsetFetchRequest) or 0, OFFSET_FETCH_MAX)
    if version < ALL_TOPICS_FROM:
        return []
    if version >= OFFSET_FETCH_BATCHED:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
    else:
        request = OffsetFetchRequest(group_id=group, topics=None)
    answer: OffsetFetchResponse = connection.call(request, version_max=version)
    topics = answer.groups[0].topics if version >= OFFSET_FETCH_BATCHED else answer.topics
    return [
        Committed(topic.name, part.partition_index, part.committed_offset)
        for topic in topics
        for part in topic.partitions
        if not part.error_code and part.committed_offset >= 0
    ]


def _lag(findings: Findings, connection: BlockingConnection, cluster: Cluster, group: str, committed: list[Committed]) -> None:
    """Compare the committed offsets with the offsets of the logs."""
    check_name = f"lag of group {group}"
    bounds = _bounds(connection, cluster, sorted({offset.topic for offset in committed}))
    lost, beyond, unknown = [], [], []
    total = worst = 0
    worst_partition = ""
    for topic, index, offset in committed:
        partition = f"{topic}-{index}"
        if (topic, index) not in bounds:
            unknown.append(partition)
            continue
        start, end = bounds[topic, index]
        if offset < start:
            lost.append(f"{partition} ({amount(start - offset, 'record')})")
        if offset > end:
            beyond.append(partition)
        lag = max(end - max(offset, start), 0)
        total += lag
        if lag > worst:
            worst, worst_partition = lag, partition
    if lost:
        advice = "add consumers, or raise retention.ms or retention.bytes; the consumers continue where auto.offset.reset says"
        findings.warning(check_name, f"records were deleted before the group read them: {named(lost)}", advice)
    if beyond:
        advice = "the topic was recreated or truncated: reset the offsets (`txbroker groups --reset-offsets`), or auto.offset.reset decides"
        findings.warning(check_name, f"committed offsets are beyond the end of the log: {named(beyond)}", advice)
    if unknown:
        advice = "the topic was deleted, or its leader cannot be reached: see above"
        findings.warning(check_name, f"it is not known for {named(unknown)}", advice)
    most = f", most in {worst_partition} ({worst:,})" if worst else ""
    findings.ok(check_name, f"{amount(total, 'record')} behind{most}")


def _bounds(connection: BlockingConnection, cluster: Cluster, topics: list[str]) -> dict[tuple[str, int], tuple[int, int]]:
    """First and end offset of each partition whose leader answers."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic) for topic in topics], allow_auto_topic_creation=False)
    answer: MetadataResponse = connection.call(request)
    found: dict[tuple[str, int], tuple[int, int]] = {}
    for topic in answer.topics:
        by_leader: dict[int, list[int]] = {}
        for part in topic.partitions:
            by_leader.setdefault(part.leader_id, []).append(part.partition_index)
        for leader, indexes in by_leader.items():
            connected = cluster.connections.get(leader)
            if connected is None or topic.name is None:
                continue
            try:
                starts = offsets(connected, topic.name, indexes, EARLIEST)
                ends = offsets(connected, topic.name, indexes, LATEST)
            except ConnectionFailed:
                continue
            for index in starts.keys() & ends.keys():
                found[topic.name, index] = starts[index].offset, ends[index].offset
    return found
