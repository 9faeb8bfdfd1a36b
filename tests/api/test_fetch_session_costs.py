"""A fetch in a session only reads partitions that may have changed, and returns the same as one that reads all."""

from __future__ import annotations

from itertools import count
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.task import Clock

from tests.api.lone_broker import alone, no_leaders, no_quota
from tests.api.responses import message
from tests.support.examples import examples
from txbroker.api.fetch import FetchHandler
from txbroker.api.fetch_item import FetchClient, FetchItem, PartitionRead
from txbroker.api.fetch_partition import PartitionReader
from txbroker.api.fetch_sessions import FetchSession, FetchSessions
from txbroker.api.parking import ParkedRequest
from txbroker.api.read_replica import ReadReplicas
from txbroker.api.request_context import RequestContext, Session
from txbroker.cluster.image import ClusterImage
from txbroker.cluster.local_replica import Isolation
from txbroker.errors import BrokerError, ErrorCode
from txbroker.names import TopicPartition
from txbroker.purgatory import Purgatory
from txbroker.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic

VERSION = 11
LIMIT = 100
SESSION = Session(peer_host="p", peer_port=1, local_host="l", local_port=2, listener="PLAINTEXT", number=0)

# A response by partition: (error, records, high watermark, log start).
Seen = dict[int, tuple[int, int, int, int]]


class Partitions(PartitionReader):
    """Reads from the test's partitions; only sessions are tested here."""

    def __init__(self, handler: Reading) -> None:
        none: Any = None
        super().__init__(none, no_leaders(), handler.errors, lambda: 0.0, ReadReplicas(ClusterImage(), None), no_quota())
        self._handler = handler

    def read(self, item: FetchItem, bytes_max: int, whole_first_batch: bool, client: FetchClient) -> PartitionRead:
        item.place = TopicPartition(item.topic, item.partition)
        return self._handler.read_item(item, bytes_max, client.isolation)

    def check_codec(self, item: FetchItem) -> None:
        pass


class Reading(FetchHandler):
    """Partitions whose records have a byte each; `lazy` False makes every fetch look at everything, as Kafka's does."""

    def __init__(self, partitions: int, *, lazy: bool) -> None:
        none: Any = None
        numbers = count(1)
        self.cache = FetchSessions(10, lambda: next(numbers))
        self.clock = Clock()
        self.purgatory = Purgatory(self.clock, "fetch")
        super().__init__(none, ClusterImage(), self.cache, self.purgatory, lambda: 0, **alone(), fetch_max_bytes=LIMIT)
        self.parts = self.parts._replace(partitions=Partitions(self))
        self.lazy = lazy
        self.ends = [0] * partitions
        self.stable = [0] * partitions
        self.starts = [0] * partitions
        self.failing: set[int] = set()
        self.reads: list[int] = []
        self.session_id = 0
        self.epoch = 0

    def read_item(self, item: FetchItem, bytes_max: int, isolation: int) -> PartitionRead:
        index = item.partition
        self.reads.append(index)
        if index in self.failing:
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if not self.starts[index] <= item.wanted.fetch_offset <= self.ends[index]:
            raise BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE)
        end = self.stable[index] if isolation == Isolation.READ_COMMITTED else self.ends[index]
        size = max(0, min(end - item.wanted.fetch_offset, bytes_max, item.wanted.partition_max_bytes))
        return PartitionRead(self.ends[index], self.stable[index], self.starts[index], bytes(size), size)

    def moved(self, index: int) -> None:
        """A move and the end of its reactor turn."""
        topic_partition = TopicPartition("t", index)
        for session in self.woken(index):
            self.purgatory.check(session)
        self.purgatory.check(topic_partition)

    def woken(self, index: int) -> list[FetchSession]:
        """The sessions that a move affects."""
        self.cache.moved(TopicPartition("t", index))
        return self.cache.take_moved()

    def fetch(self, wanted: dict[int, int], forget: list[int], isolation: int, *, wait: bool = False, min_bytes: int = 1) -> list[Seen]:
        """The list that receives the response. `wanted`: offsets by partition."""
        self.reads.clear()
        topics = [FetchTopic(topic="t", partitions=[
            FetchPartition(partition=p, fetch_offset=offset, partition_max_bytes=60) for p, offset in wanted.items()])] if wanted else []
        forgotten = [ForgottenTopic(topic="t", partitions=forget)] if forget else []
        request = FetchRequest(max_wait_ms=500 if wait else 0, min_bytes=min_bytes, max_bytes=LIMIT, isolation_level=isolation,
                               topics=topics, forgotten_topics_data=forgotten, session_id=self.session_id, session_epoch=self.epoch)
        if not self.lazy and self.session_id in self.cache._sessions:
            session = self.cache._sessions[self.session_id]
            session.pending.update(dict.fromkeys(session.items.values()))
        answer: Any = self(request, RequestContext(1, VERSION, 1, None, SESSION))
        reported: list[Seen] = []
        if isinstance(answer, ParkedRequest):
            answer.when_answered(lambda response: reported.append(self._seen(response)))
        else:
            reported.append(self._seen(answer))
        return reported

    def _seen(self, answer: Any) -> Seen:
        response: FetchResponse = message(answer, FetchRequest, VERSION)
        if response.error_code:
            self.session_id = self.epoch = 0
            return {-1: (response.error_code, 0, 0, 0)}
        self.session_id, self.epoch = response.session_id, self.epoch + 1 if response.session_id else 0
        return {p.partition_index: (p.error_code, len(p.records or b""), p.high_watermark, p.log_start_offset)
                for topic in response.responses for p in topic.partitions}


def test_only_changed_and_named_partitions_are_read() -> None:
    handler = Reading(100, lazy=True)
    handler.fetch(dict.fromkeys(range(100), 0), [], 0)
    assert len(handler.reads) == 100
    handler.fetch({}, [], 0)
    assert len(handler.reads) == 100, "the first incremental fetch reads all partitions"
    handler.fetch({}, [], 0)
    assert handler.reads == []
    handler.ends[7] = 5
    handler.moved(7)
    assert handler.fetch({}, [], 0) == [{7: (0, 5, 5, 0)}]
    assert handler.reads == [7]
    handler.fetch({7: 5}, [], 0)
    assert handler.reads == [7]
    handler.fetch({}, [], 0)
    assert handler.reads == []


def test_a_waiting_fetch_reads_the_partition_that_moved() -> None:
    handler = Reading(100, lazy=True)
    handler.fetch(dict.fromkeys(range(100), 0), [], 0)
    handler.fetch({}, [], 0)
    reported = handler.fetch({}, [], 0, wait=True)
    assert reported == []
    assert handler.reads == []
    handler.moved(3)
    assert reported == [], "no records"
    handler.ends[9] = 2
    handler.moved(9)
    assert reported == [{9: (0, 2, 2, 0)}]
    assert set(handler.reads) == {3, 9}


def test_a_session_gets_no_moves_of_removed_partitions() -> None:
    handler = Reading(3, lazy=True)
    handler.fetch({0: 0, 1: 0, 2: 0}, [], 0)
    handler.fetch({}, [1], 0)
    assert handler.woken(0)
    assert not handler.woken(1)
    handler.epoch = -1
    handler.fetch({}, [], 0)
    assert not handler.woken(0)
    assert not handler.cache.watched


def test_a_fetch_whose_session_ended_watches_no_partition() -> None:
    handler = Reading(3, lazy=True)
    handler.fetch({0: 0, 1: 0, 2: 0}, [], 0)
    handler.ends[0] = 5
    reported = handler.fetch({0: 0}, [], 0, wait=True, min_bytes=6)
    handler.epoch = -1
    handler.fetch({}, [], 0)
    assert not handler.cache.watched
    handler.clock.advance(1)
    assert reported == [{0: (0, 5, 5, 0)}]
    assert not handler.cache.watched


PARTITIONS = 4
index = st.integers(0, PARTITIONS - 1)
STEPS = st.one_of(
    st.tuples(st.just("append"), index, st.integers(1, 80)),
    st.tuples(st.just("stable"), index, st.integers(0, 80)),
    st.tuples(st.just("start"), index, st.integers(0, 200)),
    st.tuples(st.just("fail"), index, st.booleans()),
    st.tuples(st.just("fetch"), st.lists(st.tuples(index, st.integers(0, 300) | st.none()), max_size=4), st.lists(index, max_size=1)),
    st.tuples(st.just("isolation"), st.integers(0, 1), st.none()),
)


@settings(max_examples=examples(400))
@given(st.lists(STEPS, max_size=40))
def test_a_lazy_session_returns_what_reading_everything_returns(steps: list[tuple[str, Any, Any]]) -> None:
    """Both responses are equal, except for the order and the partitions that fill a limited response."""
    both = [Reading(PARTITIONS, lazy=True), Reading(PARTITIONS, lazy=False)]
    isolation = 0
    for handler in both:
        handler.fetch(dict.fromkeys(range(PARTITIONS), 0), [], isolation)
    for number, (what, first, second) in enumerate(steps):
        if what == "isolation":
            isolation = first
            continue
        answers = []
        for handler in both:
            if what == "append":
                handler.ends[first] += second
                if first % 2:
                    handler.stable[first] = handler.ends[first]
            elif what == "stable":
                handler.stable[first] = min(handler.stable[first] + second, handler.ends[first])
            elif what == "start":
                handler.starts[first] = max(handler.starts[first], min(second, handler.ends[first]))
            elif what == "fail":
                (handler.failing.add if second else handler.failing.discard)(first)
            else:
                wanted = {p: handler.ends[p] if offset is None else offset for p, offset in first}
                answers.append(handler.fetch(wanted, second, isolation))
            if what != "fetch":
                if number % 2:
                    handler.moved(first)
                else:  # fetches of the same turn read it too
                    handler.cache.moved(TopicPartition("t", first))
        if answers:
            assert answers[0] == answers[1]


def test_moves_of_pending_partitions_are_not_recorded_again() -> None:
    handler = Reading(3, lazy=True)
    handler.fetch({0: 0, 1: 0, 2: 0}, [], 0)
    handler.fetch({}, [], 0)
    assert len(handler.woken(1)) == 1
    assert handler.woken(1) == [], "it is already pending"
    handler.fetch({}, [], 0)
    assert handler.reads == [1]
    assert len(handler.woken(1)) == 1
