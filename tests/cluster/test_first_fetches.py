"""A new leader ends the waiting fetches of its followers, until each in-sync one has fetched the partition in the new leader epoch."""

from __future__ import annotations

import pytest

from tests.cluster.replica_host import OTHER, OWN, THIRD, WAIT_MS, Fetching, ReplicaHost
from txbroker.broker.first_fetches import INTERVAL_S, LIMIT_S
from txbroker.errors import ErrorCode

LED_BEFORE, NEW = 0, 1


@pytest.fixture
def host() -> ReplicaHost:
    """The leader of the first partition only; no follower has fetched the other one yet."""
    host = ReplicaHost(2)
    host.clock.advance(2 * LIMIT_S)
    host.roles(leader=THIRD, epoch=1, only=(NEW,))
    return host


def following(host: ReplicaHost, replica: int) -> Fetching:
    """A follower with a session of the first partition."""
    follower = Fetching(host, replica)
    follower.fetch({LED_BEFORE: 0})
    follower.fetch()
    return follower


def test_fetches_that_wait_end_until_every_follower_has_fetched(host: ReplicaHost) -> None:
    first, second = following(host, OTHER), following(host, THIRD)
    waiting = [first.fetch(wait=True), second.fetch(wait=True)]
    host.roles(leader=OWN, epoch=2, only=(NEW,))
    assert host.partition(NEW).not_fetched_by() == [OTHER, THIRD]
    host.clock.advance(INTERVAL_S)
    assert waiting == [[{}], [{}]]

    produced = host.produce(b"a", index=NEW)
    first.fetch({NEW: 0})
    first.fetch({NEW: 1})
    waiting = [first.fetch(wait=True), second.fetch(wait=True)]
    host.clock.advance(INTERVAL_S)
    assert waiting == [[], [{}]], "one of them has not heard of its new leader before"
    second.fetch({NEW: 0})
    second.fetch({NEW: 1})
    assert produced[0].error_code == ErrorCode.NONE
    assert host.clock.seconds() - 2 * LIMIT_S < WAIT_MS / 1000

    waiting = [second.fetch(wait=True)]
    host.clock.advance(2 * INTERVAL_S)
    assert waiting == [[]]


def test_the_leader_stops_after_a_second(host: ReplicaHost) -> None:
    first = following(host, OTHER)
    host.roles(leader=OWN, epoch=2, only=(NEW,))
    host.clock.pump([INTERVAL_S] * int(LIMIT_S / INTERVAL_S + 3))
    waiting = first.fetch(wait=True)
    host.clock.advance(INTERVAL_S)
    assert waiting == [] and host.partition(NEW).not_fetched_by() == [OTHER, THIRD]


def test_followers_out_of_sync_are_not_waited_for(host: ReplicaHost) -> None:
    first = following(host, OTHER)
    waiting = first.fetch(wait=True)
    host.roles(leader=OWN, epoch=2, isr=(OWN,), only=(NEW,))
    host.clock.advance(INTERVAL_S)
    assert waiting == []
