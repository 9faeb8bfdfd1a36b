"""The loop of a follower's fetcher: connecting, one request at a time, back-off, and partitions that come and go."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from tests.api.lone_broker import no_quota
from tests.cluster.replica_group import BACKOFF_S, SETTINGS, Broker, Group
from tests.log.support import NOW, PARTITION
from txbroker.client.client_errors import Closed, Unreachable
from txbroker.cluster.fetcher_loop import FetcherLoop, Link
from txbroker.cluster.fetchers import Fetchers
from txbroker.cluster.replica_fetcher import ReplicaFetcher
from txbroker.names import TopicPartition
from txbroker.wire.schema import Request


class LeaderLink:
    """A connection to a leader; the test says whether it can be connected, and when it answers."""

    def __init__(self, follower: Follower, leader: Broker) -> None:
        self._follower = follower
        self._leader = leader
        self.closed = False
        self.waiting: list[tuple[Request, Deferred[Any]]] = []
        follower.links.append(self)

    def connect(self) -> Deferred[None]:
        connecting: Deferred[None] = Deferred()
        clock = self._follower.group.clock
        if self._leader.up:
            clock.callLater(0, connecting.callback, None)
        else:
            clock.callLater(0, connecting.errback, Unreachable("leader", "refused"))
        return connecting

    def version_of(self, request: type[Request]) -> int | None:
        return self._follower.version

    def send(self, request: Request, *, timeout_s: float | None = None, version_max: int | None = None) -> Deferred[Any]:
        assert not self.waiting, "one request at a time"
        answer: Deferred[Any] = Deferred()
        self.waiting.append((request, answer))
        return answer

    def close(self) -> None:
        self.closed = True

    def answer(self) -> None:
        request, answer = self.waiting.pop()
        answer.callback(self._leader.serve(request))  # type: ignore[arg-type]


class Follower:
    """Broker 2 of a group, whose partition a loop copies."""

    def __init__(self) -> None:
        self.group = Group()
        self.links: list[LeaderLink] = []
        self.version = 17
        self.known = True
        self.fetchers = Fetchers(self._loop)
        self.partition = self.group.brokers[2].partition
        self.fetchers.follow(self.partition)
        self.turn()

    def _loop(self, leader_id: int) -> FetcherLoop:
        clock = self.group.clock
        fetcher = ReplicaFetcher(
            2, leader_id, SETTINGS, quota=no_quota(), broker_epoch=lambda: 100, monotonic_s=clock.seconds, now_ms=lambda: NOW
        )

        def open_link() -> Link | None:
            return LeaderLink(self, self.group.brokers[leader_id]) if self.known else None

        return FetcherLoop(leader_id, fetcher, open_link, clock, timeout_s=30, backoff_s=BACKOFF_S)

    def turn(self, seconds: float = 0) -> None:
        self.group.clock.advance(seconds)
        self.group.clock.advance(0)
        self.group.clock.advance(0)

    @property
    def end(self) -> int:
        return self.partition.log.log_end_offset


@pytest.fixture
def follower() -> Follower:
    return Follower()


def test_a_loop_connects_and_fetches_again_and_again(follower: Follower) -> None:
    (link,) = follower.links
    for count in range(1, 4):
        follower.group.brokers[1].produce(b"%d" % count)
        link.answer()
        assert follower.end == count
        follower.turn()
    assert len(link.waiting) == 1


def test_a_lost_connection_is_made_again_after_the_back_off(follower: Follower, caplog: pytest.LogCaptureFixture) -> None:
    link = follower.links[0]
    leader = follower.group.brokers[1]
    leader.up = False
    link.waiting.pop()[1].errback(Closed("it closed the connection"))
    for _ in range(4):
        follower.turn(BACKOFF_S)
    assert link.closed and len(follower.links) == 5, "an attempt after each back-off"
    assert caplog.text.count("cannot fetch from broker 1") == 1
    leader.up = True
    leader.produce(b"a")
    follower.turn(BACKOFF_S)
    follower.links[-1].answer()
    assert follower.end == 1


def test_a_leader_whose_address_is_not_known_yet() -> None:
    follower = Follower.__new__(Follower)
    follower.known = False
    follower.__dict__.update(group=Group(), links=[], version=17)
    follower.fetchers = Fetchers(follower._loop)
    follower.partition = follower.group.brokers[2].partition
    follower.fetchers.follow(follower.partition)
    follower.turn()
    assert follower.links == []
    follower.known = True
    follower.turn(BACKOFF_S)
    assert len(follower.links) == 1 and follower.links[0].waiting


def test_a_leader_that_is_too_old(follower: Follower, caplog: pytest.LogCaptureFixture) -> None:
    follower.links[0].answer()
    follower.version = 11
    follower.turn()
    assert follower.links[0].closed and "its versions of Fetch end at 11, and replication needs 12" in caplog.text


def test_a_pause_of_all_partitions_ends_by_itself(follower: Follower) -> None:
    link = follower.links[0]
    leader = follower.group.brokers[1]
    leader.partition.follow(leader.partition.state._replace(leader=3))
    link.answer()
    follower.turn()
    assert not link.waiting and not link.closed
    follower.turn(BACKOFF_S)
    assert len(link.waiting) == 1


def test_a_response_that_cannot_be_applied_does_not_end_the_loop(
    follower: Follower, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (link,) = follower.links
    follower.group.brokers[1].produce(b"a")

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a defect")

    with monkeypatch.context() as patch:
        patch.setattr(ReplicaFetcher, "answered", broken)
        link.answer()
    follower.turn()
    assert not link.waiting and "a response of broker 1 could not be applied" in caplog.text
    follower.turn(BACKOFF_S)
    link.answer()
    assert follower.end == 1


def test_a_new_leader_gets_a_loop_of_its_own_and_the_old_one_ends(follower: Follower) -> None:
    group = follower.group
    group.elect(3)
    group.deliver()
    follower.fetchers.follow(follower.partition)
    follower.turn()
    old, new = follower.links
    assert old.closed
    old.waiting.pop()[1].errback(Closed("it was closed"))  # as a connection does that is closed
    group.brokers[3].produce(b"a")
    new.answer()
    assert follower.end == 1
    follower.fetchers.forget(PARTITION)
    assert new.closed
    follower.turn(10)
    assert len(follower.links) == 2


def test_a_loop_lives_as_long_as_a_partition_that_its_leader_has_fenced_follows_the_leader() -> None:
    follower = Follower()
    follower.known = False
    fenced: Any = SimpleNamespace(topic_partition=TopicPartition("fenced", 0), leader_epoch=0, state=SimpleNamespace(leader=1))
    follower.fetchers.follow(fenced)
    loop = follower.fetchers._loops[1]
    loop.fetcher.forget(fenced.topic_partition)  # what it does by itself for FENCED_LEADER_EPOCH
    follower.fetchers.forget(follower.partition.topic_partition)
    follower.fetchers.moved(fenced.topic_partition)
    assert follower.fetchers._loops == {1: loop}
    fenced.state.leader = 3
    follower.fetchers.follow(fenced)
    assert list(follower.fetchers._loops) == [3]
    assert len(follower.fetchers._loops[3].fetcher) == 1
    follower.fetchers.forget(fenced.topic_partition)
    assert not follower.fetchers._loops


def test_nothing_happens_after_the_stop(follower: Follower) -> None:
    (link,) = follower.links
    follower.fetchers.stop()
    assert link.closed
    link.waiting.pop()[1].errback(Closed("it was closed"))
    follower.turn(10)
    assert len(follower.links) == 1 and not follower.group.clock.getDelayedCalls()


def test_partitions_that_a_leader_has_fenced_are_followed_and_forgotten_like_others(follower: Follower) -> None:
    second = Group().brokers[2].partition
    second.topic_partition = TopicPartition("u", 0)
    follower.fetchers.follow(second)
    loop = follower.fetchers._loops[1]
    for name in (PARTITION, second.topic_partition):
        loop.fetcher.forget(name)  # as it does after FENCED_LEADER_EPOCH in the present epoch
    for name in (PARTITION, second.topic_partition):
        follower.fetchers.moved(name)
        follower.fetchers.forget(name)
    assert follower.links[0].closed
    follower.fetchers.follow(follower.partition)
    follower.turn()
    assert len(follower.links) == 2 and follower.links[1].waiting


def test_a_broker_that_leaves_copies_nothing_from_a_new_leader(follower: Follower) -> None:
    follower.fetchers.leave()
    follower.turn()
    (link,) = follower.links
    assert link.waiting and not link.closed, "what it copies already may go on"
    follower.partition.follow(follower.partition.state._replace(leader=3, leader_epoch=1))
    follower.fetchers.follow(follower.partition)
    follower.turn()
    assert link.closed and len(follower.links) == 1


@pytest.mark.parametrize("what", ["next_request", "connect"])
def test_a_request_that_cannot_be_made_is_made_after_the_back_off(
    what: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def defect(*_: object, **__: object) -> None:
        raise KeyError("a defect")

    with monkeypatch.context() as patch:
        patch.setattr(ReplicaFetcher if what == "next_request" else LeaderLink, what, defect)
        follower = Follower()
        follower.turn()
        assert "internal error: cannot make the next request to broker 1, retrying in" in caplog.text
    follower.group.brokers[1].produce(b"a")
    for _ in range(8):
        follower.turn(BACKOFF_S)
        if follower.links[-1].waiting:
            follower.links[-1].answer()
    assert follower.end == 1
