"""Produce requests that were received in one turn of the poller, and are handled together.

Small requests that differ in correlation id and records only (`wire/joined_requests.py`) are collected while the sockets of a turn are
read: those of one connection and of several. Once all are read, one call of the handler takes each group of such requests: the partition
is checked once, and their batches are written at once.

Clients see no other order. Requests of one connection are handled in their order, and what was collected is handled before any other
request of any connection. Each request gets the response that it would get alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from txbroker.action_queue import ActionQueue
from txbroker.api.registry import Handled, JoinedAnswers, Route
from txbroker.api.request_context import RequestContext
from txbroker.wire.joined_requests import JoinedRequests, joined_requests
from txbroker.wire.known_requests import KnownRequest
from txbroker.wire.record_loops import Place

if TYPE_CHECKING:
    from txbroker.connection import Connection

log = logging.getLogger("txbroker.connection")

# What is collected is handled when it is from so many connections, or so many requests: their responses must not wait for long.
CONNECTIONS_MAX = 32
REQUESTS_MAX = 256


class _Group:
    """Requests that repeat each other: their frames, and the connections that have sent them, each with the number of its requests."""

    __slots__ = ("begun", "found", "frames", "members", "places", "route", "size")

    def __init__(self, route: Route, found: KnownRequest) -> None:
        self.route = route
        self.found = found
        self.frames: list[bytes] = []
        self.size = 0
        self.places: list[Place] = []
        self.members: list[tuple[Connection, int]] = []
        self.begun = 0.0


class TurnRequests:
    """The requests that are collected in the present turn; `actions` knows turns. `waiting`: the connections that have sent them."""

    def __init__(self, actions: ActionQueue) -> None:
        self.actions = actions
        self.waiting = 0
        self._groups: dict[bytes, _Group] = {}  # by the key of the known request
        actions.when_read = self.handle

    def take(
        self, connection: Connection, route: Route, found: KnownRequest, frame_size: int, received: memoryview, begun: float
    ) -> int:
        """Collect the first requests in `received` if they repeat `found`. Returns their bytes; 0: the first one must be handled now.

        `frame_size`: of the first. The connection has nothing in flight, and nothing collected that repeats another request.
        """
        key = found.key
        group = self._groups.get(key)
        base = 0 if group is None else group.size
        room = connection.in_flight_max - connection.collected_count
        joined = joined_requests(frame_size, received, key, route.flexible, room, base)
        if joined is None:
            return 0
        count = len(joined.places)
        if group is None:
            group = self._groups[key] = _Group(route, found)
        connection.collected = key
        connection.collected_count += count
        group.begun = group.begun or begun
        route.count_untimed(count - 1)
        group.frames.append(joined.data[: joined.taken])
        group.size += joined.taken
        group.places += joined.places
        group.members.append((connection, count))
        self.waiting += 1
        if self.waiting >= CONNECTIONS_MAX or len(group.places) >= REQUESTS_MAX or count == room:
            self.handle()
        return joined.taken

    def handle(self) -> None:
        """Handle what was collected."""
        groups, self._groups = self._groups, {}
        self.waiting = 0
        for group in groups.values():
            for connection, _ in group.members:
                connection.collected = None
                connection.collected_count = 0
        for group in groups.values():
            joined = JoinedRequests(b"".join(group.frames), group.places, group.size)
            try:
                handle_together(group.route, group.found, joined, group.members, group.begun)
            except Exception:
                log.exception("internal error: %s requests that were received together cannot be answered", group.route.name)
                for connection, _ in group.members:
                    connection.unanswered(group.route)


def handle_together(
    route: Route, found: KnownRequest, joined: JoinedRequests, members: Sequence[tuple[Connection, int]], begun: float
) -> None:
    """Handle requests that repeat `found`. `members`: the connections that they are from, in this order, and the number of each."""
    places = joined.places
    answers: JoinedAnswers | None = None
    failure: Exception | None = None
    try:
        answers = route.call_together(found.message, members[0][0].context(route, found, places[0][0]), joined)
    except Exception as error:
        failure = error
    done, frames = (0, None) if answers is None else (answers.done, answers.frames)
    first: Handled | None = None  # the response to the first request, if it was not answered together with others
    end = 0
    for connection, count in members:
        at, end = end, end + count
        if frames is not None and end <= done:
            connection.put(frames[at:end], len(frames[0]) * count)
        else:
            for number in range(at, end):
                call: Callable[[RequestContext], Handled]
                if failure is not None:
                    call = partial(_fail, failure)
                elif answers is not None and number < done:
                    call = partial(answers.answer, number)
                else:
                    call = partial(_alone, route, found, joined, number)
                handled = connection.handle(route, found, places[number][0], joined.size, call)
                first = handled if number == 0 else first
    if begun:
        members[0][0].time(begun, route, first)


def _alone(route: Route, found: KnownRequest, joined: JoinedRequests, number: int, context: RequestContext) -> Handled:
    """Handle one of the requests by itself."""
    _, begin, end = joined.places[number]
    before = found.changing.records  # of a request that has been recognised, and waits for these
    found.changing.records = memoryview(bytearray(joined.data[begin:end]))
    try:
        return route.call(found.message, context)
    finally:
        found.changing.records = before


def _fail(error: Exception, context: RequestContext) -> Handled:
    raise error
