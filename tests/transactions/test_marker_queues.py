"""The queues of markers on their own, with leaders that answer as a test says."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from twisted.internet.task import Clock

from tests.transactions.coordinator_harness import P0, P1, Q0, Leaders
from txbroker.names import TopicPartition
from txbroker.transactions.marker_queues import RETRY_S, MarkerQueues, Markers


def markers_of(producer_id: int, marked: Callable[[Iterable[TopicPartition]], None]) -> Markers:
    return Markers(
        transactional_id=f"t-{producer_id}",
        producer_id=producer_id,
        producer_epoch=0,
        committed=True,
        coordinator_epoch=0,
        version=0,
        marked=marked,
    )


def test_an_internal_error_for_one_transaction_does_not_lose_the_markers_of_others(caplog: Any) -> None:
    clock, leaders = Clock(), Leaders()
    queues = MarkerQueues(clock, leaders.leader, leaders.channel)
    has_failed: list[bool] = []
    done: list[TopicPartition] = []

    def fails_once(partitions: Iterable[TopicPartition]) -> None:
        if not has_failed:
            has_failed.append(True)
            raise RuntimeError("injected")
        done.extend(partitions)

    leaders.hold = True
    queues.send(markers_of(1, done.extend), [P0])  # in flight, so that the next two are in one request
    queues.send(markers_of(2, fails_once), [P1])
    queues.send(markers_of(3, done.extend), [P0, Q0])
    leaders.hold = False
    while leaders.held:
        leaders.release()
    assert has_failed
    assert sorted(done) == [P0, P0, Q0]
    assert "t-2" in caplog.text
    assert len(queues) == 1
    clock.advance(RETRY_S)
    assert sorted(done) == [P0, P0, P1, Q0]
    assert len(queues) == 0
