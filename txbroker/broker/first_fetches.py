"""Shortens the time in which a new leader waits for the first fetches of its followers.

A new leader's high watermark stays where it is until every in-sync follower has fetched in the new leader epoch. A follower names the
partition in its next request to that broker, and its last one may wait there for replica.fetch.wait.max.ms. In Apache Kafka producers with
acks=all, ListOffsets (OFFSET_NOT_AVAILABLE) and here the group coordinator, which loads up to the high watermark, wait as long. This
broker ends the waiting fetches of such followers instead, a few times, since a follower may know its new leader later than the leader does.
"""

from __future__ import annotations

from txbroker.api.fetch_sessions import FetchSessions
from txbroker.clock import Clock, DelayedCall
from txbroker.cluster.partition import Partition
from txbroker.purgatory import Purgatory

FIRST_S = 0.01
INTERVAL_S = 0.025
LIMIT_S = 1.0  # a follower in the ISR may be dead


class FirstFetches:
    """`fetches`: the waiting fetches."""

    def __init__(self, clock: Clock, sessions: FetchSessions, fetches: Purgatory) -> None:
        self._clock = clock
        self._sessions = sessions
        self._fetches = fetches
        self._expected: dict[Partition, float] = {}  # with the end of LIMIT_S
        self._timer: DelayedCall | None = None

    def expect(self, partition: Partition) -> None:
        """This broker leads the partition in a new leader epoch."""
        if partition.not_fetched_by():
            self._expected[partition] = self._clock.seconds() + LIMIT_S
            if self._timer is None:
                self._timer = self._clock.callLater(FIRST_S, self._check)

    def stop(self) -> None:
        """Cancel the timer."""
        self._expected.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        self._timer = None
        now_s = self._clock.seconds()
        followers: set[int] = set()
        for partition, ends_s in list(self._expected.items()):
            missing = partition.not_fetched_by()
            if missing and now_s < ends_s:
                followers.update(missing)
            else:
                del self._expected[partition]
        for session in self._sessions.of_replicas(followers):
            session.end_wait()
            self._fetches.check(session)
        if self._expected:
            self._timer = self._clock.callLater(INTERVAL_S, self._check)
