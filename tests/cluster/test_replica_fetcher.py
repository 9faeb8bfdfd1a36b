"""Followers copy their leader's log: truncation by leader epochs, high watermarks, sessions, errors; and random histories of all of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cluster.replica_group import BACKOFF_S, LAG_S, Broker, Group
from tests.log.support import NOW, batch, entries
from tests.support.examples import examples
from txbroker.cluster.follower_session import FollowerSession, Wanted
from txbroker.cluster.offset_lookup import LATEST_TIMESTAMP, list_offset
from txbroker.cluster.replica_fetcher import EARLY, EARLY_PAUSES
from txbroker.errors import BrokerError, ErrorCode
from txbroker.names import NULL_TOPIC_ID, TopicPartition
from txbroker.wire.messages.fetch import EpochEndOffset, FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData

VERSIONS = pytest.mark.parametrize("version", [12, 17])


@pytest.fixture
def group() -> Group:
    return Group()


def ends(group: Group) -> list[int]:
    return [broker.partition.log.log_end_offset for broker in group.brokers.values()]


def watermarks(group: Group) -> list[int]:
    return [broker.partition.high_watermark for broker in group.brokers.values()]


@VERSIONS
def test_followers_copy_the_log_and_learn_the_high_watermark_later(version: int) -> None:
    group = Group(version)
    one, two, three = group.brokers.values()
    one.produce(b"a", b"b")
    two.fetch()
    assert ends(group) == [2, 2, 0] and watermarks(group) == [0, 0, 0]
    two.fetch()
    three.fetch()
    three.fetch()
    assert watermarks(group) == [2, 0, 2], "the leader knows it from the fetch, a follower from the next answer"
    two.fetch()
    assert watermarks(group) == [2, 2, 2]
    assert one.content() == two.content() == three.content()
    assert list(two.partition.log.leader_epochs) == [(0, 0)]


def test_later_requests_of_a_session_name_only_what_changed(group: Group) -> None:
    one, two, _ = group.brokers.values()
    asked: list[FetchRequest] = []
    serve = one.serve
    one.serve = lambda request: asked.append(request) or serve(request)  # type: ignore[method-assign,func-returns-value,assignment]
    for _ in range(3):
        two.fetch()
    one.produce(b"a")
    two.fetch()
    two.fetch()
    named = [sum(len(topic.partitions) for topic in request.topics) for request in asked]
    assert named == [1, 0, 0, 0, 1]
    assert [request.session_epoch for request in asked] == [0, 1, 2, 3, 4]
    two.fetch(lose_answer=True)
    group.clock.advance(BACKOFF_S)
    two.fetch()
    assert (asked[-1].session_id, len(asked[-1].topics)) == (0, 1), "after a lost answer it is not known what the leader knows"


def test_a_leader_without_the_session_gets_everything_again(group: Group) -> None:
    one, two, _ = group.brokers.values()
    two.fetch()
    one.restart()
    one.deliver()
    one.produce(b"a")
    two.fetch()
    assert two.answers[-1].error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    two.fetch()
    assert ends(group)[1] == 1


def test_a_follower_with_a_full_disk_goes_on_when_there_is_space(group: Group) -> None:
    one, two, three = group.brokers.values()
    one.produce(b"a")
    group.settle()
    two.disk.capacity = two.disk.used
    one.produce(b"b")
    for _ in range(3):
        two.fetch()
        three.fetch()
        group.clock.advance(BACKOFF_S)
    assert ends(group) == [2, 1, 2]
    two.disk.capacity *= 2
    group.settle()
    assert one.content() == two.content() == three.content() and ends(group) == [2, 2, 2]


def test_a_follower_that_is_ahead_is_truncated_to_the_divergence(group: Group) -> None:
    one, two, three = group.brokers.values()
    one.produce(b"a")
    group.settle()
    one.produce(b"lost 1")
    one.produce(b"lost 2")
    one.up = False
    group.elect(2)
    group.deliver()
    two.produce(b"kept")
    group.settle()
    one.restart()
    group.settle()
    assert one.content() == two.content() == three.content() and ends(group) == [2, 2, 2]
    assert list(one.partition.log.leader_epochs) == [(0, 0), (1, 1)]


def test_a_restart_before_the_high_watermark_arrived_loses_nothing() -> None:
    """KIP-101: a follower that truncates to its own high watermark loses what was acknowledged, when it becomes leader right after it."""
    group = Group()
    one, two, three = group.brokers.values()
    three.up = False
    group.elect(1, (1, 2))
    group.deliver()
    one.produce(b"acknowledged")
    two.fetch()
    two.fetch()
    assert one.partition.high_watermark == 1
    two.restart(checkpoint=0)
    one.up = False
    group.elect(2, (2,))
    group.deliver()
    assert two.partition.log.log_end_offset == 1
    one.restart()
    group.settle()
    assert one.content() == two.content() and len(one.content()) == 1


def test_fast_leader_changes_need_several_answers(group: Group) -> None:
    """KIP-279: each leader writes in its own epoch, unknown to the others, and one question finds only a part of the divergence."""
    one, two, three = group.brokers.values()
    one.produce(b"common")
    group.settle()
    for round_ in range(3):
        for broker in (one, two):
            for other in (one, two, three):
                other.up = other is broker
            group.elect(broker.id, (broker.id,))
            group.deliver()
            broker.produce(b"%d of %d" % (round_, broker.id))
    one.up = three.up = True
    group.settle()
    assert one.content() == two.content() == three.content()
    assert list(one.partition.log.leader_epochs) == list(two.partition.log.leader_epochs)


def test_an_epoch_without_records_is_removed_where_the_leader_has_another(group: Group) -> None:
    one, two, _ = group.brokers.values()
    one.produce(b"a")
    group.settle()
    two.up = False
    group.elect(1)
    group.deliver()
    group.elect(1)
    group.deliver()
    two.up = True
    two.partition.lead(group.state._replace(leader=2, leader_epoch=1))  # it led in epoch 1 and wrote nothing
    group.elect(1)
    group.settle()
    one.produce(b"b")
    group.settle()
    assert one.content() == two.content()
    assert next(iter(one.partition.log.leader_epochs)) == (0, 0) and ends(group) == [2, 2, 2]


def test_an_answer_with_a_divergence_moves_nothing_else(group: Group) -> None:
    """KAFKA-13141, KAFKA-14704: the high watermark of such an answer is beyond records that are about to be removed."""
    two = group.brokers[2]
    group.brokers[1].produce(b"a", b"b", b"c")
    two.fetch()
    fetcher: Any = two._fetcher
    fetcher.next_request(17)
    topic_id = two.partition.log.topic_id
    data = PartitionData(partition_index=3, error_code=0, high_watermark=3, log_start_offset=2, records=b"",
                         diverging_epoch=EpochEndOffset(epoch=0, end_offset=2))  # fmt: skip
    fetcher.answered(FetchResponse(responses=[FetchableTopicResponse(topic_id=topic_id, partitions=[data])]))
    assert (two.partition.high_watermark, two.partition.log.log_start_offset) == (0, 0)


def test_a_log_that_ends_before_the_leaders_begins_is_emptied(group: Group) -> None:
    one, two, _ = group.brokers.values()
    two.up = False
    group.elect(1, (1, 3))
    group.deliver()
    for index in range(6):
        one.produce(b"%d" % index)
    group.settle()
    one.partition.delete_records(4)
    two.up = True
    group.settle()
    assert (two.partition.log.log_start_offset, two.partition.log.log_end_offset, two.partition.high_watermark) == (4, 6, 6)


def test_out_of_range_by_a_race_removes_nothing(group: Group) -> None:
    """KAFKA-2143: between the error and the question the leader's log has grown."""
    one, two, _ = group.brokers.values()
    one.produce(b"a", b"b")
    group.settle()
    fetcher: Any = two._fetcher
    fetcher.next_request(17)
    topic_id = two.partition.log.topic_id
    refused = PartitionData(partition_index=3, error_code=ErrorCode.OFFSET_OUT_OF_RANGE, high_watermark=-1, records=b"")
    fetcher.answered(FetchResponse(session_id=1, responses=[FetchableTopicResponse(topic_id=topic_id, partitions=[refused])]))
    one.produce(b"c")
    group.settle()
    assert ends(group) == [3, 3, 3] and two.content() == one.content()


@pytest.mark.parametrize(("code", "goes_on"), [
    (ErrorCode.NOT_LEADER_OR_FOLLOWER, True), (ErrorCode.UNKNOWN_LEADER_EPOCH, True), (ErrorCode.KAFKA_STORAGE_ERROR, True),
    (ErrorCode.UNKNOWN_TOPIC_ID, True), (ErrorCode.FENCED_LEADER_EPOCH, False), (9999, True),
])  # fmt: skip
def test_an_error_pauses_a_partition(group: Group, code: int, goes_on: bool) -> None:
    one, two, _ = group.brokers.values()
    one.produce(b"a")
    fetcher: Any = two._fetcher
    fetcher.next_request(17)
    failed = PartitionData(partition_index=3, error_code=code, high_watermark=-1, records=b"")
    topic = FetchableTopicResponse(topic_id=two.partition.log.topic_id, partitions=[failed])
    fetcher.answered(FetchResponse(responses=[topic]))
    assert fetcher.next_request(17) is None
    share = EARLY_PAUSES[0] if code in EARLY else 1
    assert fetcher.next_s() == (group.clock.seconds() + share * BACKOFF_S if goes_on else None)
    group.clock.advance(BACKOFF_S)
    assert two.fetch() is goes_on and ends(group)[1] == int(goes_on)


def test_an_answer_of_an_older_epoch_is_ignored(group: Group) -> None:
    one, two, three = group.brokers.values()
    one.produce(b"a")
    fetcher: Any = two._fetcher
    late = one.serve(fetcher.next_request(17).request)
    group.elect(3)
    group.deliver()
    fetcher.answered(late)
    assert ends(group)[1] == 0
    three.produce(b"b")
    group.settle()
    assert two.content() == three.content() and len(two.content()) == 1


def test_a_fence_for_an_older_epoch_does_not_end_the_fetching(group: Group) -> None:
    """KAFKA-9654: the controller's request with the new epoch came while the fetch was under way."""
    one, two, _ = group.brokers.values()
    fetcher: Any = two._fetcher
    fetcher.next_request(17)
    group.elect(1)
    group.deliver()
    two._fetcher = fetcher
    fetcher.follow(two.partition)
    fenced = PartitionData(partition_index=3, error_code=ErrorCode.FENCED_LEADER_EPOCH, high_watermark=-1, records=b"")
    topic = FetchableTopicResponse(topic_id=two.partition.log.topic_id, partitions=[fenced])
    fetcher.answered(FetchResponse(session_id=1, responses=[topic]))
    one.produce(b"a")
    group.settle()
    assert ends(group) == [1, 1, 1]


def test_an_emptied_log_leads_at_once(group: Group) -> None:
    """KAFKA-9491: log start, high watermark and recovery point have moved together."""
    one, two, _ = group.brokers.values()
    two.up = False
    group.elect(1, (1, 3))
    group.deliver()
    for index in range(6):
        one.produce(b"%d" % index)
    group.settle()
    one.partition.delete_records(6)
    two.up = True
    group.settle()
    log = two.partition.log
    assert log.log_start_offset == log.log_end_offset == two.partition.high_watermark == 6 >= log.recovery_point
    group.elect(2)
    group.deliver()
    two.produce(b"a")
    group.settle()
    assert ends(group) == [7, 7, 7] and watermarks(group) == [7, 7, 7]


def test_records_that_are_damaged_on_the_way_are_refused(group: Group, caplog: pytest.LogCaptureFixture) -> None:
    one, two, _ = group.brokers.values()
    one.produce(b"abcdefgh")
    fetcher: Any = two._fetcher
    response = one.serve(fetcher.next_request(17).request)
    data = response.responses[0].partitions[0]
    data.records = bytes(data.records).replace(b"abcdefgh", b"abcdefgx")
    fetcher.answered(response)
    assert ends(group)[1] == 0 and "what broker 1 sent for offset 0 is refused" in caplog.text
    group.clock.advance(BACKOFF_S)
    two.fetch()
    assert ends(group)[1] == 1


STEPS = st.one_of(
    st.tuples(st.just("produce"), st.sampled_from((1, 2, 3))),
    st.tuples(st.just("produce to the leader"), st.none()),
    st.tuples(st.just("fetch"), st.sampled_from((1, 2, 3))),
    st.tuples(st.just("fetch"), st.sampled_from((1, 2, 3))),
    st.tuples(st.just("lose an answer"), st.sampled_from((1, 2, 3))),
    st.tuples(st.just("stop"), st.sampled_from((1, 2, 3))),
    st.tuples(st.just("restart"), st.sampled_from((1, 2, 3))),
    st.tuples(st.just("deliver"), st.sampled_from((1, 2, 3))),
    st.tuples(st.just("elect"), st.sampled_from((1, 2, 3))),
    st.tuples(st.just("answer"), st.none()),
    st.tuples(st.just("a round of fetches"), st.none()),
    st.tuples(st.just("a round of fetches"), st.none()),
    st.tuples(st.just("elect and deliver"), st.sampled_from((1, 2, 3))),
    st.tuples(st.just("time"), st.sampled_from((0.5, LAG_S + 1))),
)


class History:
    """A group, what its leaders have acknowledged with acks=all, and the checks after each step."""

    def __init__(self) -> None:
        self.group = Group()
        self.acknowledged: dict[int, bytes] = {}  # by last offset
        self._waiting: list[tuple[Broker, int, int, bytes]] = []
        self._count = 0
        self._writers: dict[int, int] = {}  # the broker that appended in each leader epoch
        self._latest = (-1, -1)  # the newest leader epoch in which a leader was asked for the end, and its answer

    def step(self, what: str, which: Any) -> None:
        group = self.group
        broker = group.brokers.get(which)
        if what.startswith("produce"):
            self._produce(broker or group.leader)
        elif what == "answer":
            group.answer_proposals()
        elif what == "a round of fetches":
            group.deliver()
            for one in group.brokers.values():
                one.fetch()
        elif what == "time":
            group.clock.advance(which)
            for one in group.brokers.values():
                one.partition.check_followers()
        elif broker is not None and what in ("fetch", "lose an answer"):
            broker.fetch(lose_answer=what != "fetch")
        elif broker is not None and what == "deliver":
            broker.deliver()
        elif broker is not None and what == "stop":
            broker.up = False
        elif broker is not None and what == "restart":
            broker.restart(checkpoint=0)
        elif broker is not None and broker.up and broker.id in group.state.isr:
            group.elect(broker.id)  # a clean election
            if what == "elect and deliver":
                group.deliver()
        self.check()

    def _produce(self, broker: Broker) -> None:
        if not broker.up:
            return
        self._count += 1
        value = b"value %d" % self._count
        last = broker.produce(value)
        if last is not None:
            writer = self._writers.setdefault(broker.partition.leader_epoch, broker.id)
            assert writer == broker.id, "one broker appends in a leader epoch"
            self._waiting.append((broker, broker.partition.leader_epoch, last, value))

    def check(self) -> None:
        for broker, epoch, last, value in list(self._waiting):
            partition = broker.partition
            if not broker.up or not partition.is_leader or partition.leader_epoch != epoch:
                self._waiting.remove((broker, epoch, last, value))
            elif partition.acknowledged(last):
                self._waiting.remove((broker, epoch, last, value))
                assert self.acknowledged.setdefault(last, value) == value, "two records were acknowledged at one offset"
        for first in self.group.brokers.values():
            for second in self.group.brokers.values():
                end = min(first.partition.high_watermark, second.partition.high_watermark)
                assert first.content(end) == second.content(end), "below the smaller high watermark the logs are equal"
            self._check_epochs(first)
        self._check_leader()

    def _check_epochs(self, broker: Broker) -> None:
        log = broker.partition.log
        known = list(log.leader_epochs)
        assert known == sorted(known) and len({start for _, start in known}) == len(known), "epochs and their first offsets ascend"
        written: dict[int, int] = {}
        for header, _ in entries(log):
            written.setdefault(header.leader_epoch, header.base_offset)
        assert list(written) == sorted(written), "epochs of a log do not go back"
        without_records = [(epoch, start) for epoch, start in known if epoch not in written]
        assert sorted([*written.items(), *without_records]) == known
        assert all(start <= log.log_end_offset for _, start in without_records)

    def _check_leader(self) -> None:
        """The leader that the controller has chosen, once it knows: what it returns to clients, and its ISR."""
        group = self.group
        partition = group.leader.partition
        epoch = partition.leader_epoch
        if not group.leader.up or not partition.is_leader or epoch != group.state.leader_epoch:
            return
        assert all(group.brokers[member].partition.log.log_end_offset >= partition.high_watermark for member in group.state.isr), (
            "every in-sync replica has what is committed"
        )
        try:
            found = list_offset(partition, LATEST_TIMESTAMP, 0)
        except BrokerError as error:
            assert error.code == ErrorCode.OFFSET_NOT_AVAILABLE
            return
        assert found is not None and found.offset >= self._latest[1], f"the end was {self._latest}, and is {found.offset} in epoch {epoch}"
        self._latest = epoch, found.offset

    def finish(self) -> None:
        """Everything runs and settles: the logs are equal, and have what was acknowledged."""
        group = self.group
        for broker in group.brokers.values():
            if not broker.up:
                broker.restart(checkpoint=0)
        if group.state.leader not in group.state.isr:
            group.elect(group.state.isr[0])
        group.elect(group.state.leader)
        group.deliver()
        group.leader.produce(b"the last one")
        group.settle()
        one, two, three = group.brokers.values()
        assert one.content() == two.content() == three.content()
        assert len({tuple(broker.partition.log.leader_epochs) for broker in (one, two, three)}) == 1
        whole = b"".join(one.content())
        missing = [value for value in self.acknowledged.values() if value not in whole]
        assert not missing, "acknowledged records are lost"


@settings(max_examples=examples(150))
@given(st.lists(STEPS, min_size=30, max_size=60))
def test_random_histories_lose_nothing_that_was_acknowledged(steps: list[tuple[str, Any]]) -> None:
    history = History()
    for what, which in steps:
        history.step(what, which)
    history.finish()


def test_a_state_that_the_leader_has_confirmed_leaves_its_next_proposal() -> None:
    """The new ISR comes with the answer to AlterPartition and once more in a request; a proposal that was made in between still counts."""
    history = History()
    steps: list[tuple[str, Any]] = [("time", LAG_S + 1), ("answer", None), ("fetch", 2)]
    steps += [("produce", 1)] * 20 + [("a round of fetches", None), ("produce", 1), ("answer", None), ("elect", 2)]
    for what, which in steps:
        history.step(what, which)
    history.finish()


def test_an_append_of_batches_that_do_not_continue_the_log_is_refused(group: Group) -> None:
    one, two, _ = group.brokers.values()
    one.produce(b"a")
    two.fetch()
    with pytest.raises(Exception, match="ends at 1"):
        two.partition.replicate(batch(b"x"), high_watermark=0, log_start_offset=0, now_ms=NOW)


def test_a_session_uses_either_names_or_ids_of_topics() -> None:
    """A leader refuses a session's fetch that changes between them."""
    with_id = Wanted(b"i" * 16, 0, 0, -1, 0)
    without_id = with_id._replace(topic_id=NULL_TOPIC_ID)
    old, new = TopicPartition("old", 0), TopicPartition("new", 0)

    def fetch(session: FollowerSession) -> tuple[bool, int]:
        request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[])
        uses_ids = session.uses_ids
        session.fill(request, 1000)
        session.answered(request.session_id or 7)
        return uses_ids, request.session_id

    session = FollowerSession()
    session.want(new, with_id)
    assert [fetch(session), fetch(session)] == [(True, 0), (True, 7)]
    session.want(old, without_id)
    assert [fetch(session), fetch(session)] == [(False, 0), (False, 7)]
    session.drop(old)  # it pauses after an error, for example
    assert fetch(session) == (False, 7)
    session.want(old, without_id)
    assert fetch(session) == (False, 7)
    session.want(old, with_id)
    session.reset()
    assert fetch(session) == (True, 0)
