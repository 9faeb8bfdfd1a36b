"""KIP-392: a leader names the replica that is near to a consumer, and followers serve consumers up to their high watermark."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.replica_host import OTHER, OWN, THIRD, Fetching, ReplicaHost
from tests.log.support import NOW, batch
from txbroker.cluster.local_replica import CONSUMER
from txbroker.errors import ErrorCode

HERE, NEAR = "here", "near"


@pytest.fixture
def host() -> ReplicaHost:
    """A leader in the rack `here`, its followers in the rack `near`; all have both records."""
    host = ReplicaHost()
    host.alive = {OWN: HERE, OTHER: NEAR, THIRD: NEAR}
    host.update_metadata()
    host.append(0, 0)
    followed(host, 2)
    return host


def followed(host: ReplicaHost, offset: int, *replicas: int) -> None:
    for replica in replicas or (OTHER, THIRD):
        Fetching(host, replica).fetch({0: offset})


def read(host: ReplicaHost, rack: str = NEAR, *, offset: int = 0, version: int = 17, session: bool = True, wait: bool = False) -> Any:
    """The answer for the partition; None while the fetch waits."""
    answers = Fetching(host, CONSUMER, rack=rack, version=version).fetch({0: offset}, wait=wait, session=session)
    return answers[0][0] if answers else None


@pytest.mark.parametrize("session", [False, True])
@pytest.mark.parametrize("version", [11, 12, 17])
def test_the_leader_names_a_replica_in_the_consumers_rack_and_sends_no_records(host: ReplicaHost, version: int, session: bool) -> None:
    answer = read(host, version=version, session=session)
    assert (answer.error_code, answer.preferred_read_replica, bytes(answer.records)) == (0, THIRD, b"")
    assert (answer.high_watermark, answer.log_start_offset) == (2, 0)


@pytest.mark.parametrize("session", [False, True])
@pytest.mark.parametrize("rack", ["", HERE, "nowhere"])
def test_it_serves_consumers_without_a_near_replica(host: ReplicaHost, rack: str, session: bool) -> None:
    answer = read(host, rack, session=session)
    assert answer.preferred_read_replica == -1 and len(answer.records)


def test_a_replica_is_named_at_once_although_there_is_nothing_to_read(host: ReplicaHost) -> None:
    """KAFKA-13767: the consumer would wait for its first records twice."""
    assert read(host, offset=2, wait=True).preferred_read_replica == THIRD


def test_an_incremental_response_names_the_replica_again(host: ReplicaHost) -> None:
    consumer = Fetching(host, CONSUMER, rack=NEAR)
    consumer.fetch({0: 2})
    for _ in range(2):
        assert consumer.fetch()[0][0].preferred_read_replica == THIRD


def test_the_replica_with_more_records_is_named_then_the_one_that_was_caught_up_later(host: ReplicaHost) -> None:
    host.append(0)
    followed(host, 3, OTHER)
    assert read(host).preferred_read_replica == OTHER
    followed(host, 3, THIRD)
    host.clock.advance(1)
    followed(host, 3, OTHER)
    assert read(host).preferred_read_replica == OTHER


def test_only_replicas_count_that_are_in_sync_and_have_the_offset(host: ReplicaHost) -> None:
    host.append(0)
    followed(host, 3, OTHER)
    assert read(host, offset=3).preferred_read_replica == OTHER, "the third ends before the offset"
    host.roles(isr=(OWN, THIRD))
    assert read(host, offset=3).preferred_read_replica == -1, "KAFKA-14372: a replica that lags would be named again and again"
    assert read(host, offset=2).preferred_read_replica == THIRD
    del host.alive[THIRD]
    host.update_metadata()
    assert read(host, offset=2).preferred_read_replica == -1


def test_a_replica_whose_log_begins_later_does_not_count(host: ReplicaHost) -> None:
    Fetching(host, OTHER).fetch({0: 2}, log_start=1)
    Fetching(host, THIRD).fetch({0: 2}, log_start=1)
    assert read(host, offset=0).preferred_read_replica == -1
    assert read(host, offset=1).preferred_read_replica == THIRD


def test_fetches_of_followers_are_not_sent_elsewhere(host: ReplicaHost) -> None:
    answer = Fetching(host, OTHER, rack=NEAR).fetch({0: 0})[0][0]
    assert answer.preferred_read_replica == -1 and answer.records


# At a follower


@pytest.fixture
def follower() -> ReplicaHost:
    """A follower with three records, two of which are committed as far as it knows."""
    host = ReplicaHost()
    host.roles(leader=OTHER, epoch=1)
    for index in range(3):
        replicate(host, batch(b"%d" % index, base_offset=index, leader_epoch=1), 2)
    return host


def replicate(host: ReplicaHost, records: memoryview, high_watermark: int, log_start_offset: int = 0) -> None:
    host.partition().replicate(records, high_watermark=high_watermark, log_start_offset=log_start_offset, now_ms=NOW)
    host.end_turn()


@pytest.mark.parametrize("session", [False, True])
def test_a_follower_serves_consumers_up_to_its_high_watermark(follower: ReplicaHost, session: bool) -> None:
    answer = read(follower, session=session)
    assert (answer.error_code, answer.high_watermark, answer.preferred_read_replica) == (0, 2, -1)
    assert len(answer.records) == 2 * len(batch(b"0"))
    above = read(follower, offset=3, session=session)
    assert (above.error_code, len(above.records)) == (0, 0), "the record is there, but perhaps not committed"
    assert read(follower, offset=4, session=session).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_its_log_start_is_a_limit(follower: ReplicaHost) -> None:
    replicate(follower, memoryview(b""), 2, log_start_offset=1)
    assert read(follower, offset=0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("session", [False, True])
def test_a_consumer_that_waits_at_a_follower_gets_what_becomes_committed(follower: ReplicaHost, session: bool) -> None:
    consumer = Fetching(follower, CONSUMER)
    if session:
        consumer.fetch({0: 2})
    waiting = consumer.fetch({0: 2}, wait=True, session=session)
    replicate(follower, batch(b"4", base_offset=3, leader_epoch=1), 2)
    assert waiting == [], "nothing new is committed"
    replicate(follower, memoryview(b""), 3)
    assert len(waiting[0][0].records or b"") == len(batch(b"0"))


@pytest.mark.parametrize("session", [False, True])
def test_old_versions_read_from_leaders_only(follower: ReplicaHost, session: bool) -> None:
    assert read(follower, "", version=10, session=session).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("session", [False, True])
@pytest.mark.parametrize(("epoch", "code"), [
    (-1, ErrorCode.NONE), (0, ErrorCode.FENCED_LEADER_EPOCH), (1, ErrorCode.NONE), (2, ErrorCode.UNKNOWN_LEADER_EPOCH),
])  # fmt: skip
def test_a_follower_compares_the_leader_epoch(follower: ReplicaHost, epoch: int, code: ErrorCode, session: bool) -> None:
    answer = Fetching(follower, CONSUMER).fetch({0: 0}, epoch=epoch, session=session)[0][0]
    assert answer.error_code == code


def test_a_follower_is_no_source_for_replicas(follower: ReplicaHost) -> None:
    answer = Fetching(follower, THIRD).fetch({0: 0})[0][0]
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (OTHER, 1)


def test_an_uncommitted_tail_of_a_former_leader_stays_invisible(host: ReplicaHost) -> None:
    """KAFKA-14704: the new leader's high watermark is beyond records that the former leader has and will remove."""
    host.append(0, 0)
    host.roles(leader=OTHER, epoch=1)
    partition = host.partition()
    assert (partition.log.log_end_offset, partition.high_watermark) == (4, 2)
    assert len(read(host, offset=2).records) == 0
    partition.truncate_to(2)
    replicate(host, batch(b"x", b"y", b"z", base_offset=2, leader_epoch=1), 5)
    assert b"x" in bytes(read(host, offset=2).records)
