"""Promotes copies: producers may write to them, and no mirror continues to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from txbroker.client.client_security import ClientSecurity
from txbroker.mirror.cluster import Cluster
from txbroker.mirror.map_records import topic_pair
from txbroker.mirror.map_topic import MapTopic, read_map
from txbroker.mirror.preflight import SOURCE_KEY
from txbroker.mirror.requests import alter_topic, describe_topics
from txbroker.mirror.settings import Environment


class NotACopy(Exception):
    """A topic that no mirror copies to."""


async def promote(
    target: Sequence[tuple[str, int]], topics: Sequence[str], environment: Environment, security: ClientSecurity | None = None
) -> list[str]:
    """Promote topics, after all of them were checked; a line about each. NotACopy, ClientError, CorruptRecords, TlsProblem."""
    cluster = Cluster("target", target, environment.reactor, environment.chance, security)
    try:
        await cluster.begin()
        content, _ = await read_map(cluster, environment.reactor)
        for topic in topics:
            if not content.copies(topic):
                raise NotACopy(f"{topic} is not a copy that a mirror made, or was promoted before; see `txbroker mirror --help`")
        configs = await describe_topics(cluster, topics)
        done: list[str] = []
        for topic in topics:
            for source, mark in content.copies(topic):
                await MapTopic.append_once(cluster, environment, [topic_pair(source, topic, replace(mark, promoted=True))])
            if configs[topic].values.get(SOURCE_KEY):
                await alter_topic(cluster, topic, SOURCE_KEY, None)
            done.append(f"{topic}: promoted; producers may write to it")
        return done
    finally:
        cluster.close()
