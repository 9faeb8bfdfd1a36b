"""What a follower does while its disk is full, and while its log is not synced yet."""

from __future__ import annotations

import errno

from tests.cluster.followed_host import BACKOFF_S, FollowedHost, named
from tests.support.fakes.faulty_disk import WRITES


def test_a_follower_goes_on_when_its_disk_is_no_longer_full() -> None:
    hosts = FollowedHost(1)
    hosts.leader.append(0)
    hosts.follower.disk.disk.fail(WRITES, error=errno.ENOSPC)
    hosts.fetch()
    assert hosts.ends() == [0]
    hosts.follower.disk.disk.repair()
    assert not hosts.fetch(), "the partition pauses"
    hosts.clock.advance(BACKOFF_S)
    hosts.fetch()
    assert hosts.ends() == [1], "it copies again, without a request of the controller"


def test_with_flush_messages_a_follower_says_that_it_has_records_when_they_are_synced() -> None:
    hosts = FollowedHost(1, flush_messages=1)
    hosts.leader.append(0)
    hosts.fetch()
    assert hosts.ends() == [1]
    assert not hosts.fetch(), "to the leader a fetch would say that the record is there"
    hosts.follower.disk.worker.run()
    assert hosts.fetch()
    assert hosts.asked[-1].topics[0].partitions[0].fetch_offset == 1


def test_without_a_fetch_session_a_follower_waits_for_its_sync_before_it_fetches() -> None:
    hosts = FollowedHost(2, flush_messages=1)
    hosts.room = False
    hosts.leader.append(0)
    hosts.fetch()
    assert hosts.ends() == [1, 0]
    assert not hosts.fetch(), "a fetch of partition 1 could wait at the leader, and none for partition 0 could be sent meanwhile"
    hosts.follower.disk.worker.run()
    assert hosts.fetch()
    assert named(hosts.asked[-1]) == [0, 1]


def test_a_follower_whose_log_is_not_synced_at_its_start_syncs_it() -> None:
    hosts = FollowedHost(1, flush_messages=1)
    hosts.leader.append(0)
    hosts.fetch()
    hosts.follower.disk.worker.waiting.clear()  # the process ended
    partition = hosts.follower.partition(0)
    partition._flushing = False
    hosts.follower.roles(epoch=1)
    hosts.leader.roles(epoch=1)
    hosts.fetcher.follow(partition)
    assert not hosts.fetch()
    hosts.follower.disk.worker.run()
    assert hosts.fetch()
