"""DeleteRecords waits until the logs of all live replicas begin at the offset (KIP-107)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.replica_host import OTHER, OWN, THIRD, TOPIC, Fetching, ReplicaHost
from txbroker.errors import ErrorCode
from txbroker.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic

TIMEOUT_MS = 3000


@pytest.fixture
def host() -> ReplicaHost:
    """A leader of two partitions with three committed records each."""
    host = ReplicaHost(2)
    for index in (0, 1):
        host.append(index, index, index)
        followed(host, 0, index=index)
    return host


def followed(host: ReplicaHost, log_start: int, *replicas: int, index: int = 0) -> None:
    for replica in replicas or (OTHER, THIRD):
        Fetching(host, replica).fetch({index: 3}, log_start=log_start)


def delete(host: ReplicaHost, offset: int, *indexes: int, timeout_ms: int = TIMEOUT_MS) -> list[list[tuple[int, ErrorCode]]]:
    """The list has the low watermarks and errors once there is a response."""

    def seen(response: Any) -> list[tuple[int, ErrorCode]]:
        return [(one.low_watermark, ErrorCode(one.error_code)) for one in response.topics[0].partitions]

    wanted = [DeleteRecordsPartition(partition_index=index, offset=offset) for index in indexes or (0,)]
    return host.send(DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=TOPIC, partitions=wanted)], timeout_ms=timeout_ms), 2, seen)


def test_it_waits_for_all_replicas(host: ReplicaHost) -> None:
    answered = delete(host, 2)
    assert host.partition().log.log_start_offset == 2
    followed(host, 2, OTHER)
    assert answered == []
    followed(host, 1, THIRD)
    assert answered == []
    followed(host, 2, THIRD)
    assert answered == [[(2, ErrorCode.NONE)]]


def test_a_fetch_that_waits_brings_the_new_start_to_the_follower_at_once(host: ReplicaHost) -> None:
    followers = [Fetching(host, replica) for replica in (OTHER, THIRD)]
    for follower in followers:
        follower.fetch({0: 3})
        follower.fetch()
    waiting = [follower.fetch(wait=True) for follower in followers]
    answered = delete(host, 2)
    for (response,), follower in zip(waiting, followers, strict=True):
        assert response[0].log_start_offset == 2
        follower.fetch({0: 3}, log_start=2, wait=True)
    assert answered == [[(2, ErrorCode.NONE)]] and host.clock.seconds() == 0


def test_every_partition_of_a_request_has_to_be_done(host: ReplicaHost) -> None:
    answered = delete(host, -1, 0, 1)
    followed(host, 3, index=1)
    assert answered == []
    followed(host, 3, index=0)
    assert answered == [[(3, ErrorCode.NONE), (3, ErrorCode.NONE)]]


def test_nothing_waits_where_all_logs_begin_later_already(host: ReplicaHost) -> None:
    host.partition().delete_records(2)
    followed(host, 2)
    assert delete(host, 1) == [[(2, ErrorCode.NONE)]]


def test_the_timeout_ends_the_wait(host: ReplicaHost) -> None:
    answered = delete(host, 2, 0, 1)
    followed(host, 2, index=1)
    followed(host, 1, OTHER)
    host.clock.advance(TIMEOUT_MS / 1000)
    assert answered == [[(0, ErrorCode.REQUEST_TIMED_OUT), (2, ErrorCode.NONE)]]
    assert delete(host, 2, timeout_ms=0) == [[(0, ErrorCode.REQUEST_TIMED_OUT)]]


def test_replicas_that_are_not_alive_do_not_count(host: ReplicaHost) -> None:
    answered = delete(host, 2)
    followed(host, 2, OTHER)
    del host.alive[THIRD]
    host.update_metadata()
    followed(host, 2, OTHER)
    assert delete(host, 2) == [[(2, ErrorCode.NONE)]]
    host.clock.advance(TIMEOUT_MS / 1000)
    assert answered == [[(2, ErrorCode.NONE)]]


def test_a_leader_that_resigns_ends_the_wait(host: ReplicaHost) -> None:
    answered = delete(host, 2, 0, 1)
    followed(host, 2, index=1)
    host.roles(leader=OTHER, epoch=1, only=(0,))
    assert answered == [[(-1, ErrorCode.NOT_LEADER_OR_FOLLOWER), (2, ErrorCode.NONE)]]


def test_errors_are_answered_with_the_partitions_that_wait(host: ReplicaHost) -> None:
    answered = delete(host, 2, 0, 7)
    assert answered == []
    followed(host, 2)
    assert answered == [[(2, ErrorCode.NONE), (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]]
    assert delete(host, 4) == [[(-1, ErrorCode.OFFSET_OUT_OF_RANGE)]]


def test_a_new_leader_waits_until_it_knows_its_followers(host: ReplicaHost) -> None:
    host.partition().delete_records(2)
    followed(host, 2)
    host.roles(epoch=1, isr=(OWN, OTHER, THIRD))
    answered = delete(host, 1)
    assert answered == [], "no follower has sent its log start yet"
    followed(host, 2)
    assert answered == [[(2, ErrorCode.NONE)]]
