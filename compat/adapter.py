"""The interface of an adapter: how its client performs each step of the features. Standard library only, like all shared code."""

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
SENDING_S = 200.0  # covers a restart of a broker that starts slowly
# The largest producer request and record, for every adapter.
LARGEST_BYTES = 12 * 2**20
KEEP = {"retention.ms": "-1"}  # the sample records have old timestamps
EAGER, COOPERATIVE = "eager", "cooperative"
HEARTBEAT_MS = 300  # so that members notice a rebalance soon
_PAUSE_S = 0.05


class Unsupported(Exception):
    """The client lacks this feature; the text says why."""


class Fault(Exception):
    """The client is faulty, on any broker; the text says why."""


def until(condition: Callable[[], T], what: str) -> T:
    """The first true value of `condition`; AssertionError after a minute without one."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"after {PATIENCE_S:.0f} s still waiting for: {what}"
        time.sleep(_PAUSE_S)


def in_flight(idempotent: bool) -> int:
    """The number of requests in flight of a producer: without idempotence 1, or a retry would follow the next request."""
    return 5 if idempotent else 1


class Producer(ABC):
    """A producer that stays open."""

    @abstractmethod
    def send(self, records: Sequence[Record]) -> None:
        """Send, and wait until all records are acknowledged; a client that does not report this raises in `close`."""

    @abstractmethod
    def close(self) -> None:
        """Wait until everything is acknowledged, or raise."""


class Consumer(ABC):
    """A consumer that stays open and is polled by its own thread, to take part in rebalances. In a group it commits what it has read."""

    def __init__(self, *, commits: bool) -> None:
        self._commits = commits
        self.rebalances = 0  # the number of assignments, empty ones included
        self.revoked: set[int] = set()  # all partitions revoked while it was open
        self._read: SimpleQueue[Record] = SimpleQueue()
        self._problem: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Start polling."""
        self._thread.start()

    def take(self) -> list[Record]:
        """The records since the last call; raises what a poll raised."""
        if self._problem is not None:
            raise self._problem
        return [self._read.get() for _ in range(self._read.qsize())]

    def close(self) -> None:
        """Leave the group, unless it is a static member, and close all connections."""
        self._stop.set()
        self._thread.join()

    def given(self) -> None:
        """Called by the adapter: the group has assigned partitions."""
        self.rebalances += 1

    def lost(self, partitions: Iterable[int]) -> None:
        """Called by the adapter: partitions are revoked."""
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
        """Some clients leave retries to the application, for example after a restart of the broker."""
        deadline = time.monotonic() + SENDING_S
        while True:
            try:
                return self.commit()
            except Exception:
                if time.monotonic() > deadline or self._stop.wait(_PAUSE_S):
                    raise

    @abstractmethod
    def poll(self) -> list[Record]:
        """The next records; returns soon when there are none."""

    @abstractmethod
    def commit(self) -> None:
        """Commit what `poll` has returned."""

    @abstractmethod
    def assignment(self) -> set[int]:
        """The assigned partitions."""

    @abstractmethod
    def end(self) -> None:
        """The work of `close`, on the polling thread."""


class Transactions(ABC):
    """A transactional producer that is initialized and stays open."""

    @abstractmethod
    def begin(self) -> None:
        """Begin a transaction."""

    @abstractmethod
    def send(self, records: Sequence[Record]) -> None:
        """Send, and wait until all records are acknowledged."""

    @abstractmethod
    def send_offsets(self, group: str, offsets: dict[int, int]) -> None:
        """Commit offsets of a group in the transaction."""

    @abstractmethod
    def commit(self) -> None:
        """Commit; raises if it is not possible."""

    @abstractmethod
    def abort(self) -> None:
        """Abort."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections."""


class Client:
    """One client on one broker. An adapter implements what its client supports; the other methods raise Unsupported."""

    name: ClassVar[str]
    version: str
    partitions: ClassVar[int] = PARTITIONS

    def __init__(self, address: str) -> None:
        self.address = address

    def records(self, count: int, partitions: int | None = None) -> list[Record]:
        """Sample records that the client can send, in the order of sending."""
        return sample_records(count, partitions or self.partitions)

    def create_topic(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        raise Unsupported("it does not create topics")

    def create_shared(self, topic: str, partitions: int) -> None:
        """A topic whose partitions a group shares."""
        self.create_topic(topic, partitions, KEEP)

    def topics(self) -> set[str]:
        raise Unsupported("it does not list topics")

    def partitions_with_leaders(self, topic: str) -> int:
        raise Unsupported("it does not describe topics")

    def leaders_answer(self, topic: str, partitions: int) -> bool:
        """Whether every leader serves its partition. Kafka reports leaders to clients before all leaders know."""
        try:
            return all(self.first_and_last(topic, partition) == (0, 0) for partition in range(partitions))
        except Unsupported:
            raise
        except Exception:  # not the leader, or no such partition, in the client's words
            return False

    def add_partitions(self, topic: str, total: int) -> None:
        raise Unsupported("it does not add partitions")

    def topic_id(self, topic: str) -> str:
        """The topic's id, in the client's notation."""
        raise Unsupported("it does not show topic ids")

    def delete_topic(self, topic: str) -> None:
        raise Unsupported("it does not delete topics")

    def produce(self, topic: str, records: Sequence[Record], *, codec: str = "none", acks: str = "all", idempotent: bool = False) -> None:
        """Send, and wait until all records are acknowledged or, with acks "0", sent."""
        raise Unsupported("no producer")

    def transactional(self, topic: str, transactional_id: str) -> Transactions:
        """A transactional producer for one topic, initialized."""
        raise Unsupported("it has no transactions")

    def read(self, topic: str, count: int, *, committed: bool = False) -> list[Record]:
        """Read `count` records from the first offsets of all partitions, without a group; `committed`: only those that are."""
        raise Unsupported("no consumer")

    def read_in_group(self, topic: str, group: str, count: int) -> list[Record]:
        """A new member reads `count` records, commits what it read and leaves."""
        raise Unsupported("no groups")

    def producer(self, topic: str, *, idempotent: bool = False) -> Producer:
        raise Unsupported("it has no producer that stays open")

    def consumer(self, topic: str, *, max_wait_ms: int = 500, committed: bool = False) -> Consumer:
        """A started consumer of all partitions from their first offsets, without a group. `max_wait_ms` is the longest wait of a fetch."""
        raise Unsupported("it has no consumer that stays open")

    def join(self, topic: str, group: str, *, protocol: str = EAGER, instance: str | None = None) -> Consumer:
        """A new member of a group, started: by an eager or cooperative assignor, which share evenly; static, if it has an instance id."""
        raise Unsupported("it does not show assignments")

    def first_and_last(self, topic: str, partition: int) -> tuple[int, int]:
        raise Unsupported("it does not return first and last offsets")

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int | None:
        """The first offset at or after a time."""
        raise Unsupported("it does not look up offsets by time")

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        raise Unsupported("it does not delete records")

    def config(self, topic: str, key: str) -> str:
        raise Unsupported("it does not describe configs")

    def set_config(self, topic: str, key: str, value: str) -> None:
        raise Unsupported("it does not alter configs")

    def reset_config(self, topic: str, key: str) -> None:
        """Reset to the default."""
        raise Unsupported("it does not reset configs")

    def set_group_offsets(self, topic: str, group: str, offsets: dict[int, int]) -> None:
        """Change the committed offsets of a group without members."""
        raise Unsupported("it does not change the offsets of a group")

    def groups(self) -> set[str]:
        raise Unsupported("it does not list groups")

    def group_state(self, group: str) -> str:
        """Kafka's name of the group's state, in lower case."""
        raise Unsupported("it does not describe groups")

    def delete_group(self, group: str) -> None:
        raise Unsupported("it does not delete groups")

    def close(self) -> None:
        """Close all connections."""
