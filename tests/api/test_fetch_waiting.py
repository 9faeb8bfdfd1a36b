"""A waiting fetch only reads the partitions that moved."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from twisted.internet.task import Clock

from tests.api.lone_broker import alone, no_leaders, no_quota
from tests.api.responses import message
from txbroker.api.fetch import FetchHandler
from txbroker.api.fetch_item import FetchClient, FetchItem, PartitionRead
from txbroker.api.fetch_partition import PartitionReader
from txbroker.api.fetch_sessions import FetchSessions
from txbroker.api.read_replica import ReadReplicas
from txbroker.api.request_context import RequestContext, Session
from txbroker.cluster.image import ClusterImage
from txbroker.errors import BrokerError, ErrorCode
from txbroker.names import TopicPartition
from txbroker.purgatory import Purgatory
from txbroker.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

VERSION = 11
LIMIT = 1000


class Partitions(PartitionReader):
    """Partitions as numbers of bytes; records the reads."""

    def __init__(self) -> None:
        none: Any = None
        super().__init__(none, no_leaders(), Counter(), lambda: 0.0, ReadReplicas(ClusterImage(), None), no_quota())
        self.sizes: dict[int, int] = {}
        self.failing: set[int] = set()
        self.broken: set[int] = set()
        self.zstd: set[int] = set()
        self.reads: list[int] = []

    def read(self, item: FetchItem, bytes_max: int, whole_first_batch: bool, client: FetchClient) -> PartitionRead:
        item.place = TopicPartition(item.topic, item.partition)
        self.reads.append(item.partition)
        if item.partition in self.failing:
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if item.partition in self.broken:
            raise RuntimeError("injected")
        records = bytes(min(self.sizes.get(item.partition, 0), bytes_max))
        return PartitionRead(0, 0, 0, records, len(records))


    def check_codec(self, item: FetchItem) -> None:
        if item.partition in self.zstd:
            raise BrokerError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)


class Waiting:
    """One fetch of several partitions, and its response when there is one."""

    def __init__(self, partitions: int, *, min_bytes: int, version: int = VERSION) -> None:
        self.version = version
        self.clock = Clock()
        self.purgatory = Purgatory(self.clock, "fetch")
        nowhere: Any = None  # the test's reader handles every fetch
        sessions = FetchSessions(0, lambda: 1)
        handler = FetchHandler(
            nowhere, ClusterImage(), sessions, self.purgatory, lambda: 0, **alone(), fetch_max_bytes=LIMIT
        )
        self.partitions = Partitions()
        handler.parts = handler.parts._replace(partitions=self.partitions)
        wanted = [FetchPartition(partition=p, fetch_offset=0, partition_max_bytes=LIMIT) for p in range(partitions)]
        request = FetchRequest(max_wait_ms=500, min_bytes=min_bytes, max_bytes=LIMIT, topics=[FetchTopic(topic="t", partitions=wanted)])
        session = Session(peer_host="p", peer_port=1, local_host="l", local_port=2, listener="PLAINTEXT", number=0)
        answer: Any = handler(request, RequestContext(1, version, 1, None, session))
        self.answer: FetchResponse | None = None
        answer.when_answered(self._answered)
        self.partitions.reads.clear()

    def _answered(self, response: Any) -> None:
        self.answer = message(response, FetchRequest, self.version)

    def moved(self, partition: int, size: int = 0) -> list[int]:
        """Set the number of bytes of a partition; the reads that this caused."""
        self.partitions.sizes[partition] = size
        self.partitions.reads.clear()
        self.purgatory.check(TopicPartition("t", partition))
        return list(self.partitions.reads)

    def sizes(self) -> dict[int, int]:
        assert self.answer is not None
        return {p.partition_index: len(p.records or b"") for topic in self.answer.responses for p in topic.partitions}


@pytest.mark.parametrize("partitions", [1, 100])
def test_min_bytes_of_one_is_satisfied_by_any_record(partitions: int) -> None:
    waiting = Waiting(partitions, min_bytes=1)
    assert waiting.moved(0) == [0]
    assert waiting.answer is None
    assert waiting.moved(0, 10) == [0]
    assert waiting.sizes() == {0: 10, **dict.fromkeys(range(1, partitions), 0)}


def test_only_moved_partitions_are_read_until_min_bytes_are_there() -> None:
    waiting = Waiting(100, min_bytes=100)
    assert waiting.moved(3, 40) == [3]
    assert waiting.moved(3, 50) == [3]
    assert waiting.moved(7, 49) == [7]
    assert waiting.answer is None
    assert waiting.moved(8, 1) == [8]
    assert {p: size for p, size in waiting.sizes().items() if size} == {3: 50, 7: 49, 8: 1}


def test_a_response_stays_within_max_bytes() -> None:
    waiting = Waiting(3, min_bytes=LIMIT)
    waiting.moved(0, LIMIT - 1)
    assert waiting.moved(1, 500) == [1, 0, 1, 2]
    assert waiting.sizes() == {0: LIMIT - 1, 1: 1, 2: 0}


def test_min_bytes_above_max_bytes_are_limited_to_max_bytes() -> None:
    waiting = Waiting(2, min_bytes=10 * LIMIT)
    waiting.moved(0, LIMIT)
    assert waiting.sizes() == {0: LIMIT, 1: 0}


def test_an_error_is_returned_at_once() -> None:
    waiting = Waiting(3, min_bytes=100)
    waiting.partitions.failing.add(1)
    waiting.moved(1)
    assert waiting.answer is not None
    assert [p.error_code for p in waiting.answer.responses[0].partitions] == [0, ErrorCode.NOT_LEADER_OR_FOLLOWER, 0]


def test_available_records_are_returned_after_max_wait() -> None:
    waiting = Waiting(3, min_bytes=100)
    waiting.moved(1, 5)
    waiting.clock.advance(1)
    assert waiting.sizes() == {0: 0, 1: 5, 2: 0}


@pytest.mark.parametrize("waits", [False, True])
def test_a_defect_in_one_partition_is_the_error_of_that_partition(waits: bool, caplog: pytest.LogCaptureFixture) -> None:
    waiting = Waiting(3, min_bytes=100)
    waiting.partitions.sizes[2] = 5
    waiting.partitions.broken.add(1)
    waiting.moved(1 if waits else 2, 5)
    waiting.clock.advance(1)
    assert waiting.answer is not None
    answered = [(p.error_code, len(p.records or b"")) for p in waiting.answer.responses[0].partitions]
    assert answered == [(0, 0), (ErrorCode.UNKNOWN_SERVER_ERROR, 0), (0, 5)]
    assert "internal error reading t-1" in caplog.text and "injected" in caplog.text


def test_a_version_without_zstd_is_refused_also_while_the_fetch_waits() -> None:
    """The topic's compression.type has changed since."""
    waiting = Waiting(2, min_bytes=100, version=9)
    waiting.partitions.zstd.add(1)
    waiting.moved(1, 100)
    assert waiting.answer is not None
    assert [p.error_code for p in waiting.answer.responses[0].partitions] == [0, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE]
