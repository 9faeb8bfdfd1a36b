"""What a check has to know of topics and partitions besides their records: from the brokers, or from log directories alone."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from txbroker.client.topic_reader import READ_COMMITTED
from txbroker.config.resolve import BrokerConfig
from txbroker.config.topics import topic_settings, validate_topic_configs
from txbroker.console.failures import BadUsage, CommandFailed
from txbroker.console.topic_order import HEADER, STRATEGY, topic_order
from txbroker.errors import BrokerError, CorruptRecords
from txbroker.log.cleaner.compaction_order import CompactionOrder
from txbroker.log.disk import Disk
from txbroker.log.file_names import PARTITION_METADATA
from txbroker.log.os_disk import OsDisk
from txbroker.log.partition_metadata import read_topic_id
from txbroker.logtools.bounded_read import read_small
from txbroker.logtools.stored_configs import NotReadable, broker_configs, topic_configs
from txbroker.names import id_to_text
from txbroker.spark.brokers import Brokers
from txbroker.spark.gaps import CLEANER, clean_end
from txbroker.spark.partition_directories import Place, ends_of_places
from txbroker.wire.records import INT64_MAX

POLICY, RETENTION = "cleanup.policy", "delete.retention.ms"
BROKER = ""  # the name of the replica whose records a broker delivers


class TopicRules(NamedTuple):
    """The configuration of a topic that says what compaction may remove. `topic_id` is "" where it is not known."""

    topic_id: str
    policies: Sequence[str]
    order: CompactionOrder
    delete_retention_ms: int


class Part(NamedTuple):
    """A partition of one replica: the offsets [log_start, end) that a read_committed consumer gets."""

    replica: str
    topic: str
    partition: int
    log_start: int
    end: int


# From brokers


def rules_of_brokers(brokers: Brokers, topics: Mapping[str, str]) -> dict[str, TopicRules]:
    """The rules of topics, which come with their ids. CommandFailed, ClientError."""
    found = {}
    for topic, topic_id in topics.items():
        reader = brokers.reader(topic, READ_COMMITTED)
        try:
            configs = reader.configs([POLICY, RETENTION])
            found[topic] = TopicRules(topic_id, _words(configs.get(POLICY)), topic_order(reader), int(configs.get(RETENTION) or 0))
        finally:
            reader.close()
    return found


def clean_ends_of_brokers(brokers: Brokers, partitions: Mapping[str, Iterable[int]]) -> dict[tuple[str, int], int]:
    """Up to where the cleaner can have come; only of brokers that show it, as txbroker does. CommandFailed, ClientError."""
    found = {}
    for topic, numbers in partitions.items():
        reader = brokers.reader(topic, READ_COMMITTED)
        try:
            for number in numbers:
                key = f"{CLEANER}.{number}"
                shown = reader.configs([key], number).get(key)
                if shown is None:
                    break
                found[topic, number] = clean_end(json.loads(shown))
        finally:
            reader.close()
    return found


def leaders_of(brokers: Brokers, topics: Iterable[str]) -> dict[tuple[str, int], int]:
    """The ids of the brokers that lead the partitions of topics. ClientError."""
    found: dict[tuple[str, int], int] = {}
    for topic in topics:
        reader = brokers.reader(topic, READ_COMMITTED)
        found |= {(topic, number): leader for number, leader in reader.leaders.items()}
        reader.close()
    return found


def _words(text: str | None) -> list[str]:
    return [word.strip() for word in (text or "").split(",")]


# From log directories


def rules_of_places(places: Sequence[Place], given: Mapping[str, str]) -> dict[str, TopicRules]:
    """The rules by the metadata that a txbroker stores in the directories; `given`, from --topic-config, come first. BadUsage."""
    disk = OsDisk()
    directories = sorted({place.data for place in places if place.data})
    found = {}
    for topic in sorted({place.topic for place in places}):
        config = BrokerConfig({})
        try:
            overrides = topic_configs(disk, directories, topic)
            stored = broker_configs(disk, directories)
            config.set_dynamic(stored.broker, stored.default)
        except NotReadable as error:
            raise CommandFailed(f"the configuration of {topic} cannot be read: {error}; specify --bootstrap-server") from None
        if overrides is None and not given:
            raise BadUsage(f"the configuration of {topic} is not in the log directories: specify --bootstrap-server, or --topic-config, "
                           f"e.g. --topic-config {RETENTION}=86400000")
        values = {**({POLICY: "compact"} if overrides is None else overrides), **given}
        try:
            validate_topic_configs(config, values)
        except BrokerError as error:
            raise BadUsage(f"--topic-config: {error}") from None
        settings = topic_settings(config, values)
        order = CompactionOrder.of_topic(settings.compaction_strategy, settings.compaction_strategy_header)
        topic_id = next((id_ for place in places if place.topic == topic and (id_ := _topic_id(disk, place.path))), "")
        found[topic] = TopicRules(topic_id, settings.cleanup_policy, order, settings.delete_retention_ms)
    return found


def _topic_id(disk: Disk, directory: str) -> str:
    try:
        content = read_small(disk, f"{directory}/{PARTITION_METADATA}")
        return "" if content is None else id_to_text(read_topic_id(content))
    except (CorruptRecords, ValueError):
        return ""


def parts_of_places(spark: Any, places: Sequence[Place]) -> list[Part]:
    """The offsets of each place, up to its last stable offset. CommandFailed through Spark."""
    return [Part(*key, min(ends.log_start, ends.last_stable), ends.last_stable) for key, ends in ends_of_places(spark, places).items()]


def check_compacted(rules: Mapping[str, TopicRules]) -> None:
    """BadUsage for a topic that is not compacted."""
    for topic, one in rules.items():
        if "compact" not in one.policies:
            raise BadUsage(f"{POLICY} of {topic} is {','.join(one.policies)}, without compact: there is nothing to check")


def check_same(topic: str, before: TopicRules, now: TopicRules) -> None:
    """CommandFailed for another topic of this name, or one whose strategy was altered."""
    if before.topic_id and now.topic_id and before.topic_id != now.topic_id:
        raise CommandFailed(f"topic {topic} was deleted and created again since --before; take a new snapshot")
    if before.order != now.order:
        raise CommandFailed(f"{STRATEGY} or {HEADER} of {topic} was altered since --before, so that records may go by either rule; "
                            "take a new snapshot")


NOT_KNOWN = INT64_MAX
"""As a clean end: not known, so that every removal may be the cleaner's."""
