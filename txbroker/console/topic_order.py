"""Which record of a key is the latest in a topic, by its configuration."""

from __future__ import annotations

from txbroker.client.client_errors import RequestFailed
from txbroker.client.topic_reader import TopicReader
from txbroker.console.failures import CommandFailed
from txbroker.log.cleaner.compaction_order import CompactionOrder

STRATEGY, HEADER = "compaction.strategy", "compaction.strategy.header"


def topic_order(reader: TopicReader) -> CompactionOrder:
    """By the topic's `compaction.strategy`; by offset where the broker has no such configuration. CommandFailed, ClientError."""
    try:
        configs = reader.configs([STRATEGY, HEADER])
    except RequestFailed as refused:
        raise RequestFailed(f"{refused.what} (or specify --compaction-strategy)", refused.code, refused.message) from None
    found = {key: value or "" for key, value in configs.items()}
    try:
        return CompactionOrder.of_topic(found.get(STRATEGY, ""), found.get(HEADER, ""))
    except ValueError:
        raise CommandFailed(f"{STRATEGY}={found[STRATEGY]} is not known here; specify --compaction-strategy") from None
