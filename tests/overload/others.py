"""The other clients: each produces a record and fetches it, repeatedly. No record may be lost, and the latencies are measured."""

from __future__ import annotations

import threading
import time
from typing import Any

from tests.overload.abuses import FULL, FULL_PARTITIONS, SYNCED, VICTIM
from tests.support.raw import RawConnection
from tests.support.raw_admin import KEEP, create_topic
from tests.support.raw_log import batch, fetch_request, fetched, produce
from tests.support.records import numbered, numbers
from tests.support.server import Server
from tests.support.waiting import PATIENCE_S

OTHERS = 4
PAUSE_S = 0.01
FILLED_BATCHES = 16


def prepare(server: Server) -> None:
    """Create the topics that the abuses use."""
    soon = {**KEEP, "segment.bytes": str(16 << 20), "retention.bytes": str(32 << 20), "file.delete.delay.ms": "100"}
    create_topic(server, VICTIM, 1, KEEP)
    create_topic(server, SYNCED, 1, {**soon, "flush.messages": "1"})
    create_topic(server, FULL, FULL_PARTITIONS, KEEP)
    data = batch(numbered(900, size=1000))
    with RawConnection(server.address) as connection:
        for number in range(FULL_PARTITIONS):
            for _ in range(FILLED_BATCHES):
                assert produce(connection, FULL, data, partition=number).error_code == 0


class Other:
    """One client, with its own thread and partition."""

    def __init__(self, server: Server, topic: str, partition: int) -> None:
        self.latencies: list[float] = []
        self.count = 0
        self._server = server
        self._topic = topic
        self._partition = partition
        self.error: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with RawConnection(self._server.address) as connection:
                while not self._stop.wait(PAUSE_S):
                    self._one(connection)
        except BaseException as error:
            self.error = error

    def _one(self, connection: RawConnection) -> None:
        data = batch(numbered(1, start=self.count))
        begin = time.perf_counter()
        answer = produce(connection, self._topic, data, partition=self._partition)
        assert answer.error_code == 0, answer
        assert answer.base_offset == self.count, "the record is not at the next offset"
        request = fetch_request(self._topic, self.count, bytes_min=1, wait_ms=1000)
        request.topics[0].partitions[0].partition = self._partition
        found = fetched(connection.call(request, 11))
        self.latencies.append(time.perf_counter() - begin)
        assert numbers(found.records) == [self.count], found
        self.count += 1

    def close(self) -> None:
        """Stop, raise the client's error, and check that all records are stored in order."""
        self._stop.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), f"no response for {PATIENCE_S:.0f} s"
        if self.error is not None:
            raise self.error
        with RawConnection(self._server.address) as connection:
            assert list(range(self.count)) == _all_numbers(connection, self._topic, self._partition, self.count)


def _all_numbers(connection: RawConnection, topic: str, partition: int, end: int) -> list[int]:
    found: list[int] = []
    while len(found) < end:
        request: Any = fetch_request(topic, len(found), bytes_max=4 << 20)
        request.topics[0].partitions[0].partition = partition
        some = numbers(fetched(connection.call(request, 11)).records)
        assert some, f"{len(found)} of {end} records are there"
        found += some
    return found


class Others:
    """All other clients."""

    def __init__(self, server: Server, topic: str) -> None:
        create_topic(server, topic, OTHERS, KEEP)
        self._all = [Other(server, topic, partition) for partition in range(OTHERS)]

    @property
    def count(self) -> int:
        """Round trips so far, of the client with the fewest; raises a client's error."""
        for other in self._all:
            if other.error is not None:
                raise other.error
        return min(other.count for other in self._all)

    def take_latencies(self) -> list[float]:
        """The sorted seconds of the round trips (two requests) since the last call."""
        taken = []
        for other in self._all:
            latencies, other.latencies = other.latencies, []
            taken += latencies
        return sorted(taken)

    def close(self) -> None:
        for other in self._all:
            other.close()
