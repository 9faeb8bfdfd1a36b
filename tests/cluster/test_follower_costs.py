"""A follower's requests and what they cost: only partitions that have changed are looked at and named."""

from __future__ import annotations

import pytest

from tests.cluster.followed_host import BACKOFF_S, FollowedHost, forgotten, named
from tests.cluster.replica_host import OTHER, OWN, THIRD
from txbroker.cluster import replica_fetcher
from txbroker.cluster.follower_session import FollowerSession, Wanted
from txbroker.names import TopicPartition
from txbroker.wire.messages.fetch import FetchRequest

MANY = 30


@pytest.fixture
def hosts() -> FollowedHost:
    hosts = FollowedHost(MANY)
    hosts.fetch()
    hosts.fetch()
    hosts.fetch()
    hosts.asked.clear()
    return hosts


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offsets of the partitions whose next request is computed."""
    noted: list[int] = []

    def noting(topic_id: bytes, leader_epoch: int, fetch_offset: int, *rest: int) -> Wanted:
        noted.append(fetch_offset)
        return Wanted(topic_id, leader_epoch, fetch_offset, *rest)

    monkeypatch.setattr(replica_fetcher, "Wanted", noting)
    return noted


def test_idle_partitions_cost_nothing(hosts: FollowedHost, looked_at: list[int]) -> None:
    for _ in range(3):
        hosts.fetch()
    assert looked_at == [] and [named(request) for request in hosts.asked] == [[], [], []]


def test_a_partition_with_records_is_named_once(hosts: FollowedHost, looked_at: list[int]) -> None:
    hosts.leader.append(7)
    for _ in range(4):
        hosts.fetch()
    assert [named(request) for request in hosts.asked] == [[], [7], [], []]
    assert set(looked_at) == {1} and hosts.ends()[7] == 1


def test_every_partition_is_named_again_after_a_lost_answer(hosts: FollowedHost) -> None:
    hosts.leader.append(7)
    hosts.fetch(lose_answer=True)
    assert not hosts.fetch()
    hosts.clock.advance(BACKOFF_S)
    hosts.fetch()
    assert named(hosts.asked[-1]) == list(range(MANY)) and hosts.ends()[7] == 1


def test_a_leader_without_room_for_a_session_is_asked_for_everything(hosts: FollowedHost) -> None:
    hosts.leader.sessions._slots = 0
    hosts.fetcher._session.reset()
    for end in (1, 2):
        hosts.leader.append(7)
        hosts.fetch()
        assert named(hosts.asked[-1]) == list(range(MANY)) and hosts.ends()[7] == end


def test_a_partition_with_an_error_leaves_the_session_and_returns(hosts: FollowedHost) -> None:
    hosts.leader.roles(leader=THIRD, epoch=1, only=(4,))
    hosts.fetch()
    hosts.leader.append(5)
    hosts.fetch()
    hosts.fetch()
    assert [forgotten(request) for request in hosts.asked] == [[], [4], []] and hosts.ends()[5] == 1
    hosts.leader.roles(leader=OWN, epoch=2, only=(4,))
    hosts.leader.append(4)
    hosts.follower.roles(leader=OWN, epoch=2, only=(4,))
    hosts.fetcher.follow(hosts.follower.partition(4))
    hosts.fetch()
    assert named(hosts.asked[-1]) == [4] and hosts.ends()[4] == 1


def test_a_new_leader_epoch_is_named(hosts: FollowedHost) -> None:
    for host in (hosts.leader, hosts.follower):
        host.roles(epoch=1, only=(3,))
    hosts.fetcher.follow(hosts.follower.partition(3))
    hosts.fetch()
    (topic,) = hosts.asked[-1].topics
    assert [(one.partition, one.current_leader_epoch) for one in topic.partitions] == [(3, 1)]


def test_a_partition_that_is_forgotten_leaves_the_session(hosts: FollowedHost) -> None:
    hosts.fetcher.forget(hosts.follower.partition(3).topic_partition)
    hosts.leader.append(3)
    hosts.fetch()
    hosts.fetch()
    assert forgotten(hosts.asked[0]) == [3] and hosts.ends()[3] == 0


def test_a_topic_that_was_created_again_is_another_one() -> None:
    session, name = FollowerSession(), TopicPartition("t", 3)
    ids = [bytes(15) + b"1", bytes(15) + b"2"]
    for epoch, topic_id in enumerate(ids):
        request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[])
        session.want(name, Wanted(topic_id, 0, 0, -1, 0))
        session.fill(request, 1000)
        session.answered(7)
        assert [(topic.topic_id, topic.partitions[0].partition) for topic in request.topics] == [(topic_id, 3)]
        assert [(gone.topic_id, gone.partitions) for gone in request.forgotten_topics_data] == ([(ids[0], [3])] if epoch else [])
        assert session.name_of("", topic_id, 3) == name
    assert session.name_of("", ids[0], 3) is None


def test_the_leader_learns_a_log_start_that_the_followers_retention_has_moved(hosts: FollowedHost) -> None:
    hosts.leader.append(2, 2)
    for _ in range(3):
        hosts.fetch()
    partition = hosts.follower.partition(2)
    partition.high_watermark = 2
    partition.log.advance_start(1)
    hosts.follower.fetchers.fetcher = hosts.fetcher
    partition.start_moved()
    hosts.fetch()
    assert named(hosts.asked[-1]) == [2]
    followers = hosts.leader.partition(2)._followers
    assert followers is not None
    state = followers.state(OTHER)
    assert state is not None and state.log_start_offset == 1
