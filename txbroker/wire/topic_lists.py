"""Responses that are lists of topics with partitions, and are alike but for a few fields: filled in by `struct`, not encoded.

Everything is derived from what the encoder returns for responses with marks in their variable fields, so there is no second description
of a message. A response is composed of pieces:

    head: size, correlation id, and the fields before the topics, of which some numbers vary
    count of topics
        name or id of a topic
        count of its partitions
            partition: runs of numbers, each followed by fixed bytes
            length of its records, and the records
            partition_end
        topic_end
    end

Lengths are varints in flexible versions, else int32.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from itertools import count, islice
from typing import Any

from txbroker.wire.codec import encoder
from txbroker.wire.headers import response_header_version, response_prefix
from txbroker.wire.primitives import write_uvarint
from txbroker.wire.schema import Request, response_class

# Values that no response has by itself.
TOPIC_NAME = "a-name-that-marks-the-topic"
TOPIC_ID = bytes.fromhex("51c9e07ab3184d26f8a90c35e91d7e42")
RECORDS = bytes.fromhex("c35a7e91d04b26f8a913")
_NUMBER_BYTES = {"i": 4, "q": 8}
_SIZE_BYTES = 4
_PREFIX_BYTES = 8  # of a frame: size and correlation id

_INT32 = struct.Struct(">i").pack
_INT16 = struct.Struct(">h").pack


def _numbers(code: str) -> Iterator[int]:
    """Values of this size, each another one, that no response has by itself."""
    size = _NUMBER_BYTES[code]
    for number in count():
        yield int.from_bytes(sha256(f"{code} {number}".encode()).digest()[:size]) >> 1


class TopicListTemplate:
    """One version of a response.

    `pack_head(size, correlation id, fixed, number, ..., fixed)` and `pack_partition(number, ..., fixed, number, ..., fixed)` take the bytes
    between the runs of numbers, which are in `head_fixed` and `partition_fixed`. `by_name`: topics are identified by name, else by id.
    """

    def __init__(
        self,
        request: type[Request],
        version: int,
        head: Sequence[str],
        partition: Sequence[str],
        build: Callable[[Sequence[int], Sequence[int], int, int], Any],
        *,
        records: bool = False,
    ) -> None:
        """`head`, `partition`: the runs of "i" and "q" that vary; a partition begins with the first of its runs. `records`: it has records.

        `build(head numbers, partition numbers, topics, partitions)` makes a response of so many topics with so many partitions each, with
        these numbers, and with `TOPIC_NAME`, `TOPIC_ID` and `RECORDS`.

        ValueError where this version does not have these fields in this order.
        """
        response = response_class(request)
        self._flexible = version in response.flexible
        numbers = {code: _numbers(code) for code in _NUMBER_BYTES}
        in_head, in_partition = ([next(numbers[code]) for code in "".join(runs)] for runs in (head, partition))
        encode = encoder(response, version)

        def encoded(topics: int, partitions: int) -> bytes:
            return b"".join(encode(build(in_head, in_partition, topics, partitions)))

        def cut(data: bytes, mark: bytes) -> tuple[bytes, bytes]:
            before, found, after = data.partition(mark)
            if not found or mark in after:
                raise ValueError(f"{response.__name__} v{version} does not have {head}, a topic and {partition} in this order")
            return before, after

        def cut_runs(data: bytes, runs: Sequence[str], taken: Sequence[int]) -> list[bytes]:
            """The bytes around the runs."""
            values, fixed = iter(taken), []
            for run in runs:
                before, data = cut(data, struct.pack(f">{run}", *islice(values, len(run))))
                fixed.append(before)
            return [*fixed, data]

        self.count_of_one = self.count(1)
        one = encoded(1, 1)
        self.by_name = TOPIC_ID not in one
        """Whether this version identifies topics by name."""
        topic = self.topic(TOPIC_NAME) if self.by_name else TOPIC_ID
        (before_topic, after_topic), (_, without_partitions) = cut(one, topic), cut(encoded(1, 0), topic)
        no_partitions = self.count(0)
        self.end = encoded(0, 0)[len(before_topic) :]
        ends = without_partitions.removeprefix(no_partitions)
        self.topic_end = ends.removesuffix(self.end)
        before_index, *fixed = cut_runs(after_topic.removesuffix(ends), partition, in_partition)
        if records:
            fixed[-1], self.partition_end = cut(fixed[-1], self.records_length(len(RECORDS)) + RECORDS)
        else:
            self.partition_end = b""
        self.partition_fixed = tuple(fixed)
        header = response_prefix(response_header_version(request, version), 0, 0)[_PREFIX_BYTES:]
        self.head_fixed = tuple(cut_runs(header + before_topic.removesuffix(self.count_of_one), head, in_head))
        rebuilt = header + before_topic + topic + self.count_of_one + after_topic.removeprefix(before_index)
        if before_index != self.count_of_one or rebuilt != header + one or len(ends) == len(without_partitions):
            raise ValueError(f"{response.__name__} v{version} has something between topics and partitions")
        head_format = "".join(f"{len(before)}s{run}" for before, run in zip(self.head_fixed, [*head, ""], strict=True))
        partition_format = "".join(f"{run}{len(after)}s" for run, after in zip(partition, self.partition_fixed, strict=True))
        self._head = struct.Struct(f">ii{head_format}")
        self._partition = struct.Struct(f">{partition_format}")
        self.pack_head, self.pack_partition = self._head.pack, self._partition.pack
        self.head_bytes = self._head.size - _SIZE_BYTES
        """How many bytes of a head its size field counts."""

    def count(self, elements: int) -> bytes:
        """The number of topics or partitions."""
        return write_uvarint(elements + 1) if self._flexible else _INT32(elements)

    def topic(self, name: str) -> bytes:
        """The start of a topic that is identified by name."""
        text = name.encode()
        return (write_uvarint(len(text) + 1) if self._flexible else _INT16(len(text))) + text

    def records_length(self, size: int) -> bytes:
        """The length that precedes `size` bytes of records."""
        return write_uvarint(size + 1) if self._flexible else _INT32(size)
