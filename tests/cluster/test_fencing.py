"""What a broker refuses or ignores because it comes from another leader epoch, or from an earlier start of a replica's broker."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.replica_host import OTHER, OWN, THIRD, TOPIC, Fetching, ReplicaHost
from tests.log.support import NOW
from txbroker.cluster.followers import FollowerState
from txbroker.cluster.local_replica import CONSUMER
from txbroker.cluster.offset_lookup import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP
from txbroker.errors import ErrorCode
from txbroker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from txbroker.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic

E = ErrorCode
EPOCH = 3
DEBUGGING = -2


@pytest.fixture
def host() -> ReplicaHost:
    host = ReplicaHost()
    host.roles(epoch=EPOCH)
    return host


def list_offset(host: ReplicaHost, timestamp: int = LATEST_TIMESTAMP, *, epoch: int = -1, replica: int = CONSUMER, version: int = 9,
                isolation: int = 0) -> Any:  # fmt: skip
    wanted = ListOffsetsPartition(partition_index=0, current_leader_epoch=epoch, timestamp=timestamp)
    topic = ListOffsetsTopic(name=TOPIC, partitions=[wanted])
    request = ListOffsetsRequest(replica_id=replica, isolation_level=isolation, topics=[topic])
    return host.send(request, version, lambda response: response.topics[0].partitions[0])[0]


def end_of_epoch(host: ReplicaHost, epoch: int, asked: int = EPOCH, replica: int = CONSUMER) -> Any:
    wanted = OffsetForLeaderPartition(partition=0, current_leader_epoch=epoch, leader_epoch=asked)
    request = OffsetForLeaderEpochRequest(replica_id=replica, topics=[OffsetForLeaderTopic(topic=TOPIC, partitions=[wanted])])
    return host.send(request, 4, lambda response: response.topics[0].partitions[0])[0]


def fetch(host: ReplicaHost, epoch: int, replica: int, version: int = 17) -> Any:
    return Fetching(host, replica, version=version).fetch({0: 0}, epoch=epoch)[0][0]


REQUESTS: dict[str, Any] = {"Fetch": fetch, "ListOffsets": lambda host, epoch, replica: list_offset(host, epoch=epoch, replica=replica),
            "OffsetForLeaderEpoch": lambda host, epoch, replica: end_of_epoch(host, epoch, replica=replica)}  # fmt: skip
LEADING = {-1: E.NONE, EPOCH - 1: E.FENCED_LEADER_EPOCH, EPOCH: E.NONE, EPOCH + 1: E.UNKNOWN_LEADER_EPOCH}


@pytest.mark.parametrize("replica", [CONSUMER, OTHER])
@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("epoch", LEADING)
def test_a_leader_serves_its_own_epoch(host: ReplicaHost, name: str, epoch: int, replica: int) -> None:
    assert REQUESTS[name](host, epoch, replica).error_code == LEADING[epoch]


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("epoch", LEADING)
def test_a_follower_compares_the_epoch_first(host: ReplicaHost, name: str, epoch: int) -> None:
    """KAFKA-14078: a client that knows of the new leader must not take this one for a stranger, and one that does not must learn it."""
    host.roles(leader=OTHER, epoch=EPOCH + 1)
    moved = {-1: E.NOT_LEADER_OR_FOLLOWER, EPOCH + 1: E.NOT_LEADER_OR_FOLLOWER}
    assert REQUESTS[name](host, epoch, THIRD).error_code == moved.get(epoch, E.FENCED_LEADER_EPOCH)


def test_the_debugging_replica_id_gets_the_end_of_any_log_in_its_epoch(host: ReplicaHost) -> None:
    host.append(0)
    assert list_offset(host, replica=DEBUGGING).offset == 1
    host.roles(leader=OTHER, epoch=EPOCH + 1)
    assert list_offset(host, replica=DEBUGGING).offset == 1
    assert list_offset(host, replica=DEBUGGING, epoch=EPOCH).error_code == E.FENCED_LEADER_EPOCH


def test_a_broker_that_is_no_replica_is_refused_after_the_epoch_was_compared(host: ReplicaHost) -> None:
    assert fetch(host, EPOCH - 1, 9).error_code == E.FENCED_LEADER_EPOCH
    assert fetch(host, EPOCH, 9).error_code == E.NOT_LEADER_OR_FOLLOWER


def test_an_epoch_that_diverges_is_answered_from_v12_on(host: ReplicaHost) -> None:
    host.append(0, 0)
    host.roles(epoch=EPOCH + 1)
    host.append(0)
    answer = Fetching(host, OTHER, version=12).fetch({0: 3}, last_epoch=EPOCH)[0][0]
    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset, answer.records) == (EPOCH, 2, b"")
    assert state(host, OTHER).end_offset == -1, "KAFKA-13141: it shows nothing of the follower's log"


def test_below_the_log_start_an_offset_is_out_of_range_and_not_divergent(host: ReplicaHost) -> None:
    host.append(0, 0)
    settle(host, 2)
    host.roles(epoch=EPOCH + 1)
    host.partition().delete_records(1)
    answer = Fetching(host, OTHER).fetch({0: 0}, last_epoch=EPOCH + 5)[0][0]
    assert answer.error_code == E.OFFSET_OUT_OF_RANGE


# Broker epochs


def state(host: ReplicaHost, replica: int) -> FollowerState:
    followers = host.partition()._followers
    assert followers is not None
    found = followers.state(replica)
    assert found is not None
    return found


def settle(host: ReplicaHost, offset: int) -> None:
    for replica in (OTHER, THIRD):
        Fetching(host, replica).fetch({0: offset})


def test_a_fetch_from_before_a_restart_shows_nothing(host: ReplicaHost) -> None:
    """KAFKA-15221: it was sent by a broker that has lost the end of its log since."""
    host.append(0, 0)
    Fetching(host, THIRD, broker_epoch=70).fetch({0: 2})
    before, after = Fetching(host, OTHER, broker_epoch=50), Fetching(host, OTHER, broker_epoch=51)
    after.fetch({0: 1})
    before.fetch({0: 2})
    assert (state(host, OTHER).end_offset, host.partition().high_watermark) == (1, 1)


def test_a_replica_joins_with_the_epoch_of_its_fetch(host: ReplicaHost) -> None:
    host.roles(epoch=EPOCH + 1, isr=(OWN,))
    Fetching(host, OTHER, broker_epoch=50).fetch({0: 0})
    ((_, proposal),) = host.isr_requests.proposed
    assert proposal.isr == ((OWN, -1), (OTHER, 50))


def test_a_replica_whose_broker_is_not_alive_does_not_join(host: ReplicaHost) -> None:
    host.roles(epoch=EPOCH + 1, isr=(OWN,))
    del host.alive[OTHER]
    host.update_metadata()
    Fetching(host, OTHER, broker_epoch=50).fetch({0: 0})
    assert host.isr_requests.proposed == []


# KIP-207


@pytest.fixture
def elected(host: ReplicaHost) -> ReplicaHost:
    """A new leader with two records, of which it knows one to be committed."""
    host.append(0, 0)
    Fetching(host, OTHER).fetch({0: 1})
    Fetching(host, THIRD).fetch({0: 2})
    host.roles(epoch=EPOCH + 1)
    assert host.partition().high_watermark == 1
    return host


@pytest.mark.parametrize("isolation", [0, 1])
@pytest.mark.parametrize("timestamp", [LATEST_TIMESTAMP, MAX_TIMESTAMP + 10**15, NOW + 1])
def test_a_new_leader_does_not_know_the_end_until_its_epoch_is_committed(elected: ReplicaHost, timestamp: int, isolation: int) -> None:
    assert list_offset(elected, timestamp, isolation=isolation).error_code == E.OFFSET_NOT_AVAILABLE
    assert list_offset(elected, timestamp, isolation=isolation, version=4).error_code == E.LEADER_NOT_AVAILABLE
    settle(elected, 2)
    found = list_offset(elected, timestamp, isolation=isolation)
    assert (found.error_code, found.offset) == (0, 2 if timestamp == LATEST_TIMESTAMP else -1)


def test_it_knows_what_is_below_the_high_watermark(elected: ReplicaHost) -> None:
    assert list_offset(elected, EARLIEST_TIMESTAMP).offset == 0
    assert list_offset(elected, NOW).offset == 0
    assert list_offset(elected, replica=OTHER).offset == 2, "a replica gets the end of the log"
