"""Produce requests that were received in one turn of the poller, and are handled together.

Small requests are collected while the sockets of a turn are read, those of one connection and of several. Requests that differ in
correlation id and records only (`wire/joined_requests.py`) are a group: once all sockets are read, one call of the handler takes each
group, checks its partition once, and writes all of its batches at once.

A client sees no other order. The requests of one connection to one partition are appended in their order, its responses have the order of
its requests, and what was collected is handled before any other request of any connection. Appends to different partitions may change
places, as if they were sent to different brokers. Each request gets the response that it would get alone.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable
from typing import Protocol, TypeAlias

from txbroker.action_queue import ActionQueue
from txbroker.api.encoded.encoded_response import Part
from txbroker.api.registry import HandlerResult, JoinedAnswers, Route
from txbroker.api.request_context import RequestContext
from txbroker.wire.joined_requests import JoinedRequests, joined_requests
from txbroker.wire.known_requests import KnownRequest
from txbroker.wire.record_loops import Place

log = logging.getLogger("txbroker.connection")

# What is collected is handled when it is from so many connections, or so many requests: their responses must not wait for long.
CONNECTIONS_MAX = 32
REQUESTS_MAX = 256


class RequestGroup:
    """Requests that repeat `known`: to be added, then appended, then answered one by one."""

    __slots__ = ("_answers", "_failure", "_joined", "frames", "known", "number", "places", "responses", "route", "size")

    _answers: JoinedAnswers | None
    _failure: Exception | None
    _joined: JoinedRequests

    def __init__(self, route: Route, known: KnownRequest, number: int = 0) -> None:
        """`number`: of this group in its turn."""
        self.number = number
        self.route = route
        self.known = known
        self.frames: list[bytes] = []
        self.size = 0
        """The bytes of all frames."""
        self.places: list[Place] = []
        self.responses: list[Part] | None = None
        """After `append`: a frame for each request, if all were appended and may be acknowledged."""

    def add(self, joined: JoinedRequests) -> None:
        """Add requests whose places count from `size` on."""
        self.frames.append(joined.data[: joined.taken])
        self.size += joined.taken
        self.places += joined.places

    def correlation_id(self, number: int) -> int:
        """Of one of the requests."""
        return self.places[number][0]

    @property
    def request_size(self) -> int:
        """The size of a frame without its records."""
        return self._joined.size

    def append(self, context: RequestContext) -> None:
        """Append as many batches as possible with one write. `context`: of the first request."""
        places = self.places
        self._joined = JoinedRequests(b"".join(self.frames), places, self.size)
        self._answers = self._failure = None
        try:
            answers = self._answers = self.route.call_together(self.known.message, context, self._joined)
        except Exception as error:
            self._failure = error
        else:
            if answers.appended_count == len(places):
                self.responses = answers.frames

    def answer(self, number: int, context: RequestContext) -> HandlerResult:
        """What the handler returns or raises for one of the requests. It is handled now if it was not appended together with others."""
        if self._failure is not None:
            raise self._failure
        answers = self._answers
        if answers is not None and number < answers.appended_count:
            return answers.answer(number, context)
        known = self.known
        _, begin, end = self.places[number]
        before = known.changing.records  # of a request that has been recognised, and waits for these
        known.changing.records = memoryview(bytearray(self._joined.data[begin:end]))
        try:
            return self.route.call(known.message, context)
        finally:
            known.changing.records = before


class Requester(Protocol):
    """The connection that has sent requests."""

    in_flight_max: int
    collected: dict[Hashable, KnownRequest]
    collected_count: int

    def context(self, route: Route, known: KnownRequest, correlation_id: int) -> RequestContext:
        """Of a request that repeats `known`."""

    def put_answers(self, group: RequestGroup, first: int, count: int, begun: float) -> None:
        """Put the responses to `count` requests of this connection. `begun`: when the first of them was received, to time it, or 0.0."""

    def unanswered(self, route: Route) -> None:
        """Requests cannot be answered because of an internal error, which is logged."""


# Requests of a connection in a group: the number of the first one, how many there are, and when the first was received if it is timed.
Collected: TypeAlias = "tuple[Requester, RequestGroup, int, int, float]"


class TurnRequests:
    """The requests that are collected in the present turn; `actions` knows turns. `waiting`: the connections that have sent them."""

    def __init__(self, actions: ActionQueue) -> None:
        self.actions = actions
        self.waiting = 0
        self._requests = 0
        self._mixed = False  # a connection has collected requests of several groups
        self._groups: dict[bytes, RequestGroup] = {}  # by the key of the known request
        self._collected: list[Collected] = []
        actions.when_read = self.handle

    def take(
        self, connection: Requester, route: Route, known: KnownRequest, frame_size: int, received: memoryview, begun: float, one: bool
    ) -> JoinedRequests | None:
        """Collect the first requests in `received` if they repeat `known`, or with `one` only the first. None: it must be handled now.

        `frame_size`: of the first. The connection has nothing in flight, and nothing collected that must be handled before.
        """
        key = known.key
        group = self._groups.get(key)
        room = connection.in_flight_max - connection.collected_count
        joined = joined_requests(frame_size, received, key, route.flexible, 1 if one else room, 0 if group is None else group.size)
        if joined is None:
            return None
        if group is None:
            group = self._groups[key] = RequestGroup(route, known, len(self._groups))
        first, count = len(group.places), len(joined.places)
        group.add(joined)
        if not connection.collected_count:
            self.waiting += 1
        elif known.target not in connection.collected:
            self._mixed = True
        connection.collected_count += count
        connection.collected[known.target] = known
        if count > 1:
            route.count_untimed(count - 1)
        self._collected.append((connection, group, first, count, begun))
        self._requests += count
        if self.waiting >= CONNECTIONS_MAX or self._requests >= REQUESTS_MAX or count == room:
            self.handle()
        return joined

    def handle(self) -> None:
        """Handle what was collected."""
        collected = self._collected
        if not collected:
            return
        if not self._mixed and len(self._groups) > 1:
            # Clients send their next requests in the order of these responses: those of one group come together again.
            collected.sort(key=_number_of_group)
        self._collected = []
        self._groups = {}
        self._mixed = False
        self.waiting = self._requests = 0
        for connection, group, first, _, _ in collected:
            if connection.collected_count:
                connection.collected.clear()
                connection.collected_count = 0
            if not first:
                group.append(connection.context(group.route, group.known, group.correlation_id(0)))
        for connection, group, first, count, begun in collected:
            try:
                connection.put_answers(group, first, count, begun)
            except Exception:
                log.exception("internal error: %s requests that were received together cannot be answered", group.route.name)
                connection.unanswered(group.route)


def _number_of_group(collected: Collected) -> int:
    return collected[1].number
