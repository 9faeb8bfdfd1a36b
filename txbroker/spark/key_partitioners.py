"""How producers choose a record's partition by its key, and which of these functions explains the partitions of given keys.

- murmur2: Java's client, kafka-python, aiokafka, kafkajs, franz-go (`org.apache.kafka.common.utils.Utils.murmur2`).
- crc32: librdkafka (`consistent` and `consistent_random`), and so confluent-kafka.
- fnv1a: Sarama.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping

Partitioner = Callable[[bytes, int], int]
"""The partition of a key among so many."""

_MASK = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """32 bits, unsigned."""
    multiplier, length = 0x5BD1E995, len(key)
    found = 0x9747B28C ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(key[at : at + 4], "little") * multiplier & _MASK
        word = (word ^ word >> 24) * multiplier & _MASK
        found = found * multiplier & _MASK ^ word
    if whole < length:
        found = (found ^ int.from_bytes(key[whole:], "little")) * multiplier & _MASK
    found = (found ^ found >> 13) * multiplier & _MASK
    return found ^ found >> 15


def fnv1a(key: bytes) -> int:
    """32 bits, unsigned."""
    found = 0x811C9DC5
    for byte in key:
        found = (found ^ byte) * 0x01000193 & _MASK
    return found


def _fnv1a_partition(key: bytes, count: int) -> int:
    found = fnv1a(key)
    return abs(found - (found >> 31 << 32)) % count  # the absolute value of a signed number


PARTITIONERS: Mapping[str, Partitioner] = {
    "murmur2": lambda key, count: (murmur2(key) & 0x7FFFFFFF) % count,
    "crc32": lambda key, count: zlib.crc32(key) % count,
    "fnv1a": _fnv1a_partition,
}


def explained(keys: Iterable[tuple[bytes, int]], count: int) -> dict[str, int]:
    """How many of these keys, each with its partition among `count`, each function explains."""
    found = dict.fromkeys(PARTITIONERS, 0)
    for key, partition in keys:
        for name, function in PARTITIONERS.items():
            found[name] += function(key, count) == partition
    return found
