"""The topics that a consumer subscribes to, from the metadata in its JoinGroup request.

Every version of Kafka's ConsumerProtocolSubscription begins with these fields; the rest is not read::

    version int16 | number of topics int32 | (length int16, topic name in UTF-8) for each | fields of later versions
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

CONSUMER_PROTOCOL = "consumer"  # the protocol type of Kafka's consumers; the metadata of other types is opaque

_HEADER = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")


def read_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics of one subscription; None if it is malformed."""
    topics = set()
    try:
        version, count = _HEADER.unpack_from(metadata)
        if version < 0 or count < 0 or count > len(metadata):
            return None
        position = _HEADER.size
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, position)
            position += _LENGTH.size
            if length < 0 or length > len(metadata) - position:
                return None
            topics.add(metadata[position : position + length].decode())
            position += length
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)


def all_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all members; None if one subscription cannot be read."""
    together: set[str] = set()
    for metadata in subscriptions:
        topics = read_topics(metadata)
        if topics is None:
            return None
        together |= topics
    return frozenset(together)
