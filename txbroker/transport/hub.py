"""What all connections of one reactor share: buffers, quotas, limits, the worker for cold reads, and a timer."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

from twisted.internet.defer import Deferred, succeed

from txbroker.action_queue import ActionQueue
from txbroker.api.request_context import Session
from txbroker.platform import system
from txbroker.transport.before_login import Logins
from txbroker.transport.handshakes import Handshakes
from txbroker.transport.limits import Limits
from txbroker.transport.poller import Poller
from txbroker.transport.quotas import ConnectionQuotas, Descriptors
from txbroker.transport.receive import ReceiveBuffers
from txbroker.transport.throttled import ThrottledConnections

log = logging.getLogger("txbroker.transport")

RunInWorker = Callable[[Callable[[], None]], "Deferred[None]"]

# The timer checks all connections this many times in connections.max.idle.ms, and at least every SWEEP_S_MAX seconds.
SWEEPS_PER_IDLE_TIME = 8
SWEEP_S_MAX = 5.0

# The connections of a turn whose responses are sent together. Sent one by one, each response wakes its client before the next one is made,
# which costs more than sending it; a client of several connections receives those that are sent together without being woken for each.
SENT_TOGETHER = 32

# When the broker stops, connections have this much time to take their last responses.
STOP_GRACE_S = 1.0


class Member(Protocol):
    """A connection, as the hub sees it."""

    active: int
    session: Session

    def flush_now(self) -> None:
        """Send what is due."""

    def reap(self) -> None:
        """Nothing moved for connections.max.idle.ms."""

    def check_progress(self) -> None:
        """Other connections wait for memory of the receive budget, which an incomplete frame may hold."""

    def loseConnection(self) -> None: ...

    def abortConnection(self) -> None: ...


class Hub:
    """To be started before the listeners.

    `serving` is set while a connection is served. Responses that become ready on other connections meanwhile are sent afterwards, so that
    several responses to one connection are sent together. `in_turn` is set during a turn of the poller: small responses to its requests are
    then sent when all its sockets are served, and those that its actions complete after these, but at most SENT_TOGETHER are kept back, in
    `postponed`.

    `closed_for` counts the connections that the transport has closed, by reason. `pauses` counts how often reading of a connection stopped
    because too much was in flight. `file_gone` is called with the path of a file whose region cannot be sent.
    """

    def __init__(self, reactor: Any, limits: Limits, run_in_worker: RunInWorker, actions: ActionQueue) -> None:
        self.reactor = reactor
        self.actions = actions
        self.limits = limits
        self.run_in_worker = run_in_worker
        self.poller = _poller_of(reactor, self._begin_turn, self._end_turn)
        self.buffers = ReceiveBuffers(limits.queued_request_bytes_max)
        self.quotas = ConnectionQuotas(limits, Descriptors(limits.descriptors_max).room)
        self.throttled = ThrottledConnections(reactor)
        self.logins = Logins(reactor, limits)
        self.handshakes = Handshakes(run_in_worker, reactor)
        self.serving = False
        self.in_turn = False
        self.closed_for: Counter[str] = Counter()
        self.file_gone: Callable[[str], None] = lambda path: None
        self.pauses = 0
        self.postponed: list[Member] = []
        self.tick = 0
        self._members: set[Member] = set()
        self._timer: Any = None
        self._emptied: Deferred[None] | None = None

    @property
    def connections(self) -> int:
        """How many connections there are now."""
        return len(self._members)

    def by_listener(self) -> Counter[str]:
        """How many connections each listener has now."""
        return Counter(member.session.listener for member in self._members)

    def start(self) -> None:
        """Start the poller and the timer."""
        self.poller.start()
        self._timer = self.reactor.callLater(self._sweep_s, self._sweep)

    def stop(self) -> Deferred[None]:
        """Send the last responses and close all connections; fires when they are closed. Listeners must have stopped."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.throttled.stop()
        if not self._members:
            self.poller.stop()
            return succeed(None)
        for member in tuple(self._members):
            member.loseConnection()
        cut = self.reactor.callLater(STOP_GRACE_S, self._abort_all)
        self._emptied = Deferred()
        return self._emptied.addCallback(lambda _: self._empty(cut))

    def _empty(self, cut: Any) -> None:
        if cut.active():
            cut.cancel()
        self.poller.stop()

    def _abort_all(self) -> None:
        self.closed_for["stopping"] += len(self._members)
        for member in tuple(self._members):
            member.abortConnection()

    def opened(self, member: Member) -> None:
        self._members.add(member)

    def closed(self, member: Member) -> None:
        self._members.discard(member)
        if not self._members and self._emptied is not None:
            emptied, self._emptied = self._emptied, None
            emptied.callback(None)

    def postpone(self, member: Member) -> None:
        """Send the responses of this connection when none is being served: at the end of the turn, or sooner if they are many."""
        self.postponed.append(member)
        if not self.serving and (not self.in_turn or len(self.postponed) >= SENT_TOGETHER):
            self.flush_postponed()

    def flush_postponed(self) -> None:
        self.serving = True
        while self.postponed:
            postponed, self.postponed = self.postponed, []
            for member in postponed:
                try:
                    member.flush_now()
                except Exception:  # the others of this turn have their responses, too
                    log.exception("internal error sending responses")
        self.serving = False

    def _begin_turn(self) -> None:
        self.in_turn = True
        self.actions.begin_turn()

    def _end_turn(self) -> None:
        """Send the responses of the turn, then run its actions, and send their responses."""
        if self.postponed:
            self.flush_postponed()
        try:
            self.actions.end_turn()
        finally:
            self.in_turn = False
            if self.postponed:
                self.flush_postponed()

    @property
    def _sweep_s(self) -> float:
        idle_ms = self.limits.idle_ms_max
        return min(idle_ms / 1000 / SWEEPS_PER_IDLE_TIME, SWEEP_S_MAX) if idle_ms > 0 else SWEEP_S_MAX

    def _sweep(self) -> None:
        self._timer = self.reactor.callLater(self._sweep_s, self._sweep)
        self.tick += 1
        self.buffers.trim()
        idle_ms = self.limits.idle_ms_max
        idle_ticks = int(idle_ms / 1000 / self._sweep_s) if idle_ms > 0 else None
        contended = self.buffers.contended
        for member in tuple(self._members):
            if contended:
                member.check_progress()
            if idle_ticks is not None and self.tick - member.active > idle_ticks:
                member.reap()
        self.quotas.check_room()
        self.quotas.report(log)


def _poller_of(reactor: Any, begin_turn: Callable[[], None], end_turn: Callable[[], None]) -> Poller:
    """The poller for this system."""
    if system.waits_with_epoll:
        from txbroker.transport.epoll_poller import EpollPoller

        return EpollPoller(reactor, begin_turn, end_turn)
    from txbroker.transport.reactor_poller import ReactorPoller

    return ReactorPoller(reactor, begin_turn, end_turn)
