"""The fetch sessions of followers at a leader: what they read, when a fetch that waits ends, and what the leader concludes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.cluster.replica_host import LAG_S, OTHER, OWN, THIRD, WAIT_MS, Fetching, ReplicaHost
from txbroker.cluster.local_replica import CONSUMER
from txbroker.errors import ErrorCode
from txbroker.purgatory import Purgatory

MANY = 40


@pytest.fixture
def host() -> ReplicaHost:
    return ReplicaHost(MANY)


def following(host: ReplicaHost, replica: int) -> Fetching:
    """A follower with a session of all partitions, which has nothing to read."""
    follower = Fetching(host, replica)
    follower.fetch({index: host.partition(index).log.log_end_offset for index in range(host.partitions)})
    follower.fetch()
    return follower


def reads(host: ReplicaHost) -> list[int]:
    """Notes the partitions that fetches read from now on."""
    noted: list[int] = []
    read: Callable[..., Any] = host.fetches.parts.partitions.read

    def noting(item: Any, *rest: Any) -> Any:
        noted.append(item.partition)
        return read(item, *rest)

    host.fetches.parts.partitions.read = noting  # type: ignore[method-assign,assignment]
    return noted


def test_a_fetch_reads_named_and_moved_partitions_only(host: ReplicaHost) -> None:
    follower = following(host, OTHER)
    noted = reads(host)
    assert follower.fetch() == [{}]
    assert noted == []
    host.append(3)
    (response,) = follower.fetch()
    assert list(response) == [3] and noted == [3]
    noted.clear()
    follower.fetch({3: 1})
    assert noted == [3]
    noted.clear()
    follower.fetch()
    assert noted == []


def test_a_fetch_that_waits_reads_what_moved_and_ends_with_records(host: ReplicaHost) -> None:
    follower = following(host, OTHER)
    noted = reads(host)
    waiting = follower.fetch(wait=True)
    host.append(5, 6)
    (response,) = waiting
    assert sorted(response) == [5, 6] and noted == [5, 6]


def test_a_new_high_watermark_does_not_end_the_wait_and_is_in_the_next_response(host: ReplicaHost) -> None:
    """KAFKA-9731: with an answer for each of them a leader and its followers would send one another small fetches all the time."""
    first, second = following(host, OTHER), following(host, THIRD)
    host.append(1)
    first.fetch()
    second.fetch()
    waiting = first.fetch({1: 1}, wait=True)
    noted = reads(host)
    second.fetch({1: 1})
    assert host.partition(1).high_watermark == 1
    assert waiting == [] and noted == [1], "only the fetch of the second follower reads"
    host.append(2)
    (response,) = waiting
    assert set(response) == {2}
    (response,) = first.fetch({2: 1})
    assert response[1].high_watermark == 1
    assert first.fetch() == [{}]


def test_the_end_of_the_wait_brings_new_high_watermarks(host: ReplicaHost) -> None:
    first, second = following(host, OTHER), following(host, THIRD)
    host.append(1)
    first.fetch()
    second.fetch()
    waiting = first.fetch({1: 1}, wait=True)
    second.fetch({1: 1})
    host.clock.advance(WAIT_MS / 1000)
    assert waiting[0][1].high_watermark == 1


def test_acks_all_takes_two_fetches_of_each_follower_and_no_time(host: ReplicaHost) -> None:
    first, second = following(host, OTHER), following(host, THIRD)
    waiting = [first.fetch(wait=True), second.fetch(wait=True)]
    produced = host.produce(b"a", index=7)
    assert [sorted(response) for (response,) in waiting] == [[7], [7]], "the first round trip: the records"
    assert produced == []
    waiting = [first.fetch({7: 1}, wait=True), second.fetch({7: 1}, wait=True)]
    assert produced[0].error_code == ErrorCode.NONE, "the second: the followers have them"
    assert waiting == [[], []] and host.clock.seconds() == 0


def test_a_new_log_start_ends_the_wait(host: ReplicaHost) -> None:
    host.append(4)
    for replica in (OTHER, THIRD):
        following(host, replica)
    follower = following(host, OTHER)
    waiting = follower.fetch(wait=True)
    host.partition(4).delete_records(1)
    host.end_turn()
    assert waiting[0][4].log_start_offset == 1


def test_a_follower_with_everything_stays_in_sync_however_long_nothing_happens(host: ReplicaHost) -> None:
    first, second = following(host, OTHER), following(host, THIRD)
    for _ in range(5):
        host.clock.advance(LAG_S)
        first.fetch()
        second.fetch()
    host.append(0)
    host.replicas.check_followers()
    assert host.isr_requests.proposed == [], "both had everything when they fetched last"
    host.clock.advance(LAG_S + 0.1)
    first.fetch({0: 1})
    host.replicas.check_followers()
    ((partition, proposal),) = host.isr_requests.proposed
    assert partition is host.partition(0) and proposal.members == {OWN, OTHER}


def test_the_time_begins_with_the_last_fetch_of_the_session(host: ReplicaHost) -> None:
    first = following(host, OTHER)
    following(host, THIRD)
    host.clock.advance(LAG_S / 2)
    first.fetch()
    host.clock.advance(LAG_S / 2 + 1)
    host.append(0)
    host.replicas.check_followers()
    ((_, proposal),) = host.isr_requests.proposed
    assert proposal.members == {OWN, OTHER}, "the third has not fetched for more than the limit"


def test_a_replica_that_has_everything_when_it_leaves_the_isr_joins_it_again(host: ReplicaHost) -> None:
    """Nothing moves after the change of the ISR: below min.insync.replicas nothing is appended until the replica has joined."""
    lagging, other = following(host, OTHER), following(host, THIRD)
    host.append(0)
    other.fetch({0: 1})
    host.clock.advance(LAG_S + 1)
    other.fetch({0: 1})
    partition = host.partition()
    partition.check_followers()
    ((_, proposal),) = host.isr_requests.proposed
    assert proposal.members == {OWN, THIRD}
    lagging.fetch({0: 1})  # the controller has not answered yet
    waiting = lagging.fetch(wait=True)
    partition.isr_confirmed(proposal, (OWN, THIRD), proposal.partition_epoch + 1)
    host.end_turn()
    host.clock.advance(WAIT_MS / 1000)
    assert waiting
    host.isr_requests.proposed.clear()
    lagging.fetch()
    ((_, proposal),) = host.isr_requests.proposed
    assert proposal.members == {OWN, OTHER, THIRD}
    noted = reads(host)
    partition.isr_refused(proposal)
    lagging.fetch()
    ((_, again),) = host.isr_requests.proposed[1:]
    assert again.members == {OWN, OTHER, THIRD} and noted == [0]
    partition.isr_confirmed(again, (OWN, OTHER, THIRD), again.partition_epoch + 1)
    lagging.fetch()
    noted.clear()
    lagging.fetch()
    assert noted == []


def test_a_partition_that_the_follower_forgets_is_not_refreshed_by_its_session(host: ReplicaHost) -> None:
    """For example because the follower's log directory failed: the session goes on without the partition."""
    first, second = following(host, OTHER), following(host, THIRD)
    second.fetch(forget=(0,))
    host.append(0)
    for _ in range(3):
        host.clock.advance(LAG_S / 2)
        first.fetch({0: 1})
        second.fetch()
    host.replicas.check_followers()
    ((_, proposal),) = host.isr_requests.proposed
    assert proposal.members == {OWN, OTHER}


def test_reading_again_after_the_wait_is_not_a_new_fetch(host: ReplicaHost) -> None:
    """A fetch shows where the follower's log ended when it was sent, not when the leader answers."""
    first = following(host, OTHER)
    following(host, THIRD)
    host.append(0)
    waiting = first.fetch({0: 1}, wait=True)
    host.clock.advance(0.4)
    host.append(0)
    assert waiting
    host.append(0)
    host.clock.advance(LAG_S - 0.4)
    first.fetch({0: 2})
    host.clock.advance(0.2)
    host.replicas.check_followers()
    ((_, proposal),) = host.isr_requests.proposed
    assert OTHER not in proposal.members, "it had everything when it sent the fetch that waited, and not since"


def test_another_client_of_a_session_reads_everything_again(host: ReplicaHost) -> None:
    follower = following(host, OTHER)
    other = Fetching(host, THIRD)
    other.session_id, other.session_epoch = follower.session_id, follower.session_epoch
    noted = reads(host)
    other.fetch()
    assert sorted(noted) == list(range(MANY))


def test_an_epoch_that_changes_in_a_session_is_fenced(host: ReplicaHost) -> None:
    """KAFKA-9338: the epoch of a partition that a request does not name is compared, too."""
    follower = Fetching(host, OTHER)
    follower.fetch({0: 0, 1: 0}, epoch=0)
    follower.fetch()
    waiting = follower.fetch(wait=True)
    host.roles(epoch=1, only=(1,))
    assert {index: data.error_code for index, data in waiting[0].items()} == {1: ErrorCode.FENCED_LEADER_EPOCH}
    assert {index: data.error_code for index, data in follower.fetch()[0].items()} == {1: ErrorCode.FENCED_LEADER_EPOCH}


def test_a_leader_that_resigns_ends_the_wait(host: ReplicaHost) -> None:
    follower = following(host, OTHER)
    waiting = follower.fetch(wait=True)
    host.roles(leader=THIRD, epoch=1, only=(2,))
    assert {index: data.error_code for index, data in waiting[0].items()} == {2: ErrorCode.NOT_LEADER_OR_FOLLOWER}


def test_fetches_of_consumers_that_wait_do_not_limit_those_of_followers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(Purgatory.__init__.__kwdefaults__, "parked_max", 1)
    host = ReplicaHost(1)
    consumers = [Fetching(host, CONSUMER) for _ in range(2)]
    waiting, refused = [consumer.fetch({0: 0}, wait=True, session=False) for consumer in consumers]
    assert (len(waiting), len(refused)) == (0, 1), "the second one gets an empty response at once"
    following_fetch = Fetching(host, OTHER).fetch({0: 0}, wait=True)
    assert following_fetch == []
    host.append(0)
    assert [list(response) for response in following_fetch] == [[0]]
