"""The lines of audit logs, from files and from topics, each with its place."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

from txbroker.cli import clients
from txbroker.console.failures import CommandFailed, no_topic

POLL_MS = 1000
STALLED_S = 30.0  # without a record of a topic whose end is not reached

Placed = tuple[str, str]


def placed_lines(arguments: argparse.Namespace) -> Iterator[Placed]:
    """Of the files of --audit and the topics of --topic; CommandFailed."""
    for path in arguments.audit:
        yield from _of_file(path)
    for topic in arguments.topic:
        yield from _of_topic(topic, arguments)


def sources(arguments: argparse.Namespace) -> str:
    """Where the lines come from, for people."""
    return ", ".join([*arguments.audit, *(f"topic {topic}" for topic in arguments.topic)])


def _of_file(path: str) -> Iterator[Placed]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for number, text in enumerate(file, 1):
                yield f"{path}, line {number}", text
    except OSError as error:
        raise CommandFailed(f"cannot read {path}: {error.strerror}") from None


def _of_topic(topic: str, arguments: argparse.Namespace) -> Iterator[Placed]:
    """From the beginning up to the end that each partition has now."""
    properties = clients.read_properties(arguments.command_config)
    properties.pop("group.id", None)
    flags = {"allow_auto_create_topics": False, "enable_auto_commit": False, "auto_offset_reset": "earliest"}
    with clients.connected("KafkaConsumer", arguments.bootstrap_server, properties, flags=flags) as consumer:
        from kafka import TopicPartition

        partitions = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic) or ())]
        if not partitions:
            raise no_topic(topic)
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        consumer.seek_to_beginning(*partitions)
        positions = {each: consumer.position(each) for each in partitions}
        moved_s = time.monotonic()
        while any(positions[each] < ends[each] for each in partitions):
            for partition, records in consumer.poll(POLL_MS).items():
                for record in records:
                    if record.offset < ends[partition] and record.value is not None:
                        yield f"{topic}-{partition.partition}, offset {record.offset}", record.value.decode(errors="replace")
            before, positions = positions, {each: consumer.position(each) for each in partitions}
            if positions != before:
                moved_s = time.monotonic()
            elif time.monotonic() > moved_s + STALLED_S:
                raise CommandFailed(f"topic {topic} cannot be read to its end: no record came for {STALLED_S:g} s; see `txbroker doctor`")
