"""Names and ids of topics and partitions, their checks, and singular or plural nouns for messages."""

from __future__ import annotations

import base64
import re
import uuid
from collections.abc import Callable, Iterable
from typing import NamedTuple

from txbroker.errors import BrokerError, ErrorCode

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})

# The client id of `txbroker mirror`; no other client writes to a topic with `txbroker.mirror.source`.
MIRROR_CLIENT_ID = "__txbroker_mirror"

NULL_TOPIC_ID = bytes(16)
# Reserved by Kafka: Uuid.ONE_UUID is the id of its KRaft metadata topic.
RESERVED_TOPIC_IDS = frozenset({NULL_TOPIC_ID, bytes(15) + b"\x01"})

TOPIC_NAME_LENGTH_MAX = 249  # org.apache.kafka.common.internals.Topic: a directory name of 255 with "-partition" appended
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_PARTITION_DIRECTORY = re.compile(r"(.+)-(\d{1,10})")


def amount(count: int, what: str) -> str:
    """`1 topic`, `2 topics`."""
    plural = f"{what}s"
    if what.endswith("y") and what[-2] not in "aeiou":
        plural = f"{what[:-1]}ies"
    elif what.endswith(("ch", "ss")):
        plural = f"{what}es"
    return f"{count:,} {what if count == 1 else plural}"


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def new_topic_id(random_bytes: Callable[[int], bytes]) -> bytes:
    """A random topic id, which no other topic has."""
    while True:
        topic_id = uuid.UUID(bytes=random_bytes(16), version=4).bytes
        # As in Kafka, no id begins with a dash in text form: command lines would parse it as an option.
        if topic_id not in RESERVED_TOPIC_IDS and not id_to_text(topic_id).startswith("-"):
            return topic_id


def check_topic_name(name: str) -> None:
    """Raise INVALID_TOPIC_EXCEPTION unless `name` is a valid topic name in Kafka (class `Topic`)."""
    if not name:
        problem = "it is empty"
    elif name in (".", ".."):
        problem = "it cannot be '.' or '..'"
    elif len(name) > TOPIC_NAME_LENGTH_MAX:
        problem = f"it is longer than {TOPIC_NAME_LENGTH_MAX} characters"
    elif _TOPIC_NAME.fullmatch(name) is None:
        problem = "it may contain only ASCII letters, digits, '.', '_' and '-'"
    else:
        return
    raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name {name[:300]!r} is invalid: {problem}")


def collision_key(name: str) -> str:
    """Topics with equal keys would share metric names; Kafka refuses to create the second."""
    return name.replace(".", "_")


def partition_directory(topic_partition: TopicPartition) -> str:
    """The directory that holds one partition's log, e.g. `orders-3`."""
    return f"{topic_partition.topic}-{topic_partition.partition}"


def parse_partition_directory(name: str) -> TopicPartition | None:
    """The partition of a log directory with this name; None if it is not the name of a partition directory."""
    match = _PARTITION_DIRECTORY.fullmatch(name)
    if match is None:
        return None
    return TopicPartition(match.group(1), int(match.group(2)))


def id_to_text(raw: bytes) -> str:
    """16 raw bytes as Kafka prints them: 22 characters of base64url without padding."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")


def id_from_text(text: str) -> bytes:
    """The 16 raw bytes of an id in Kafka's text form; ValueError if the text is malformed."""
    raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    if len(raw) != 16:
        raise ValueError(f"{text!r} is not a 22-character base64url id")
    return raw


def java_hash(text: str) -> int:
    """Java's `String.hashCode`, a signed 32-bit number, from which Kafka computes a group's coordinator partition."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for i in range(0, len(units), 2):
        value = (31 * value + (units[i] << 8 | units[i + 1])) & 0xFFFFFFFF
    return value - 0x100000000 if value & 0x80000000 else value


def coordinator_partition(key: str, partition_count: int) -> int:
    """The partition of `__consumer_offsets` (or `__transaction_state`) for a group (or transactional id).

    Kafka uses the hash's absolute value here (its producers mask the sign bit), and 0 for -2**31, which has none in 32 bits.
    """
    value = abs(java_hash(key))
    return 0 if value == 0x80000000 else value % partition_count


def similar_names(name: str, known: Iterable[str], count: int = 1, cutoff: float = 0.6) -> list[str]:
    """Those of the known names that a misspelt one may mean, the most similar first. `cutoff`: how similar they are at least, 0 to 1."""
    from difflib import get_close_matches  # a broker with correct names does not need it

    return get_close_matches(name, list(known), count, cutoff)
