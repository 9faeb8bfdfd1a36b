"""acks=all at a leader with followers: when it is acknowledged, and why it fails."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.replica_host import LAG_S, OTHER, OWN, THIRD, Fetching, ReplicaHost
from tests.log.support import NOW, batch
from txbroker.errors import ErrorCode

E = ErrorCode


@pytest.fixture
def host() -> ReplicaHost:
    return ReplicaHost(min_insync_replicas=2)


def codes(answered: list[Any]) -> list[ErrorCode]:
    return [ErrorCode(answer.error_code) for answer in answered]


def fetch(host: ReplicaHost, offset: int, *replicas: int) -> None:
    for replica in replicas:
        Fetching(host, replica).fetch({0: offset})


def confirm(host: ReplicaHost, *isr: int, partition_epoch: int = 1) -> None:
    """The controller writes the ISR that the leader has proposed."""
    (partition, proposal), host.isr_requests.proposed = host.isr_requests.proposed[-1], []
    assert proposal.members == set(isr)
    partition.isr_confirmed(proposal, isr, partition_epoch)
    host.end_turn()


def lagging(host: ReplicaHost) -> list[Any]:
    """A produce request for which only the third replica is missing, which lags for too long."""
    produced = host.produce(b"a")
    fetch(host, 1, OTHER)
    host.clock.advance(LAG_S + 1)
    fetch(host, 1, OTHER)
    host.replicas.check_followers()
    host.end_turn()
    assert produced == []
    return produced


def test_every_member_of_the_isr_has_the_records(host: ReplicaHost) -> None:
    produced = host.produce(b"a")
    fetch(host, 1, OTHER)
    assert produced == []
    fetch(host, 1, THIRD)
    assert codes(produced) == [E.NONE]


def test_a_smaller_isr_counts_once_the_controller_has_written_it(host: ReplicaHost) -> None:
    """KAFKA-13091: nothing but the answer ends the wait then."""
    produced = lagging(host)
    assert host.isr_requests.proposed and produced == []
    confirm(host, OWN, OTHER)
    assert codes(produced) == [E.NONE]


def test_a_refused_isr_changes_nothing(host: ReplicaHost) -> None:
    produced = lagging(host)
    ((partition, proposal),) = host.isr_requests.proposed
    partition.isr_refused(proposal)
    host.end_turn()
    assert produced == []
    fetch(host, 1, THIRD)
    assert codes(produced) == [E.NONE]


def test_a_replica_that_is_about_to_join_counts_already(host: ReplicaHost) -> None:
    host.roles(epoch=1, isr=(OWN, OTHER))
    fetch(host, 0, THIRD)
    produced = host.produce(b"a")
    fetch(host, 1, OTHER)
    assert produced == [], "the controller may have written the larger ISR"
    confirm(host, OWN, OTHER, THIRD, partition_epoch=5)
    assert produced == []
    fetch(host, 1, THIRD)
    assert codes(produced) == [E.NONE]


def test_a_replica_that_was_about_to_join_does_not_count_when_its_broker_has_stopped(host: ReplicaHost) -> None:
    """It has fetched from this leader after it left the ISR. Nothing but the end of its broker ends the wait then."""
    host.roles(epoch=1, isr=(OWN, OTHER))
    fetch(host, 0, THIRD)
    ((partition, proposal),) = host.isr_requests.proposed
    partition.isr_refused(proposal)
    produced = host.produce(b"a")
    fetch(host, 1, OTHER)
    assert produced == []
    del host.alive[THIRD]
    host.update_metadata()
    assert codes(produced) == [E.NONE]


def test_too_few_replicas_refuse_the_append(host: ReplicaHost) -> None:
    host.roles(epoch=1, isr=(OWN,))
    assert codes(host.produce(b"a")) == [E.NOT_ENOUGH_REPLICAS]
    assert host.partition().log.log_end_offset == 0
    assert codes(host.produce(b"a", acks=1)) == [E.NONE]


def test_too_few_replicas_after_the_append(host: ReplicaHost) -> None:
    host.roles(epoch=1, isr=(OWN, OTHER))
    produced = host.produce(b"a")
    host.clock.advance(LAG_S + 1)
    host.replicas.check_followers()
    host.end_turn()
    assert produced == []
    confirm(host, OWN, partition_epoch=5)
    assert codes(produced) == [E.NOT_ENOUGH_REPLICAS_AFTER_APPEND], "the record stays, and may survive"
    assert host.partition().high_watermark == 1


def test_a_produce_that_waits_fails_when_leadership_changes(host: ReplicaHost) -> None:
    """It is not acknowledged by the high watermark that the new leader sends: its offsets may belong to other records there."""
    produced = host.produce(b"a")
    host.roles(leader=OTHER, epoch=1)
    assert codes(produced) == [E.NOT_LEADER_OR_FOLLOWER]


def test_a_produce_waits_on_in_a_new_leader_epoch_of_the_same_leader(host: ReplicaHost) -> None:
    """As with Kafka's DelayedProduce. Nothing counts that followers have fetched in an earlier epoch."""
    produced = host.produce(b"a")
    fetch(host, 1, OTHER)
    host.roles(epoch=1)
    assert produced == []
    host.roles(epoch=3, isr=(OWN, THIRD))
    fetch(host, 0, THIRD)
    assert produced == []
    fetch(host, 1, THIRD)
    assert codes(produced) == [E.NONE]


def test_a_produce_in_a_new_leader_epoch_of_the_same_leader_with_too_few_replicas(host: ReplicaHost) -> None:
    produced = host.produce(b"a")
    host.roles(epoch=1, isr=(OWN,))
    assert codes(produced) == [E.NOT_ENOUGH_REPLICAS_AFTER_APPEND]


@pytest.mark.parametrize("again", [OWN, OTHER])
def test_a_change_of_leadership_and_a_new_high_watermark_in_one_turn(host: ReplicaHost, again: int) -> None:
    produced = host.produce(b"a")
    state = host.partition().state
    host.partition().follow(state._replace(leader=OTHER, leader_epoch=1, partition_epoch=7))
    host.partition().truncate_to(0)
    host.partition().replicate(batch(b"b", leader_epoch=1), high_watermark=1, log_start_offset=0, now_ms=NOW)
    if again == OWN:
        host.partition().lead(state._replace(leader=OWN, leader_epoch=2, partition_epoch=8))
    host.end_turn()
    assert codes(produced) == [E.NOT_LEADER_OR_FOLLOWER]


def test_the_timeout_ends_the_wait(host: ReplicaHost) -> None:
    produced = host.produce(b"a", timeout_ms=1500)
    host.clock.advance(1.5)
    assert codes(produced) == [E.REQUEST_TIMED_OUT]


def test_a_replica_that_reads_old_segments_does_not_delay_those_in_sync() -> None:
    """It does not count, and its bytes are sent from files: nothing is read on the way."""
    host = ReplicaHost(segment_bytes=500)
    host.roles(epoch=1, isr=(OWN, OTHER))
    for _ in range(40):
        host.append(0)
        host.partition().log.flush()
    fetch(host, 40, OTHER)
    assert len(host.partition().log.segments) > 3
    produced = host.produce(b"a")
    behind = Fetching(host, THIRD)
    for offset in range(0, 40, 5):
        assert len(behind.fetch({0: offset}, bytes_max=200)[0][0].records or b"") > 0
    assert produced == []
    fetch(host, 41, OTHER)
    assert codes(produced) == [E.NONE]
