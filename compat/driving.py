"""The features, written once for every client that is driven from Python: an adapter says how its client does each step.

Standard library only: each driver runs in an environment that holds nothing but its client.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

from compat.samples import BASE_TIMESTAMP, PARTITIONS, STEP_MS, Record, check_records, equal, sample_records

T = TypeVar("T")

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
KEEP = {"retention.ms": "-1"}  # the sample records have old timestamps
PATIENCE_S = 30.0


class Unsupported(Exception):
    """The client has no such thing; the reason."""


def until(condition: Callable[[], T], what: str) -> T:
    """The first true value; AssertionError when none comes in half a minute."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"after {PATIENCE_S:.0f} s still not: {what}"
        time.sleep(0.05)


def in_flight(idempotent: bool) -> int:
    """Requests that a producer may have under way: without idempotence, one that is sent again would come after the next."""
    return 5 if idempotent else 1


class Member(ABC):
    """A consumer of a group that lives on."""

    @abstractmethod
    def poll(self) -> list[Record]:
        """The next records; comes back soon when there are none."""

    @abstractmethod
    def assignment(self) -> set[int]:
        """The partitions that it has now."""

    @abstractmethod
    def close(self) -> None:
        """Leave the group."""


class Client:
    """One client on one broker. An adapter says what its client can; what it leaves out is Unsupported."""

    name: ClassVar[str]
    version: str
    partitions: ClassVar[int] = PARTITIONS

    def __init__(self, address: str) -> None:
        self.address = address

    def records(self, count: int) -> list[Record]:
        """Sample records that the client can send, in the order of sending."""
        return sample_records(count, self.partitions)

    def create_topic(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        raise Unsupported("no topics by request")

    def topics(self) -> set[str]:
        raise Unsupported("no list of topics")

    def partitions_with_leaders(self, topic: str) -> int:
        raise Unsupported("topics are not described")

    def leaders_answer(self, topic: str, partitions: int) -> bool:
        """Whether every leader knows that it is one. Kafka tells clients who leads before it has told all leaders."""
        try:
            return all(self.first_and_last(topic, partition) == (0, 0) for partition in range(partitions))
        except Unsupported:
            raise
        except Exception:  # not the leader, or no such partition, in the client's words
            return False

    def delete_topic(self, topic: str) -> None:
        raise Unsupported("topics are not deleted")

    def produce(self, topic: str, records: Sequence[Record], *, codec: str = "none", acks: str = "all", idempotent: bool = False) -> None:
        """Send, and wait until all is acknowledged or, with acks "0", sent."""
        raise Unsupported("no producer")

    def read(self, topic: str, count: int) -> list[Record]:
        """`count` records from the first offsets of all partitions on, without a group."""
        raise Unsupported("no consumer")

    def read_in_group(self, topic: str, group: str, count: int) -> list[Record]:
        """A new member reads `count` records, commits what it read and leaves."""
        raise Unsupported("no groups")

    def join(self, topic: str, group: str) -> Member:
        raise Unsupported("no group whose assignment can be seen")

    def first_and_last(self, topic: str, partition: int) -> tuple[int, int]:
        raise Unsupported("no offsets by request")

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int | None:
        """The first offset at or after a time."""
        raise Unsupported("no offsets by time")

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        raise Unsupported("no deletion of records")

    def config(self, topic: str, key: str) -> str:
        raise Unsupported("configs are not described")

    def set_config(self, topic: str, key: str, value: str) -> None:
        raise Unsupported("configs are not changed")

    def groups(self) -> set[str]:
        raise Unsupported("groups are not listed")

    def group_state(self, group: str) -> str:
        """Kafka's name of the group's state, in lower case."""
        raise Unsupported("groups are not described")

    def delete_group(self, group: str) -> None:
        raise Unsupported("groups are not deleted")

    def close(self) -> None:
        """End all connections."""


def _ready_topic(client: Client, topic: str, partitions: int | None = None, **configs: str) -> None:
    wanted = partitions or client.partitions
    try:
        client.create_topic(topic, wanted, KEEP | configs)
    except Unsupported:
        if partitions is not None:
            raise
        return  # the broker creates it when it is asked for
    until(lambda: client.partitions_with_leaders(topic) == wanted, f"{wanted} partitions with leaders")
    until(lambda: client.leaders_answer(topic, wanted), f"{wanted} partitions whose leaders answer")


def _topics(client: Client, topic: str) -> None:
    client.create_topic(topic, 3, KEEP | {"segment.bytes": "1048576"})
    until(lambda: client.partitions_with_leaders(topic) == 3, "three partitions with leaders")
    assert topic in client.topics(), "the topic is not in the list"
    equal(client.config(topic, "segment.bytes"), "1048576", "segment.bytes")
    client.delete_topic(topic)
    until(lambda: topic not in client.topics(), "the topic goes")


def _codec(codec: str) -> Callable[[Client, str], None]:
    def feature(client: Client, topic: str) -> None:
        _ready_topic(client, topic)
        records = client.records(330)
        client.produce(topic, records, codec=codec)
        check_records(client.read(topic, len(records)), records)

    return feature


def _acks(client: Client, topic: str) -> None:
    _ready_topic(client, topic)
    records = client.records(66)
    half = len(records) // 2
    client.produce(topic, records[:half], acks="1")
    client.produce(topic, records[half:], acks="0")
    check_records(client.read(topic, len(records)), records)


def _idempotence(client: Client, topic: str) -> None:
    _ready_topic(client, topic)
    records = client.records(990)
    client.produce(topic, records, idempotent=True)
    check_records(client.read(topic, len(records)), records)


def _group(client: Client, topic: str) -> None:
    _ready_topic(client, topic)
    records = client.records(99)
    client.produce(topic, records)
    first = client.read_in_group(topic, topic, 40)
    second = client.read_in_group(topic, topic, len(records) - 40)
    check_records(first + second, records)


def _rebalance(client: Client, topic: str) -> None:
    _ready_topic(client, topic, 4)
    first = client.join(topic, topic)
    try:
        second = client.join(topic, topic)
        try:
            _until_shared(first, second)
        finally:
            second.close()
        _until_shared(first)
    finally:
        first.close()


def _until_shared(*members: Member) -> None:
    def shared() -> bool:
        for member in members:
            member.poll()
        owned = [member.assignment() for member in members]
        return all(owned) and sum(map(len, owned)) == 4 and set().union(*owned) == {0, 1, 2, 3}

    try:
        until(shared, f"{len(members)} members share four partitions")
    except AssertionError as problem:
        raise AssertionError(f"{problem}; they have {[sorted(member.assignment()) for member in members]}") from None


def _offsets(client: Client, topic: str) -> None:
    _ready_topic(client, topic)
    records = client.records(99)
    client.produce(topic, records)
    per_partition = len(records) // client.partitions
    equal(client.first_and_last(topic, 0), (0, per_partition), "first and last offset")
    chosen = records[0].timestamp == BASE_TIMESTAMP
    # Record n of partition 0 is number n * partitions of all.
    tenth = BASE_TIMESTAMP + 10 * client.partitions * STEP_MS if chosen else 0
    equal(client.offset_at(topic, 0, tenth), 10 if chosen else 0, "the offset of a record's own time")
    if chosen:
        equal(client.offset_at(topic, 0, tenth + 1), 11, "the offset of a time between two records")


def _delete_records(client: Client, topic: str) -> None:
    _ready_topic(client, topic)
    records = client.records(99)
    client.produce(topic, records)
    client.delete_records(topic, 0, 20)
    left = [record for record in records if record.partition != 0 or record.offset >= 20]
    check_records(client.read(topic, len(left)), left)


def _configs(client: Client, topic: str) -> None:
    _ready_topic(client, topic, None, **{"max.message.bytes": "500000"})
    equal(client.config(topic, "max.message.bytes"), "500000", "the config given at creation")
    equal(client.config(topic, "cleanup.policy"), "delete", "a default")
    client.set_config(topic, "max.message.bytes", "600000")
    until(lambda: client.config(topic, "max.message.bytes") == "600000", "the changed config")


def _groups(client: Client, topic: str) -> None:
    _ready_topic(client, topic)
    records = client.records(9)
    client.produce(topic, records)
    client.read_in_group(topic, topic, len(records))
    assert topic in client.groups(), "the group is not in the list"
    until(lambda: client.group_state(topic) == "empty", "the group is empty")
    client.delete_group(topic)
    until(lambda: topic not in client.groups(), "the group goes")


_FEATURES: dict[str, Callable[[Client, str], None]] = {
    "topics": _topics, **{codec: _codec(codec) for codec in CODECS}, "acks": _acks, "idempotence": _idempotence, "group": _group,
    "eager": _rebalance, "offsets": _offsets, "delete_records": _delete_records, "configs": _configs, "groups": _groups,
}


def drive(adapter: type[Client]) -> None:
    """Run the features named on the command line (`HOST:PORT [FEATURE ...]`), or all, and print a line of JSON for each."""
    address, *names = sys.argv[1:]
    client = adapter(address)
    _print(client=client.name, version=client.version)
    for name in names or _FEATURES:
        topic = f"compat-{client.name}-{name}-{time.time_ns() // 1_000_000}".replace(" ", "-")
        ok, detail = _attempt(name, client, topic)
        _print(feature=name, ok=ok, detail=detail)
    client.close()


def _attempt(name: str, client: Client, topic: str) -> tuple[bool | None, str]:
    try:
        if name not in _FEATURES:
            raise Unsupported("the driver does not know it")
        _FEATURES[name](client, topic)
    except Unsupported as reason:
        return None, str(reason)
    except Exception as problem:  # whatever a client raises is a cell that says no
        traceback.print_exc()
        return False, f"{type(problem).__name__}: {problem}"
    return True, ""


def _print(**line: Any) -> None:
    print(json.dumps(line, ensure_ascii=False), flush=True)
