"""The file with the cleaning histories of a log directory. Kafka ignores it. A CRC protects it.

    txbroker cleaning 1 1c291ca3            the kind of file, the version of the format, the CRC-32 of what follows
    {"topic": …, "partition": …, …}         one line for each log
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
    """The histories in a file's content; none for an empty file. MalformedCheckpoint."""
    if not content:
        return {}
    head, _, body = content.partition(b"\n")
    if head + b"\n" != _HEAD % zlib.crc32(body):
        raise MalformedCheckpoint("it is damaged, or has another version: the cleaning histories are dropped")
    try:
        return dict(_parsed(json.loads(line)) for line in body.splitlines())
    except (ValueError, TypeError, KeyError) as error:
        raise MalformedCheckpoint(f"it has an invalid line: {error!r}") from None


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
        raise ValueError("a rate is out of range")
    segments = tuple(CleanSegment(*(_number(value) for value in one)) for one in row["segments"])
    history = History(_number(row["clean_end"]), _number(row["whole_end"]), _number(row["hidden"]), segments, rates)
    return TopicPartition(str(row["topic"]), _number(row["partition"])), history


def _number(value: Any, high: int = OFFSET_MAX) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= high:
        raise ValueError(f"{value!r} is not a number from 0 to {high}")
    return value
