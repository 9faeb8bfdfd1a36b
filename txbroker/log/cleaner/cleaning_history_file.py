"""The file in which histories of cleaning are kept, one of a log directory, which Kafka ignores: it survives restarts, and damage is seen.

    txbroker cleaning 1 1c291ca3            what it is, the format's version, the CRC-32 of what follows
    {"topic": …, "partition": …, …}         a log a line
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

from txbroker.log.checkpoints import OFFSET_MAX, MalformedCheckpoint
from txbroker.log.cleaner.cleaning_history import CleanSegment, History
from txbroker.names import TopicPartition

FILE_NAME = "txbroker-cleaning"
_HEAD = b"txbroker cleaning 1 %08x\n"
_CLASS_MAX = 126


def format_histories(histories: Mapping[TopicPartition, History]) -> bytes:
    """The file's content."""
    lines = [json.dumps(_plain(topic_partition, history), separators=(",", ":")) for topic_partition, history in sorted(histories.items())]
    body = "".join(f"{line}\n" for line in lines).encode()
    return _HEAD % zlib.crc32(body) + body


def parse_histories(content: bytes) -> dict[TopicPartition, History]:
    """The other way; MalformedCheckpoint. An empty file has none."""
    if not content:
        return {}
    head, _, body = content.partition(b"\n")
    if head + b"\n" != _HEAD % zlib.crc32(body):
        raise MalformedCheckpoint("it is damaged, or of another version: what is known of segments' cleaning is forgotten")
    try:
        return dict(_parsed(json.loads(line)) for line in body.splitlines())
    except (ValueError, TypeError, KeyError) as error:
        raise MalformedCheckpoint(f"it makes no sense: {error!r}") from None


def _plain(topic_partition: TopicPartition, history: History) -> dict[str, Any]:
    return {
        "topic": topic_partition.topic,
        "partition": topic_partition.partition,
        "clean_end": history.clean_end,
        "whole_end": history.whole_end,
        "hidden": history.hidden,
        "rates": [[known, rate] for known, rate in sorted(history.rates.items())],
        "segments": [[one.base_offset, one.next_offset, one.clean_end, one.born, one.records] for one in history.segments],
    }


def _parsed(row: Any) -> tuple[TopicPartition, History]:
    rates = {_number(known, _CLASS_MAX): float(rate) for known, rate in row["rates"]}
    if not all(0 <= rate < float("inf") for rate in rates.values()):
        raise ValueError("a rate is none")
    segments = tuple(CleanSegment(*(_number(value) for value in one)) for one in row["segments"])
    history = History(_number(row["clean_end"]), _number(row["whole_end"]), _number(row["hidden"]), segments, rates)
    return TopicPartition(str(row["topic"]), _number(row["partition"])), history


def _number(value: Any, high: int = OFFSET_MAX) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= high:
        raise ValueError(f"{value!r} is no number up to {high}")
    return value
