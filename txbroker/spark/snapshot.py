"""The offsets of topics at one moment, read once and before Spark starts: every job works on these numbers, so that it can be repeated."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from txbroker.client.offset_requests import EARLIEST, LATEST
from txbroker.client.topic_reader import READ_COMMITTED, READ_UNCOMMITTED
from txbroker.console.failures import CommandFailed, no_topic
from txbroker.names import INTERNAL_TOPICS, NULL_TOPIC_ID, id_to_text
from txbroker.spark.brokers import Brokers
from txbroker.wire.messages.metadata import MetadataRequest, MetadataResponse

ISOLATION_LEVELS = {"read_committed": READ_COMMITTED, "read_uncommitted": READ_UNCOMMITTED}


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


def find_topics(brokers: Brokers, pattern: re.Pattern[str]) -> list[str]:
    """The topics whose whole name matches, without internal ones; CommandFailed if there is none, ClientError."""
    with brokers.connect() as connection:
        answer: MetadataResponse = connection.call(MetadataRequest(topics=None, allow_auto_topic_creation=False))
    names = [topic.name for topic in answer.topics if topic.name is not None and topic.name not in INTERNAL_TOPICS]
    found = sorted(name for name in names if pattern.fullmatch(name))
    if not found:
        raise CommandFailed(f"no topic matches {pattern.pattern}; see `txbroker topics --list`")
    return found


def take(brokers: Brokers, names: Sequence[str], isolation_level: str) -> Snapshot:
    """The offsets now; CommandFailed for a broker that shows no ids, ClientError, also for a topic that does not exist."""
    cluster_id: str | None = None
    topics = []
    for name in sorted(names):
        reader = brokers.reader(name, ISOLATION_LEVELS[isolation_level])
        try:
            cluster_id = reader.cluster_id()
            if reader.topic_id == NULL_TOPIC_ID or cluster_id is None:
                raise CommandFailed(f"the broker shows no id of topic {name} or of its cluster, without which a topic that was "
                                    "deleted and created again is not recognised; brokers from 2.8 on show them")
            # In this order: what is written meanwhile is not taken for an open transaction, and the start is never older than the end.
            offsets = {}
            for index in reader.partitions:
                high_watermark = reader.offset(index, LATEST, READ_UNCOMMITTED)
                end = min(reader.offset(index, LATEST), high_watermark)
                offsets[index] = PartitionOffsets(reader.offset(index, EARLIEST), end, high_watermark)
            topics.append(TopicSnapshot(name, id_to_text(reader.topic_id), offsets))
        finally:
            reader.close()
    assert cluster_id is not None
    return Snapshot(cluster_id, topics)


def check_topics_exist(brokers: Brokers, names: Sequence[str]) -> None:
    """CommandFailed for the first topic that does not exist, ClientError."""
    with brokers.connect() as connection:
        answer: MetadataResponse = connection.call(MetadataRequest(topics=None, allow_auto_topic_creation=False))
    missing = sorted(set(names) - {topic.name for topic in answer.topics})
    if missing:
        raise no_topic(missing[0])
