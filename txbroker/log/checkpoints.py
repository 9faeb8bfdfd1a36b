"""Kafka's checkpoint files: small texts of a version line, a count line and one entry a line.

    0                   the format's version
    2                   how many entries follow
    orders 0 1500       topic, partition, offset (offset checkpoints); epoch, start offset (leader-epoch-checkpoint)
    orders 1 1498

Source: Kafka's classes CheckpointFile, OffsetCheckpointFile and LeaderEpochCheckpointFile.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from txbroker.names import TopicPartition, amount

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"

VERSION = 0
# A line with the longest topic name has 280 bytes: 240,000 of them fit, many more than a log directory has partitions.
SIZE_MAX = 64 * 1024 * 1024
OFFSET_MAX = 2**63 - 1
PARTITION_MAX = 2**31 - 1

_NUMBER = re.compile(r"-?[0-9]{1,19}")


class MalformedCheckpoint(ValueError):
    """A checkpoint file's content cannot be Kafka's; the text names the line and the reason."""


def number(text: str, low: int, high: int) -> int:
    """A decimal number between `low` and `high`; MalformedCheckpoint otherwise."""
    if _NUMBER.fullmatch(text) is None or not low <= int(text) <= high:
        raise MalformedCheckpoint(f"{text[:40]!r} is not a number between {low} and {high}")
    return int(text)


def parse_lines(content: bytes, field_count: int, *, ends_with_text: bool = False) -> list[list[str]]:
    """The entries of a checkpoint file, each split into `field_count` words; an empty file has none, as in Kafka.

    `ends_with_text`: the last of them is the rest of the line.
    """
    try:
        lines = content.decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise MalformedCheckpoint(f"byte {error.start} is not UTF-8") from None
    if not lines:
        return []
    version = number(lines[0], 0, 2**31 - 1)
    if version != VERSION:
        raise MalformedCheckpoint(f"it has version {version}, and only version {VERSION} is known")
    if len(lines) < 2:
        raise MalformedCheckpoint("the line that counts the entries is missing")
    count = number(lines[1], 0, 2**31 - 1)
    entries = [line.split(maxsplit=field_count - 1 if ends_with_text else -1) for line in lines[2:]]
    for position, entry in enumerate(entries, start=3):
        if len(entry) != field_count:
            raise MalformedCheckpoint(f"line {position} has {amount(len(entry), 'field')} and not {field_count}")
    if len(entries) != count:
        raise MalformedCheckpoint(f"its count is {count}, and it has {amount(len(entries), 'entry')}")
    if not content.endswith(b"\n"):  # after a loss of power, if the file was not synced: a number may lack its last digits
        raise MalformedCheckpoint("its last line is cut off")
    return entries


def format_lines(entries: Iterable[str]) -> bytes:
    """A checkpoint file's content from its entries, one text each."""
    lines = list(entries)
    return "".join(f"{line}\n" for line in [str(VERSION), str(len(lines)), *lines]).encode("utf-8")


def parse_offsets(content: bytes) -> dict[TopicPartition, int]:
    """An offset checkpoint's content as offsets by partition; MalformedCheckpoint when it is malformed."""
    offsets: dict[TopicPartition, int] = {}
    for topic, partition, offset in parse_lines(content, 3):
        offsets[TopicPartition(topic, number(partition, 0, PARTITION_MAX))] = number(offset, 0, OFFSET_MAX)
    return offsets


def format_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """The content of an offset checkpoint file."""
    return format_lines(f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items())
