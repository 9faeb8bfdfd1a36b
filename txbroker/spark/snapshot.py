"""The offsets of topics at one moment, read once and before Spark starts: every job works on these numbers, so that it can be repeated."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from txbroker.cli.failures import CommandFailed, no_topic
from txbroker.client.blocking_connection import connect_to_any
from txbroker.client.client_machine import ClientSettings
from txbroker.client.offset_requests import EARLIEST, LATEST
from txbroker.client.topic_reader import READ_COMMITTED, READ_UNCOMMITTED, TopicReader
from txbroker.names import INTERNAL_TOPICS, NULL_TOPIC_ID, id_to_text
from txbroker.wire.messages.metadata import MetadataRequest, MetadataResponse

CLIENT = ClientSettings("txbroker-spark")
ISOLATION_LEVELS = {"read_committed": READ_COMMITTED, "read_uncommitted": READ_UNCOMMITTED}
Addresses = Sequence[tuple[str, int]]


class PartitionOffsets(NamedTuple):
    """`log_start`: the first offset. `end`: up to where a consumer of the isolation level reads. `high_watermark`: `end` or more."""

    log_start: int
    end: int
    high_watermark: int


class TopicSnapshot(NamedTuple):
    """A topic with its id, as text, and its partitions."""

    name: str
    topic_id: str
    partitions: Mapping[int, PartitionOffsets]


class Snapshot(NamedTuple):
    """The topics of one cluster, in order."""

    cluster_id: str
    topics: Sequence[TopicSnapshot]


def find_topics(addresses: Addresses, pattern: re.Pattern[str]) -> list[str]:
    """The topics whose whole name matches, without internal ones; CommandFailed if there is none, ClientError."""
    with connect_to_any(addresses, CLIENT) as connection:
        answer: MetadataResponse = connection.call(MetadataRequest(topics=None, allow_auto_topic_creation=False))
    names = [topic.name for topic in answer.topics if topic.name is not None and topic.name not in INTERNAL_TOPICS]
    found = sorted(name for name in names if pattern.fullmatch(name))
    if not found:
        raise CommandFailed(f"no topic matches {pattern.pattern}; see `txbroker topics --list`")
    return found


def take(addresses: Addresses, names: Sequence[str], isolation_level: str) -> Snapshot:
    """The offsets now; CommandFailed for a broker that shows no ids, ClientError, also for a topic that does not exist."""
    cluster_id: str | None = None
    topics = []
    for name in sorted(names):
        reader = TopicReader(addresses, name, CLIENT, ISOLATION_LEVELS[isolation_level])
        try:
            cluster_id = reader.cluster_id()
            if reader.topic_id == NULL_TOPIC_ID or cluster_id is None:
                raise CommandFailed(f"the broker shows no id of topic {name} or of its cluster, without which a topic that was "
                                    "deleted and created again is not recognised; brokers from 2.8 on show them")
            # The start is read last, so that it is never older than the end.
            ends = {index: (reader.offset(index, LATEST), reader.offset(index, LATEST, READ_UNCOMMITTED)) for index in reader.partitions}
            offsets = {index: PartitionOffsets(reader.offset(index, EARLIEST), *both) for index, both in ends.items()}
            topics.append(TopicSnapshot(name, id_to_text(reader.topic_id), offsets))
        finally:
            reader.close()
    assert cluster_id is not None
    return Snapshot(cluster_id, topics)


def check_topics_exist(addresses: Addresses, names: Sequence[str]) -> None:
    """CommandFailed for the first topic that does not exist, ClientError."""
    with connect_to_any(addresses, CLIENT) as connection:
        answer: MetadataResponse = connection.call(MetadataRequest(topics=None, allow_auto_topic_creation=False))
    missing = sorted(set(names) - {topic.name for topic in answer.topics})
    if missing:
        raise no_topic(missing[0])
