"""Checks of a topic: leaders, replicas, configuration; and the facts for the checks of expiry and compaction."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from txbroker.cli.doctor.cluster_checks import Cluster
from txbroker.cli.doctor.facts import CleaningFacts, Configs, PartitionFacts
from txbroker.cli.doctor.findings import Findings, named
from txbroker.client.auto_create import creates_topics
from txbroker.client.blocking_connection import BlockingConnection
from txbroker.client.client_errors import ClientError, ConnectionFailed, RequestFailed
from txbroker.client.config_requests import BROKER_RESOURCE, TOPIC_RESOURCE, describe_configs
from txbroker.client.offset_requests import EARLIEST, LATEST, MAX_TIMESTAMP, FoundOffset, list_offsets
from txbroker.errors import ErrorCode, error_name
from txbroker.names import amount, similar_names
from txbroker.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest, DescribeLogDirsResponse
from txbroker.wire.messages.list_offsets import ListOffsetsRequest
from txbroker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponsePartition

CLEANER_KEY = "txbroker.cleaner"  # and a dot and a partition's number: the state of its compaction
CLEANER_KEYS_AT_ONCE = 500
MAX_TIMESTAMP_VERSION = 7  # the first version of ListOffsets with MAX_TIMESTAMP (KIP-734)
BROKER_KEYS = ("log.retention.check.interval.ms", "log.cleaner.enable", "auto.create.topics.enable", "min.insync.replicas")


def find(findings: Findings, connection: BlockingConnection, topic: str) -> list[MetadataResponsePartition] | None:
    """The topic's partitions, after findings on leaders and replicas; None if it does not exist."""
    check = f"topic {topic}"
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    answer: MetadataResponse = connection.call(request)
    (found,) = answer.topics
    if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        everything: MetadataResponse = connection.call(MetadataRequest(topics=None, allow_auto_topic_creation=False))
        names = [other.name for other in everything.topics if other.name]
        near = similar_names(topic, names, 3)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        created = creates_topics(connection)
        does = "a producer would create it" if created else "producers do not create it"
        auto = "" if created is None else f"; {does}: auto.create.topics.enable={str(created).lower()}"
        advice = f"{hint}`txbroker topics --list` lists the topics, `--create` creates one"
        findings.failed(check, f"it does not exist{auto}", advice)
        return None
    if found.error_code and found.error_code != ErrorCode.LEADER_NOT_AVAILABLE:
        findings.failed(check, f"the broker answers with {error_name(found.error_code)}", "see the broker's log")
        return None
    partitions = sorted(found.partitions, key=lambda partition: partition.partition_index)
    leaderless = [f"partition {part.partition_index}" for part in partitions if part.leader_id < 0]
    behind = [f"partition {part.partition_index}" for part in partitions if len(part.isr_nodes) < len(part.replica_nodes)]
    offline = sorted({broker for part in partitions for broker in part.offline_replicas})
    replicas = amount(len(partitions), "partition")
    gone = f" (offline: broker {', '.join(map(str, offline))})" if offline else ""
    if leaderless or not partitions:
        without = f"{replicas}; {named(leaderless)} without a leader{gone}: unavailable to producers and consumers"
        advice = "see the reasons below" if partitions else "see the log of the controller"
        findings.failed(check, without if partitions else "it has no partitions", advice)
    elif behind:
        some = f"{replicas}, all with a leader; replicas are out of sync in {named(behind)}{gone}"
        findings.warning(check, some, "see the reasons below")
    else:
        findings.ok(check, f"{replicas}, all with a leader, all replicas in sync")
    return partitions


def check_min_isr(findings: Findings, topic: str, partitions: Iterable[MetadataResponsePartition], configs: Configs) -> None:
    """Check that enough replicas are in sync for acks=all."""
    required = configs.number("min.insync.replicas", 1)
    too_few = [f"partition {part.partition_index}" for part in partitions if len(part.isr_nodes) < min(required, len(part.replica_nodes))]
    if too_few:
        found = f"min.insync.replicas={required}, but fewer are in sync in {named(too_few)}: acks=all fails with NOT_ENOUGH_REPLICAS"
        advice = "start the missing brokers, or lower min.insync.replicas"
        findings.failed(f"acks=all on {topic}", found, advice)


def configs(findings: Findings, connection: BlockingConnection, cluster: Cluster, topic: str) -> Configs | None:
    """The configurations of the topic and of the first broker that shows its own; None, and a finding, if the topic's is not shown."""
    try:
        topic_configs = describe_configs(connection.call, TOPIC_RESOURCE, topic)
    except ClientError as problem:
        advice = "describing configurations may need an ACL, and needs the cluster's ZooKeeper"
        findings.warning(f"configuration of {topic}", f"the broker does not show it: {problem}", advice)
        return None
    for node_id, connected in cluster.connections.items():
        with suppress(ClientError):
            return Configs(topic_configs, describe_configs(connected.call, BROKER_RESOURCE, str(node_id), BROKER_KEYS))
    return Configs(topic_configs, {})


def facts(cluster: Cluster, topic: str, partitions: Iterable[MetadataResponsePartition]) -> list[PartitionFacts]:
    """The facts of the partitions whose leaders can be reached."""
    by_leader: dict[int, list[int]] = {}
    for part in partitions:
        by_leader.setdefault(part.leader_id, []).append(part.partition_index)
    found: list[PartitionFacts] = []
    for leader, indexes in by_leader.items():
        connection = cluster.connections.get(leader)
        if connection is None:
            continue
        mine = {index: PartitionFacts(index) for index in indexes}
        try:
            _offsets(connection, topic, mine)
            _sizes(connection, topic, mine)
            _cleaning(connection, topic, mine)
        except ConnectionFailed:
            continue
        found += mine.values()
    return sorted(found, key=lambda part: part.index)


def _offsets(connection: BlockingConnection, topic: str, mine: Mapping[int, PartitionFacts]) -> None:
    for index, answer in offsets(connection, topic, mine, EARLIEST).items():
        mine[index].start_offset = answer.offset
    for index, answer in offsets(connection, topic, mine, LATEST).items():
        mine[index].end_offset = answer.offset
    # The first record with a timestamp of at least 0 is the first one with any timestamp.
    for index, answer in offsets(connection, topic, mine, 0).items():
        mine[index].oldest_ms = answer.timestamp if answer.timestamp >= 0 else None
    if (connection.version_of(ListOffsetsRequest) or 0) >= MAX_TIMESTAMP_VERSION:
        for index, answer in offsets(connection, topic, mine, MAX_TIMESTAMP).items():
            mine[index].newest_ms = answer.timestamp if answer.timestamp >= 0 else None


def offsets(connection: BlockingConnection, topic: str, partitions: Iterable[int], timestamp: int) -> dict[int, FoundOffset]:
    """A leader's offsets for a timestamp, of the partitions without an error."""
    found = list_offsets(connection.call, topic, partitions, timestamp)
    return {index: offset for index, offset in found.items() if not offset.error_code}


def _cleaning(connection: BlockingConnection, topic: str, mine: Mapping[int, PartitionFacts]) -> None:
    """The compaction state from a txbroker; Apache Kafka does not know these keys and leaves them out."""
    indexes = list(mine)
    for at in range(0, len(indexes), CLEANER_KEYS_AT_ONCE):
        keys = [f"{CLEANER_KEY}.{index}" for index in indexes[at : at + CLEANER_KEYS_AT_ONCE]]
        try:
            states = describe_configs(connection.call, TOPIC_RESOURCE, topic, keys)
        except RequestFailed:
            return
        for key, text in states.items():
            index = int(key.removeprefix(f"{CLEANER_KEY}."))
            if text is not None and index in mine:
                mine[index].cleaning = _cleaning_facts(json.loads(text))


def _cleaning_facts(state: Mapping[str, Any]) -> CleaningFacts:
    return CleaningFacts(str(state["state"]), float(state["dirty_ratio"]), state["why"] or "", state["why_not_now"] or "")


def _sizes(connection: BlockingConnection, topic: str, mine: Mapping[int, PartitionFacts]) -> None:
    if connection.version_of(DescribeLogDirsRequest) is None:
        return
    topics = [DescribableLogDirTopic(topic=topic, partitions=list(mine))]
    answer: DescribeLogDirsResponse = connection.call(DescribeLogDirsRequest(topics=topics))
    for directory in answer.results:
        for found in directory.topics:
            for part in found.partitions:
                if found.name == topic and part.partition_index in mine and not part.is_future_key:
                    mine[part.partition_index].size = part.partition_size
