"""The queues of markers on their own, with leaders that answer as a test says."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from twisted.internet.task import Clock

from tests.transactions.coordinator_harness import ONE, P0, P1, Q0, TWO, Leaders
from txbroker.client.client_errors import Closed
from txbroker.names import TopicPartition
from txbroker.transactions.marker_queues import RETRY_S, MarkerQueues, Markers, Unroutable


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


def with_a_request_in_flight(done: list[TopicPartition]) -> tuple[Clock, Leaders, MarkerQueues]:
    """The leader of P0 has not answered yet; `done` gets the partition when it has."""
    clock, leaders = Clock(), Leaders()
    queues = MarkerQueues(clock, leaders.leader, leaders.channel)
    leaders.hold = True
    queues.send(markers_of(1, done.extend), [P0])
    return clock, leaders, queues


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


def test_cancelled_markers_are_not_sent_again_whatever_became_of_their_request() -> None:
    for fails in (False, True):
        clock, leaders = Clock(), Leaders()
        queues = MarkerQueues(clock, leaders.leader, leaders.channel)
        done: list[TopicPartition] = []
        leaders.hold = True
        leaders.of[P1] = Unroutable.NO_LEADER
        in_flight, waiting = markers_of(1, done.extend), markers_of(2, done.extend)
        queues.send(in_flight, [P0, P1])
        queues.send(waiting, [P0])
        assert (len(queues), queues.unsent_count) == (2, 1)
        queues.cancel(in_flight)
        queues.cancel(waiting)
        assert (len(queues), queues.unsent_count) == (0, 0)
        ((answer, request),) = leaders.held
        if fails:
            answer.errback(Closed("lost"))
        else:
            answer.callback(leaders.answer(request))
        clock.advance(10 * RETRY_S)
        assert len(leaders.sent) == 1 and done == [] and len(queues) == 0


def test_only_markers_of_partitions_with_another_leader_move() -> None:
    clock, leaders = Clock(), Leaders()
    queues = MarkerQueues(clock, leaders.leader, leaders.channel)
    done: list[TopicPartition] = []
    leaders.hold = True
    queues.send(markers_of(1, done.extend), [Q0])
    queues.send(markers_of(2, done.extend), [P0])
    queues.send(markers_of(3, done.extend), [P0, P1])
    leaders.of[P1] = TWO
    queues.leaders_changed({ONE, TWO})
    while leaders.held:
        leaders.release()
    to_each = [
        (destination.broker_id, topic.name, topic.partition_indexes)
        for destination, request in leaders.sent
        for marker in request.markers
        for topic in marker.topics
    ]
    assert sorted(to_each) == [(1, "p", [0]), (1, "p", [0]), (2, "p", [1]), (2, "q", [0])]
    assert sorted(done) == [P0, P0, P1, Q0]


def test_the_channel_to_a_live_broker_stays_open_and_one_with_a_request_until_its_answer() -> None:
    clock, leaders = Clock(), Leaders()
    queues = MarkerQueues(clock, leaders.leader, leaders.channel)
    done: list[TopicPartition] = []
    queues.send(markers_of(1, done.extend), [P0])
    queues.leaders_changed({ONE, TWO})
    assert leaders.open == [ONE], "it is live, and has nothing to send"
    leaders.hold = True
    queues.send(markers_of(2, done.extend), [P0])
    queues.leaders_changed({TWO})
    assert leaders.open == [ONE], "its request has no answer yet, and its partition no other leader"
    leaders.release()
    queues.leaders_changed({TWO})
    assert leaders.open == [] and done == [P0, P0]


def test_nothing_is_sent_again_once_the_queues_have_stopped(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "txbroker.transactions")
    done: list[TopicPartition] = []
    clock, leaders, queues = with_a_request_in_flight(done)
    queues.send(markers_of(2, done.extend), [P0])
    queues.stop()
    assert not done and not leaders.open and clock.getDelayedCalls() == [] and len(queues) == 0
    assert "are sent again" not in caplog.text


def test_a_request_that_fails_is_sent_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "txbroker.transactions")
    done: list[TopicPartition] = []
    clock, leaders, _ = with_a_request_in_flight(done)
    leaders.held.pop()[0].errback(Closed("lost"))
    assert caplog.messages == ["markers are sent again: lost"]
    clock.advance(RETRY_S)
    leaders.release()
    assert done == [P0] and len(leaders.sent) == 2


@pytest.mark.parametrize(
    ("count", "text"), [(1, "d-0"), (5, "d-0, d-1, d-2, d-3, d-4"), (6, "d-0, d-1, d-2, d-3, d-4 and 1 more")]
)  # fmt: skip
def test_the_log_names_the_first_deleted_partitions(count: int, text: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "txbroker.transactions")
    leaders = Leaders()
    queues = MarkerQueues(Clock(), leaders.leader, leaders.channel)
    queues.send(markers_of(1, lambda partitions: None), [TopicPartition("d", index) for index in range(count)])
    assert caplog.messages == [f"transactional id t-1: no marker for partitions that are deleted: {text}"]
