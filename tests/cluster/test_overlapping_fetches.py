"""Partitions that a follower gets while its fetch waits at the leader: a second fetch of the session asks for them at once."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from tests.api.lone_broker import no_quota
from tests.cluster.followed_host import BACKOFF_S, SETTINGS, forgotten, named, with_bytes
from tests.cluster.replica_host import OTHER, OWN, VERSION, WAIT_MS, ReplicaHost
from tests.log.support import NOW
from txbroker.client.client_errors import Closed
from txbroker.cluster.fetcher_loop import FetcherLoop
from txbroker.cluster.replica_fetcher import EARLY_PAUSES, ReplicaFetcher
from txbroker.wire.messages.fetch import FetchRequest
from txbroker.wire.schema import Request

PARTITIONS = 4


class Link:
    """A connection to the leader. `one_by_one`: the leader takes a request when it has answered the one before, as Apache Kafka does."""

    def __init__(self, leader: ReplicaHost, one_by_one: bool) -> None:
        self._leader = leader
        self._one_by_one = one_by_one
        self.requests: list[FetchRequest] = []
        self.in_flight: list[tuple[Any, Deferred[Any], list[Any]]] = []
        self._served = 0  # of these
        self.closed = False

    def connect(self) -> Deferred[None]:
        connecting: Deferred[None] = Deferred()
        self._leader.clock.callLater(0, connecting.callback, None)
        return connecting

    def version_of(self, request: type[Request]) -> int | None:
        return VERSION

    def send(self, request: Request, *, timeout_s: float | None = None, version_max: int | None = None) -> Deferred[Any]:
        answer: Deferred[Any] = Deferred()
        assert len(self.in_flight) < 2
        self.in_flight.append((request, answer, []))
        if isinstance(request, FetchRequest):
            self.requests.append(request)
        self.serve()
        return answer

    def serve(self) -> None:
        """Have the leader take requests."""
        while self._served < len(self.in_flight) and not (self._one_by_one and self._served and not self.in_flight[0][2]):
            request, _, answered = self.in_flight[self._served]
            self._served += 1
            version = VERSION if isinstance(request, FetchRequest) else 7
            self._leader.send(request, version, lambda response, answered=answered: answered.append(with_bytes(response)))

    def answer(self) -> bool:
        """Deliver the oldest response; False if there is none."""
        self.serve()
        if self.closed or not self.in_flight or not self.in_flight[0][2]:
            return False
        _, answer, (response,) = self.in_flight.pop(0)
        self._served -= 1
        answer.callback(response)
        self.serve()
        return True

    def lose(self) -> None:
        lost, self.in_flight, self._served = self.in_flight, [], 0
        for _, answer, _ in lost:
            answer.errback(Closed("the connection was lost"))

    def close(self) -> None:
        self.closed = True
        self.lose()


class Following:
    """Broker 2 with a loop that copies partitions of broker 1."""

    def __init__(self, *, one_by_one: bool = False) -> None:
        self.leader, self.follower = ReplicaHost(PARTITIONS), ReplicaHost(PARTITIONS, OTHER)
        self.follower.clock = clock = self.leader.clock
        self.links: list[Link] = []
        self.fetcher = ReplicaFetcher(
            OTHER, OWN, SETTINGS._replace(wait_max_ms=WAIT_MS), quota=no_quota(), broker_epoch=lambda: 100, monotonic_s=clock.seconds,
            now_ms=lambda: NOW,
        )  # fmt: skip

        def open_link() -> Link:
            self.links.append(Link(self.leader, one_by_one))
            return self.links[-1]

        self.loop = FetcherLoop(OWN, self.fetcher, open_link, clock, timeout_s=30, backoff_s=BACKOFF_S)

    @property
    def link(self) -> Link:
        return self.links[-1]

    def follow(self, *partitions: int) -> None:
        for index in partitions:
            self.fetcher.follow(self.follower.partition(index))
        self.loop.wake()

    def settle(self, seconds: float = 0) -> None:
        """Deliver what is answered without waiting, or within a time."""
        self.leader.clock.advance(seconds)
        self.leader.end_turn()
        self.leader.clock.advance(0)
        while self.links and self.link.answer():
            self.leader.end_turn()
            self.leader.clock.advance(0)

    def idle(self, *partitions: int) -> None:
        """Follow these, until a fetch waits at the leader."""
        self.follow(*partitions)
        for _ in range(6):
            self.settle()
        assert len(self.link.in_flight) == 1 and not self.link.in_flight[0][2]

    def ends(self, host: ReplicaHost) -> list[int]:
        return [host.partition(index).log.log_end_offset for index in range(PARTITIONS)]


def test_a_new_partition_is_fetched_at_once_while_a_fetch_waits() -> None:
    following = Following()
    following.idle(0, 1)
    before = len(following.link.requests)
    following.follow(2)
    following.settle()
    (request,) = following.link.requests[before:]
    assert named(request) == [2] and len(following.link.in_flight) == 1, "the leader has answered the fetch before it"
    assert request.session_epoch == following.link.requests[before - 1].session_epoch + 1
    following.leader.append(2)
    following.settle()
    assert following.ends(following.follower) == [0, 0, 1, 0]
    following.leader.append(0)
    following.settle()
    assert following.ends(following.follower) == [1, 0, 1, 0], "the partitions before it are fetched on"


def test_a_partition_whose_leader_learns_of_its_role_later_is_asked_for_again_soon() -> None:
    following = Following()
    following.follower.roles(epoch=1, only=(2,))
    following.idle(0)
    following.follow(2)
    following.settle()
    assert forgotten(following.link.requests[-1]) == [2], "it pauses"
    following.leader.roles(epoch=1, only=(2,))
    following.leader.append(2)
    following.settle(EARLY_PAUSES[0] * BACKOFF_S)
    assert following.ends(following.follower)[2] == 1


def test_the_first_pauses_are_short_and_end_while_another_fetch_waits() -> None:
    following = Following()
    following.follower.roles(epoch=1, only=(2,))
    following.idle(0)
    following.follow(2)
    asked = []
    for step in (*EARLY_PAUSES, 1, 1):
        following.settle()
        following.settle()
        before = len(following.link.requests)
        following.settle(0.99 * step * BACKOFF_S)
        assert not [request for request in following.link.requests[before:] if named(request) == [2]], "it still pauses"
        following.settle(0.011 * step * BACKOFF_S)
        asked += [request for request in following.link.requests[before:] if named(request) == [2]]
    assert len(asked) == len(EARLY_PAUSES) + 2


def test_a_leader_that_takes_one_request_after_the_other_gets_both() -> None:
    """As Apache Kafka: the second fetch is served when the first one is answered, and may bring the same records again."""
    following = Following(one_by_one=True)
    following.idle(0)
    following.follow(1, 2)
    following.settle()
    assert [named(request) for request, _, _ in following.link.in_flight] == [[], [1, 2]]
    following.follow(3)
    following.settle()
    assert len(following.link.in_flight) == 2, "no third one"
    following.leader.append(0, 1)
    for _ in range(6):
        following.settle()
    assert following.ends(following.follower) == [1, 1, 0, 0]
    assert len(following.links) == 1 and following.link.in_flight[-1][0].session_epoch > 1
    following.leader.append(3, 0)
    for _ in range(6):
        following.settle()
    assert following.ends(following.follower) == [2, 1, 0, 1]


@pytest.mark.parametrize("lost", ["session", "connection"])
def test_what_is_lost_with_two_fetches_in_flight_is_asked_for_again(lost: str) -> None:
    following = Following(one_by_one=True)
    following.idle(0)
    following.follow(1)
    following.settle()
    assert len(following.link.in_flight) == 2
    if lost == "session":
        following.leader.sessions.remove(following.link.requests[-1].session_id)
    else:
        following.link.lose()
    following.leader.append(0, 1)
    for _ in range(6):
        following.settle(BACKOFF_S)
    assert following.ends(following.follower)[:2] == [1, 1]
    assert len(following.links) == (2 if lost == "connection" else 1)


@pytest.mark.parametrize("one_by_one", [False, True])
@pytest.mark.parametrize("seed", range(15))
def test_any_order_of_records_partitions_losses_and_answers_ends_with_equal_logs(
    seed: int, one_by_one: bool, caplog: pytest.LogCaptureFixture
) -> None:
    random = Random(seed)
    following = Following(one_by_one=one_by_one)
    following.follow(0)
    for _ in range(150):
        index = random.randrange(PARTITIONS)
        step = random.choice(("append", "append", "follow", "follow", "forget", "settle", "answer", "answer", "time", "lose", "session"))
        if step == "append":
            following.leader.append(index)
        elif step == "follow":
            following.follow(index)
        elif step == "forget":
            following.fetcher.forget(following.follower.partition(index).topic_partition)
        elif step == "settle":
            following.settle()
        elif step == "answer" and following.links:
            following.link.answer()
            following.leader.clock.advance(0)
        elif step == "time":
            following.settle(random.choice((0.05, 0.5, 1.0)))
        elif step == "lose" and following.links and not random.randrange(4):
            following.link.lose()
        elif step == "session" and following.leader.sessions._sessions and not random.randrange(4):
            following.leader.sessions.remove(next(iter(following.leader.sessions._sessions)))
    following.follow(*range(PARTITIONS))
    for _ in range(20):
        following.settle(BACKOFF_S)
    assert following.ends(following.follower) == following.ends(following.leader)
    assert "internal error" not in caplog.text and "is refused" not in caplog.text
