"""Checks of a consumer group: coordinator, state, members and lag."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from txbroker.cli.doctor.asking import Partition
from txbroker.cli.doctor.cluster_checks import Cluster
from txbroker.cli.doctor.findings import Findings, named
from txbroker.cli.doctor.group_lag import NO_MEMBERS, Sample, Verdict, committed_offsets, judge, sleep_until
from txbroker.cli.doctor.topic_checks import offsets
from txbroker.client.blocking_connection import BlockingConnection
from txbroker.client.client_errors import ConnectionFailed
from txbroker.client.offset_requests import EARLIEST, LATEST
from txbroker.errors import ErrorCode, error_name
from txbroker.names import amount
from txbroker.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from txbroker.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from txbroker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

FIND_COORDINATOR_BATCHED = 4  # requests are for several groups from this version on
COORDINATOR_WAIT_S, COORDINATOR_EVERY_S = 15.0, 0.2
_COMING = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)


def check(findings: Findings, connection: BlockingConnection, cluster: Cluster, group: str, interval_s: float) -> None:
    """Check a group. `interval_s`: the time between the two samples of its lag."""
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
    committed = committed_offsets(coordinator, [group]).get(group, {})
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
        started_s = time.monotonic()
        first = _lag(findings, connection, cluster, group, committed)
        second = None
        if state not in NO_MEMBERS and first.lag():
            sleep_until(started_s + interval_s)
            again = committed_offsets(coordinator, [group]).get(group, {})
            ends = {each: end for each, (_, end) in _bounds(connection, cluster, sorted({topic for topic, _ in again})).items()}
            second = Sample(time.monotonic(), again, ends)
        _judge(findings, group, judge(state, first, second), second or first)


def _judge(findings: Findings, group: str, verdict: Verdict, sample: Sample) -> None:
    lags = {f"{topic}-{index}": sample.lag(frozenset([(topic, index)])) for topic, index in sample.known}
    worst = max(lags, key=lambda name: lags[name], default="")
    most = f", most in {worst} ({lags[worst]:,})" if worst and lags[worst] else ""
    found = f"{amount(sample.lag(), 'record')} behind{most}" + (f"; {verdict.sentence}" if verdict.sentence else "")
    if verdict.sick or verdict.slow:
        findings.warning(f"lag of group {group}", found, verdict.advice)
    else:
        findings.ok(f"lag of group {group}", found)


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


def _lag(
    findings: Findings, connection: BlockingConnection, cluster: Cluster, group: str, committed: Mapping[Partition, int]
) -> Sample:
    """Compare the committed offsets with the offsets of the logs; the first sample of the lag."""
    check_name = f"lag of group {group}"
    bounds = _bounds(connection, cluster, sorted({topic for topic, _ in committed}))
    at_s = time.monotonic()
    lost, beyond, unknown = [], [], []
    for (topic, index), offset in committed.items():
        partition = f"{topic}-{index}"
        if (topic, index) not in bounds:
            unknown.append(partition)
            continue
        start, end = bounds[topic, index]
        if offset < start:
            lost.append(f"{partition} ({amount(start - offset, 'record')})")
        if offset > end:
            beyond.append(partition)
    if lost:
        advice = "add consumers, or raise retention.ms or retention.bytes; the consumers continue where auto.offset.reset says"
        findings.warning(check_name, f"records were deleted before the group read them: {named(lost)}", advice)
    if beyond:
        advice = "the topic was recreated or truncated: reset the offsets (`txbroker groups --reset-offsets`), or auto.offset.reset decides"
        findings.warning(check_name, f"committed offsets are beyond the end of the log: {named(beyond)}", advice)
    if unknown:
        advice = "the topic was deleted, or its leader cannot be reached: see above"
        findings.warning(check_name, f"it is not known for {named(unknown)}", advice)
    # Records that were deleted are not behind any more: the group reads on from the start of the log.
    left = {each: max(offset, bounds[each][0]) if each in bounds else offset for each, offset in committed.items()}
    return Sample(at_s, left, {each: end for each, (_, end) in bounds.items()})


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
