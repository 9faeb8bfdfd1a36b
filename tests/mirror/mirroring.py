"""Runs a mirror between two brokers in the test's own process, and compares what both sides serve."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred

from tests.client.test_twisted_connection import Turning
from tests.handover.feeding import content
from tests.support.server import Server
from txbroker.cli.clients import addresses
from txbroker.client.client_machine import ClientSettings
from txbroker.client.offset_requests import EARLIEST, LATEST
from txbroker.client.topic_reader import READ_UNCOMMITTED, TopicReader
from txbroker.mirror.requests import records_in
from txbroker.mirror.service import Mirror
from txbroker.mirror.settings import Environment, MirrorSettings
from txbroker.mirror.status import Status
from txbroker.names import TopicPartition
from txbroker.wire import entries
from txbroker.wire.batch import HEADER_SIZE, BatchHeader

PATIENCE_S = 120.0


class Running:
    """A mirror on a reactor that the test turns."""

    def __init__(self, turning: Turning, source: Server, target: Server, **settings: Any) -> None:
        times = {"checkpoint_every_s": 0.05, "progress_every_s": 3600.0, "fetch_wait_s": 0.05}
        chosen: dict[str, Any] = {**times, "run_id": f"{time.time_ns()}"}
        self.turning = turning
        self.mirror = Mirror(
            MirrorSettings(source=addresses(source.address), target=addresses(target.address), **{**chosen, **settings}),
            Environment(turning.reactor, lambda: 0.5, lambda: time.time_ns() // 1_000_000),
        )
        self.status = Status(self.mirror, turning.reactor.seconds())
        self.outcome: list[Any] = []
        Deferred.fromCoroutine(self.mirror.run(lambda: None)).addBoth(self.outcome.append)

    def until(self, condition: Callable[[], Any], what: str) -> None:
        """Turn the reactor until the condition holds; the mirror must not end before."""
        def checked() -> Any:
            assert not self.outcome, f"the mirror ended: {self.outcome}"
            return condition()

        self.turning.until(checked, what)

    def until_copied(self, count: int) -> None:
        """Turn the reactor until the targets' ends of all partitions add up to this."""
        copies = self.mirror.topics.partitions
        self.until(lambda: sum(copy.target_end for copy in copies.values()) == count, f"{count} records are copied")

    def end(self) -> Any:
        """Stop it if it runs; what it ended with: None, or an exception."""
        self.mirror.stop()
        return self.wait()

    def crash(self) -> None:
        """End it as kill -9 does: nothing more is stored or sent."""
        for loop in self.mirror._loops:
            loop.stop()
        self.mirror._stopping = True
        self.mirror.reader.stop()
        self.mirror.source.close()
        self.mirror.target.close()

    def wait(self) -> Any:
        """Wait for its end; None, or the exception."""
        self.turning.until(lambda: self.outcome, "the mirror ends")
        return getattr(self.outcome[0], "value", self.outcome[0])

    @property
    def report(self) -> dict[str, Any]:
        """The report."""
        return self.status.report(self.turning.reactor.seconds())

    def partition(self, topic: str, index: int = 0) -> Any:
        """A partition's copy."""
        return self.mirror.topics.partitions[TopicPartition(topic, index)]

    @property
    def problems(self) -> list[str]:
        """Why partitions are not copied."""
        return [copy.problem for copy in self.mirror.topics.partitions.values() if copy.problem]


def mirror(turning: Turning, source: Server, target: Server, *topics: str, **settings: Any) -> Running:
    """Copy everything that the source has now; the mirror, which has ended."""
    running = Running(turning, source, target, topics=topics, until_caught_up=True, **settings)
    outcome = running.wait()
    if outcome is not None:
        raise outcome
    return running


class Stored(NamedTuple):
    """A batch as it is stored: its header and its records section."""

    header: Any
    payload: bytes


def batches(server: Server, topic: str, partition: int = 0) -> list[Stored]:
    """All batches of a partition."""
    return list(_batches(server, topic, partition))


def _batches(server: Server, topic: str, partition: int) -> Iterator[Stored]:
    reader = TopicReader(addresses(server.address), topic, ClientSettings(), READ_UNCOMMITTED)
    try:
        position, end = reader.offset(partition, EARLIEST), reader.offset(partition, LATEST)
        while position < end:
            records = records_in(reader.fetch(partition, position))
            for at, header in entries.Scan(records, check_crc=True):
                if header.last_offset >= position:
                    skipped = HEADER_SIZE if isinstance(header, BatchHeader) else 0
                    yield Stored(header, bytes(records[at + skipped : at + header.size]))
                    position = header.last_offset + 1
    finally:
        reader.close()


def without_renumbering(stored: Stored) -> tuple[Any, ...]:
    """What must be equal on both sides of a batch that passes through."""
    header = stored.header
    return (header.size, header.attributes & ~0x50, header.last_offset_delta, header.base_timestamp, header.max_timestamp, header.count,
            stored.payload)  # fmt: skip


def same_records(source: Server, target: Server, topic: str, partitions: int = 1) -> int:
    """Check that the target has the committed records of the source, each once and in order; how many."""
    theirs, ours = content(source).records, content(target).records
    for partition in range(partitions):
        key = ("read_committed", topic, partition)
        assert [each[1:] for each in ours[key]] == [each[1:] for each in theirs[key]], key
    return sum(len(ours["read_committed", topic, partition]) for partition in range(partitions))
