"""Responses that are lists of topics with partitions, and are alike but for a few fields: filled in by `struct`, not encoded.

Everything is derived from what the encoder returns for responses with marks in their variable fields, so there is no second description
of a message. A response is composed of pieces:

    head: size, correlation id, and the fields before the topics, of which one number may vary
    count of topics
        name or id of a topic
        count of its partitions
            partition: its index, fixed bytes, three offsets or times, and fixed bytes
            length of its records, and the records
            partition_end
        topic_end
    end

Lengths are varints in flexible versions, else int32.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from txbroker.wire.codec import encoder
from txbroker.wire.headers import response_header_version, response_prefix
from txbroker.wire.primitives import write_uvarint
from txbroker.wire.schema import Request, response_class

# Values that no response has by itself.
TOPIC_NAME = "a-name-that-marks-the-topic"
TOPIC_ID = bytes.fromhex("51c9e07ab3184d26f8a90c35e91d7e42")
RECORDS = bytes.fromhex("c35a7e91d04b26f8a913")
_NUMBER = 0x3E9D71C4
_PARTITION = (0x5B27F08A, 0x1F6C83D95A4E20B7, 0x70E2496BD13C85FA, 0x2D98A5173FCB604E)
_SIZE_BYTES = 4
_PREFIX_BYTES = 8  # of a frame: size and correlation id

_INT32 = struct.Struct(">i").pack
_INT16 = struct.Struct(">h").pack
_OFFSETS = struct.Struct(">qqq").pack

# Makes a response of the number in its head, the index and the three numbers of each partition, so many topics, and so many partitions of
# each; with `TOPIC_NAME`, `TOPIC_ID` and `RECORDS`.
Build = Callable[[int, tuple[int, int, int, int], int, int], Any]


class TopicListTemplate:
    """One version of a response.

    `pack_head(size, correlation id, *head_fixed)`, with the number of the head between the two bytes in `head_fixed` if it has one, and
    `pack_partition(index, fixed, number, number, number, fixed)`, with the bytes in `partition_fixed`. `by_name`: topics are identified by
    name, else by id.
    """

    def __init__(self, request: type[Request], version: int, build: Build, *, number: bool = False, records: bool = False) -> None:
        """`number`: one of the fields before the topics varies. `records`: partitions have records.

        ValueError where this version does not have these fields in this order.
        """
        response = response_class(request)
        self._flexible = version in response.flexible
        encode = encoder(response, version)

        def encoded(topics: int, partitions: int) -> bytes:
            return b"".join(encode(build(_NUMBER, _PARTITION, topics, partitions)))

        def cut(data: bytes, mark: bytes) -> tuple[bytes, bytes]:
            before, found, after = data.partition(mark)
            if not found or mark in after:
                raise ValueError(f"{response.__name__} v{version} does not have a topic, an index and three numbers in this order")
            return before, after

        self.count_of_one = self.count(1)
        one = encoded(1, 1)
        self.by_name = TOPIC_ID not in one
        """Whether this version identifies topics by name."""
        topic = self.topic(TOPIC_NAME) if self.by_name else TOPIC_ID
        (before_topic, after_topic), (_, without_partitions) = cut(one, topic), cut(encoded(1, 0), topic)
        self.end = encoded(0, 0)[len(before_topic) :]
        ends = without_partitions.removeprefix(self.count(0))
        self.topic_end = ends.removesuffix(self.end)
        index, *numbers = _PARTITION
        before_index, after = cut(after_topic.removesuffix(ends), _INT32(index))
        after_index, after = cut(after, _OFFSETS(*numbers))
        after_numbers, self.partition_end = cut(after, self.records_length(len(RECORDS)) + RECORDS) if records else (after, b"")
        self.partition_fixed = after_index, after_numbers
        header = response_prefix(response_header_version(request, version), 0, 0)[_PREFIX_BYTES:]
        head = header + before_topic.removesuffix(self.count_of_one)
        self.head_fixed: tuple[bytes, ...] = cut(head, _INT32(_NUMBER)) if number else (head,)
        rebuilt = before_topic + topic + self.count_of_one + after_topic.removeprefix(before_index)
        if before_index != self.count_of_one or rebuilt != one or len(ends) == len(without_partitions):
            raise ValueError(f"{response.__name__} v{version} has something between topics and partitions")
        packed_head = struct.Struct(">ii" + "i".join(f"{len(fixed)}s" for fixed in self.head_fixed))
        self.pack_head = packed_head.pack
        self.head_bytes = packed_head.size - _SIZE_BYTES
        """How many bytes of a head its size field counts."""
        self.pack_partition = struct.Struct(f">i{len(after_index)}sqqq{len(after_numbers)}s").pack

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
