"""Runs the fetchers of this broker: a connection to each leader, and one request at a time on it.

A fetch waits at the leader until one of its partitions has records. A partition that comes meanwhile, at the creation of a topic or after
an election, is not in it. A second fetch of the same session, with the next session epoch, asks for it then: a leader that is a txbroker
answers the first one at once (`api/fetch.py`). Apache Kafka's leaders take the second one when they have answered the first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from txbroker.clock import Clock, DelayedCall
from txbroker.cluster.replica_fetcher import DIVERGENCE_VERSION, ReplicaFetcher
from txbroker.names import TopicPartition
from txbroker.wire.messages.fetch import FetchRequest
from txbroker.wire.schema import Request

log = logging.getLogger("txbroker.cluster.fetcher")

IN_FLIGHT_MAX = 2  # a fetch that waits, and one for new partitions


class Link(Protocol):
    """A connection to a broker (`client/twisted_connection.py`)."""

    def connect(self) -> Deferred[None]:
        """Fires when requests can be sent."""

    def version_of(self, request: type[Request]) -> int | None:
        """The newest version that both sides have; None without one."""

    def send(self, request: Request, *, timeout_s: float | None = None, version_max: int | None = None) -> Deferred[Any]:
        """Fires with the response."""

    def close(self) -> None:
        """End it."""


class FetcherLoop:
    """One leader. `open_link` makes a connection that is not connected yet; None while the leader's address is not known."""

    def __init__(
        self,
        leader_id: int,
        fetcher: ReplicaFetcher,
        open_link: Callable[[], Link | None],
        clock: Clock,
        *,
        timeout_s: float,
        backoff_s: float,
    ) -> None:
        """`timeout_s`: replica.socket.timeout.ms. `backoff_s`: replica.fetch.backoff.ms."""
        self.fetcher = fetcher
        self._leader_id = leader_id
        self._open_link = open_link
        self._clock = clock
        self._timeout_s = timeout_s
        self._backoff_s = backoff_s
        self._link: Link | None = None
        self._timer: DelayedCall | None = None
        self._connecting = False
        self._in_flight = 0  # requests without a response
        self._fetches = False  # what is in flight are fetches
        self._stopped = False
        self._lost_logged = False

    def wake(self) -> None:
        """There is a partition to be copied that was not there before."""
        self._later(0)

    def moved(self, topic_partition: TopicPartition) -> None:
        """The log of a partition has moved, or is synced, which the next request for it may have waited for."""
        self.fetcher.touch(topic_partition)
        if self._link is not None and self.fetcher.holds(topic_partition):
            self._later(0)

    def stop(self) -> None:
        """Fetch no longer."""
        self._stopped = True
        self._cancel()
        if self._link is not None:
            self._link.close()
            self._link = None

    def _later(self, delay_s: float) -> None:
        self._cancel()
        if not self._stopped:
            self._timer = self._clock.callLater(delay_s, self._next)

    def _cancel(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None

    def _next(self) -> None:
        """Connect, or send the next request; wait where there is nothing to ask."""
        try:
            self._connect_or_fetch()
        except Exception:
            log.exception("internal error: cannot make the next request to broker %d, retrying in %.1f s", self._leader_id, self._backoff_s)
            self._later(self._backoff_s)

    def _connect_or_fetch(self) -> None:
        self._cancel()
        overlaps = self._fetches and 0 < self._in_flight < IN_FLIGHT_MAX
        if self._stopped or self._connecting or (self._in_flight and not overlaps):
            return
        link = self._link
        if link is None:
            self._connect()
            return
        version = link.version_of(FetchRequest)
        if version is None or version < DIVERGENCE_VERSION:
            self._lost(f"its versions of Fetch end at {version}, and replication needs {DIVERGENCE_VERSION}; upgrade it")
            return
        asked = self.fetcher.next_request(version, overlaps=overlaps)
        if asked is not None:
            answer = link.send(asked.request, timeout_s=self._timeout_s, version_max=asked.version)
            self._in_flight += 1
            self._fetches = isinstance(asked.request, FetchRequest)
            answer.addCallbacks(self._answered, self._failed)
        resume_s = self.fetcher.next_s()
        if resume_s is not None and self._timer is None:
            self._later(max(0.0, resume_s - self._clock.seconds()))

    def _connect(self) -> None:
        link = self._open_link()
        if link is None:
            self._lost("its address is not known")
            return
        self._link = link
        connected = link.connect()
        self._connecting = True
        connected.addCallbacks(self._connected, self._not_connected)

    def _connected(self, _: None) -> None:
        self._connecting = False
        self._lost_logged = False
        log.info("replicating from broker %d", self._leader_id)
        self._next()

    def _not_connected(self, failure: Failure) -> None:
        self._connecting = False
        if not self._stopped:
            self._lost(failure.getErrorMessage())

    def _answered(self, response: Any) -> None:
        self._in_flight -= 1
        if self._stopped:
            return
        try:
            self.fetcher.answered(response)
        except Exception:
            log.exception("internal error: a response of broker %d could not be applied; fetching continues in %.1f s", self._leader_id,
                          self._backoff_s)  # fmt: skip
            self.fetcher.failed()
            self._later(self._backoff_s)
        else:
            self._later(0)

    def _failed(self, failure: Failure) -> None:
        self._in_flight -= 1
        if not self._stopped and not self._in_flight:  # the requests of a connection fail together
            self._lost(failure.getErrorMessage())

    def _lost(self, reason: str) -> None:
        """There is no connection: try again after the back-off."""
        if not self._lost_logged:
            self._lost_logged = True
            log.warning("cannot fetch from broker %d: %s; retrying every %.1f s", self._leader_id, reason, self._backoff_s)
        if self._link is not None:
            self._link.close()
            self._link = None
        self.fetcher.failed()
        self._later(self._backoff_s)
