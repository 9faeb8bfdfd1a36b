"""What an adapter says of its client: how it does each step of the features. Standard library only, as all that drivers in Python share."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from queue import SimpleQueue
from typing import ClassVar, TypeVar

from compat.samples import PARTITIONS, Record, sample_records

T = TypeVar("T")

PATIENCE_S = 60.0
SENDING_S = 200.0  # a restart of the broker may come between, of one that starts slowly
# What a request of a producer, and a record, may have at most in every adapter.
LARGEST_BYTES = 12 * 2**20
KEEP = {"retention.ms": "-1"}  # the sample records have old timestamps
EAGER, COOPERATIVE = "eager", "cooperative"
HEARTBEAT_MS = 300  # so that a member soon hears of a rebalance
_PAUSE_S = 0.05


class Unsupported(Exception):
    """The client has no such thing; the reason."""


class Fault(Exception):
    """The client itself is wrong, on any broker; why."""


def until(condition: Callable[[], T], what: str) -> T:
    """The first true value; AssertionError when none comes in a minute."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"after {PATIENCE_S:.0f} s still not: {what}"
        time.sleep(_PAUSE_S)


def in_flight(idempotent: bool) -> int:
    """Requests that a producer may have under way: without idempotence, one that is sent again would come after the next."""
    return 5 if idempotent else 1


class Producer(ABC):
    """A producer that lives on."""

    @abstractmethod
    def send(self, records: Sequence[Record]) -> None:
        """Send, and wait until all is acknowledged; a client that cannot tell says so in `close`."""

    @abstractmethod
    def close(self) -> None:
        """Everything that was sent is acknowledged after this, or it fails."""


class Consumer(ABC):
    """A consumer that lives on, on a thread that polls it: it has to take part in rebalances. One in a group commits what it has read."""

    def __init__(self, *, commits: bool) -> None:
        self._commits = commits
        self.rebalances = 0  # how often it was given an assignment, also an empty one
        self.revoked: set[int] = set()  # what was ever taken from it, while it was open
        self._read: SimpleQueue[Record] = SimpleQueue()
        self._problem: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin to poll."""
        self._thread.start()

    def take(self) -> list[Record]:
        """What was read since the last call; whatever a poll raised."""
        if self._problem is not None:
            raise self._problem
        return [self._read.get() for _ in range(self._read.qsize())]

    def close(self) -> None:
        """Leave the group, unless it is a static member; end all connections."""
        self._stop.set()
        self._thread.join()

    def given(self) -> None:
        """For the adapter: the group has given it an assignment."""
        self.rebalances += 1

    def lost(self, partitions: Iterable[int]) -> None:
        """For the adapter: partitions are taken from it, or it gives them up itself."""
        if not self._stop.is_set():
            self.revoked |= set(partitions)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                records = self.poll()
                if records and self._commits:
                    self._commit_surely()
                for record in records:
                    self._read.put(record)
            self.end()
        except BaseException as problem:
            self._problem = problem

    def _commit_surely(self) -> None:
        """Some clients leave it to their user to try again, for instance after the broker was restarted."""
        deadline = time.monotonic() + SENDING_S
        while True:
            try:
                return self.commit()
            except Exception:
                if time.monotonic() > deadline or self._stop.wait(_PAUSE_S):
                    raise

    @abstractmethod
    def poll(self) -> list[Record]:
        """The next records; comes back soon when there are none."""

    @abstractmethod
    def commit(self) -> None:
        """Commit what `poll` has given."""

    @abstractmethod
    def assignment(self) -> set[int]:
        """The partitions that it has now."""

    @abstractmethod
    def end(self) -> None:
        """What `close` has to do, on the thread that polls."""


class Client:
    """One client on one broker. An adapter says what its client can; what it leaves out is Unsupported."""

    name: ClassVar[str]
    version: str
    partitions: ClassVar[int] = PARTITIONS

    def __init__(self, address: str) -> None:
        self.address = address

    def records(self, count: int, partitions: int | None = None) -> list[Record]:
        """Sample records that the client can send, in the order of sending."""
        return sample_records(count, partitions or self.partitions)

    def create_topic(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        raise Unsupported("no topics by request")

    def create_shared(self, topic: str, partitions: int) -> None:
        """A topic whose partitions a group shares."""
        self.create_topic(topic, partitions, KEEP)

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

    def add_partitions(self, topic: str, total: int) -> None:
        raise Unsupported("no partitions are added")

    def topic_id(self, topic: str) -> str:
        """The topic's id, however the client writes it."""
        raise Unsupported("it shows no topic ids")

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

    def producer(self, topic: str, *, idempotent: bool = False) -> Producer:
        raise Unsupported("no producer that lives on")

    def consumer(self, topic: str, *, max_wait_ms: int = 500) -> Consumer:
        """A consumer of all partitions from their first offsets on, without a group; started. A fetch of it may wait that long."""
        raise Unsupported("no consumer that lives on")

    def join(self, topic: str, group: str, *, protocol: str = EAGER, instance: str | None = None) -> Consumer:
        """A new member of a group, started: by an eager or cooperative assignor, which share evenly; static, if it has an instance id."""
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

    def reset_config(self, topic: str, key: str) -> None:
        """Back to the default."""
        raise Unsupported("configs are not taken back")

    def set_group_offsets(self, topic: str, group: str, offsets: dict[int, int]) -> None:
        """Change what a group without members has committed."""
        raise Unsupported("a group's offsets are not set from outside")

    def groups(self) -> set[str]:
        raise Unsupported("groups are not listed")

    def group_state(self, group: str) -> str:
        """Kafka's name of the group's state, in lower case."""
        raise Unsupported("groups are not described")

    def delete_group(self, group: str) -> None:
        raise Unsupported("groups are not deleted")

    def close(self) -> None:
        """End all connections."""
