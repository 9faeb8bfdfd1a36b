"""KIP-73: replicas that are not in sync are sent, and fetched, below a rate."""

from __future__ import annotations

import pytest

from tests.cluster.followed_host import BACKOFF_S, FollowedHost, forgotten, named
from tests.cluster.replica_host import OTHER, OWN, THIRD, WAIT_MS, Fetching, ReplicaHost
from tests.log.support import batch
from txbroker.broker.replication import follower_quota, leader_quota
from txbroker.broker.settings import log_config
from txbroker.cluster.replication_quota import ReplicationQuota
from txbroker.config.resolve import BrokerConfig
from txbroker.config.topics import topic_settings

SIZE = len(batch(b"v"))
ALL = frozenset({"*"})


class Quota:
    """A quota of 100 bytes a second over four samples of a second."""

    def __init__(self) -> None:
        self.now_s = 50.0
        self.quota = ReplicationQuota(lambda: 100, lambda config: ALL, lambda: self.now_s, sample_count=4, sample_s=1)

    def after(self, seconds: float, size: int = 0) -> float:
        self.now_s += seconds
        if size:
            self.quota.record(size)
        return self.quota.rate


def test_the_rate_is_that_of_the_window() -> None:
    quota = Quota()
    assert quota.after(0) == 0 and not quota.quota.is_exceeded
    assert quota.after(0, 100) == 100 and not quota.quota.is_exceeded
    assert quota.after(0.5, 20) == 120 and quota.quota.is_exceeded, "less than a sample counts as one"
    assert quota.after(0.75, 18) == 138 / 1.25
    assert quota.after(0.75) == 138 / 2 and not quota.quota.is_exceeded
    assert quota.after(2.0) == 18 / 2.75, "the first sample is older than the window"
    assert quota.after(5.0) == 0


# The leader


@pytest.fixture
def host() -> ReplicaHost:
    """The third replica is in sync, the second is not. Nothing may be sent, but for what was sent before the quota was measured."""
    host = ReplicaHost(2)
    host.roles(epoch=1, isr=(OWN, THIRD))
    host.append(0, 1)
    host.throttled = ALL
    return host


def fetch(host: ReplicaHost, replica: int) -> int:
    return len(Fetching(host, replica).fetch({0: 0}, session=False)[0][0].records or b"")


def test_a_replica_that_is_not_in_sync_gets_nothing_above_the_rate(host: ReplicaHost) -> None:
    assert fetch(host, OTHER) == SIZE, "the rate is measured by what is sent"
    assert fetch(host, OTHER) == 0
    assert fetch(host, THIRD) == SIZE, "a replica in sync would leave the ISR"
    host.clock.advance(11)
    assert fetch(host, OTHER) == SIZE


@pytest.mark.parametrize(("throttled", "held_back"), [
    ({"*"}, True), ({f"0:{OWN}"}, True), ({f"1:{OWN}"}, False), ({f"0:{OTHER}"}, False), (set(), False),
])  # fmt: skip
def test_only_replicas_that_the_topic_names_are_held_back(host: ReplicaHost, throttled: set[str], held_back: bool) -> None:
    fetch(host, OTHER)
    host.throttled = frozenset(throttled)
    assert fetch(host, OTHER) == (0 if held_back else SIZE)


def test_consumers_are_not_throttled_and_do_not_count(host: ReplicaHost) -> None:
    Fetching(host, THIRD).fetch({0: 1})
    for _ in range(3):
        assert fetch(host, -1) == SIZE
    assert fetch(host, OTHER) == SIZE


def test_a_throttled_partition_does_not_end_the_wait_and_others_are_served(host: ReplicaHost) -> None:
    fetch(host, OTHER)
    follower = Fetching(host, OTHER)
    follower.fetch({0: 0, 1: 1})
    follower.fetch()
    waiting = follower.fetch(wait=True)
    host.append(0)
    assert waiting == []
    host.throttled = frozenset({f"0:{OWN}"})
    host.append(1)
    (response,) = waiting
    assert {index: len(data.records or b"") for index, data in response.items() if data.records} == {1: SIZE}
    waiting = follower.fetch({1: 2}, wait=True)
    host.rate_max = 10**6
    host.clock.advance(WAIT_MS / 1000)
    assert len(waiting[0][0].records or b"") == 2 * SIZE, "at the end of the wait the rate is looked at again"


# The follower

RECORDS = 60


@pytest.fixture
def hosts() -> FollowedHost:
    """A follower of three partitions, two of them throttled, that is far behind. It may receive nothing, once it has received something."""
    hosts = FollowedHost(3)
    hosts.throttled = frozenset({f"0:{OTHER}", f"1:{OTHER}"})
    hosts.leader.roles(epoch=1, isr=(OWN, THIRD))
    hosts.follower.roles(epoch=1)
    for index in range(3):
        hosts.fetcher.follow(hosts.follower.partition(index))
        for _ in range(RECORDS):
            hosts.leader.append(index)
        Fetching(hosts.leader, THIRD).fetch({index: RECORDS})
    hosts.fetch()
    assert 0 < max(hosts.ends()) < RECORDS and hosts.leader.partition().high_watermark == RECORDS
    return hosts


def test_throttled_partitions_leave_the_requests_until_the_rate_has_fallen(hosts: FollowedHost) -> None:
    before = hosts.ends()
    while hosts.ends()[2] < RECORDS:
        hosts.fetch()
        assert (named(hosts.asked[-1]), hosts.ends()[:2]) == ([2], before[:2])
    assert forgotten(hosts.asked[1]) == [0, 1]
    hosts.clock.advance(11)
    hosts.fetch()
    assert {0, 1} <= set(named(hosts.asked[-1]))
    assert all(end > start for end, start in zip(hosts.ends()[:2], before, strict=False))


def test_partitions_in_sync_are_not_held_back(hosts: FollowedHost) -> None:
    hosts.rate_max = 10**6
    while min(hosts.ends()) < RECORDS:
        hosts.fetch()
    hosts.rate_max = 0
    hosts.leader.append(0, 1)
    hosts.fetch()
    assert hosts.ends() == [RECORDS + 1, RECORDS + 1, RECORDS] and forgotten(hosts.asked[-1]) == []


def test_it_asks_again_after_the_back_off_when_all_partitions_are_held_back(hosts: FollowedHost) -> None:
    hosts.throttled = ALL
    assert not hosts.fetch() or not hosts.fetch()
    assert hosts.fetcher.next_s() == hosts.clock.seconds() + BACKOFF_S


def test_partitions_that_are_not_throttled_do_not_count(hosts: FollowedHost) -> None:
    hosts.throttled = frozenset()
    hosts.clock.advance(11)
    for _ in range(3):
        hosts.fetch()
    hosts.throttled = ALL
    assert min(hosts.ends()) < RECORDS and hosts.fetch()
    assert named(hosts.asked[-1]) == [0, 1, 2], "nothing was received that counts"


# Configuration


def test_the_rates_are_dynamic_and_unlimited_without_a_value() -> None:
    broker = BrokerConfig({})
    for direction, quota in (("leader", leader_quota(broker, lambda: 0.0)), ("follower", follower_quota(broker, lambda: 0.0))):
        quota.record(10**12)
        assert not quota.is_exceeded
        broker.set_dynamic({f"{direction}.replication.throttled.rate": "1000"}, {})
        assert quota.is_exceeded
        broker.set_dynamic({}, {})


def test_topics_name_the_replicas() -> None:
    topic = {"leader.replication.throttled.replicas": "0:1,1:2", "follower.replication.throttled.replicas": "*"}
    made = log_config(topic_settings(BrokerConfig({}), topic))
    assert made.leader_replication_throttled_replicas == {"0:1", "1:2"}
    assert made.follower_replication_throttled_replicas == ALL
