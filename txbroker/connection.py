"""One client connection's protocol: frames in, responses out in the order of the requests.

It has no socket and no clock. The transport hands over whole frames and takes the output; when the response to a request comes later,
the connection calls `transport.flush()`.

Kafka serves one request of a connection at a time. Clients rely on it: a commit and a fetch of offsets that are sent together, and a
login and what it permits. So a request waits until all requests before it on its connection are answered, and the requests after it wait
for its response. Handlers of Produce and Fetch are exempt (`overlaps`) and overlap with each other. This is safe:

- The records of a Produce are appended when it is received. Only its response waits, for replicas or a sync. So the appends of a
  producer keep their order, and those of different partitions may change places within a turn. The first batch of a transaction in a
  partition waits for the coordinator, and those of its producer behind it: a batch of another producer on the connection may pass them.
- A Fetch changes nothing but its fetch session, and the session epochs fix the order of the fetches of one session.
- Responses keep the order of the requests. What a client sees is what it could see in Kafka if its requests had taken longer on their
  way, with one difference: a Fetch that is sent behind a Produce with acks=all, without waiting for the response, may be answered
  without these records, because they are not committed yet. Its next Fetch returns them.

Small Produce requests that were received in one turn of the poller, and differ in their records only, are handled together: one write
appends the batches of all (`turn_requests.py`). Each has the response that it would have alone.

A client that exceeds a quota (`client_quotas/`) gets its response at once, with the throttle time; until that has passed, no more requests
are taken from the connection (KIP-219).

These close a connection, each with one line in the log: a frame of an impossible size, a request that cannot be decoded, an API or
version that is not served (ApiVersions gets a response instead, KIP-511), and an error that no response can carry (failures of a disk
have one line a minute: `api/unanswered_appends.py`). As in Kafka, which serves one request at a time, the requests before it are answered
first, and none after it is handled: the end has its place in the order of the responses (`_Slot.is_last`). The same holds for a client
that sends no more (`input_ended`).
"""

from __future__ import annotations

import logging
import struct
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.python.failure import Failure

from txbroker.action_queue import ActionQueue
from txbroker.api.encoded.cached_response import CachedResponse
from txbroker.api.encoded.encoded_response import EncodedResponse, Part
from txbroker.api.encoded.response_frame import Frame, response_frame
from txbroker.api.first_routes import FirstRoutes
from txbroker.api.parking import ParkedRequest
from txbroker.api.registry import Answer, Handled, Registry, Route, UnsupportedVersion
from txbroker.api.request_context import RequestContext, Session
from txbroker.api.throttling import Throttle
from txbroker.api.unanswered_appends import Unanswered
from txbroker.api.unsupported_features import Feature, UnsupportedFeature
from txbroker.errors import BrokerError, ErrorCode, ProtocolError
from txbroker.transport import other_protocols
from txbroker.transport.interfaces import FrameTransport
from txbroker.turn_requests import RequestGroup, TurnRequests
from txbroker.wire.codec import encode_bytes
from txbroker.wire.headers import API_VERSIONS_KEY, read_client_id, response_prefix
from txbroker.wire.joined_requests import JoinedRequests, joined_requests
from txbroker.wire.known_requests import Holder, Known, KnownRequest
from txbroker.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from txbroker.wire.schema import Request, Response

log = logging.getLogger("txbroker.connection")

# API key and version as one number (registry.route_key), and the correlation id.
_START = struct.Struct(">Ii")
_SIZE_BYTES = 4
_ROUTE_BYTES = 4  # API key and version
_NOTHING = memoryview(b"")
_NO_TURNS = TurnRequests(ActionQueue(lambda delay_s, call: None))

# Requests of one connection that may wait for their response. Kafka serves one at a time; its producers send 5 before they wait, other
# clients some dozens.
IN_FLIGHT_MAX = 100

# With more output than this no more requests are taken until the transport has sent some. One response may still be larger.
OUTPUT_BYTES_MAX = 1024 * 1024

# Requests in flight hold their message, without its records, in memory: beyond this many bytes no more are taken.
WAITING_BYTES_MAX = 1024 * 1024

# At most this much of a client id is logged.
LOGGED_CLIENT_ID_MAX = 100

# Longer headers are parsed each time instead of kept.
HEADER_KEPT_MAX = 256

_NO_FRAME: Frame = ([], 0)

# The changing field of known requests is at a few positions in those of one connection: it depends on the length of the topic's name.
KNOWN_POSITIONS_MAX = 4


class _Slot:
    """A request in flight, or a response that waits for those before it: `parts` is None until it is there, [] if there is none.

    `is_last`: the connection is closed when it is this one's turn; nothing after it is sent.
    """

    __slots__ = ("is_last", "later", "parts", "request_size", "size")

    def __init__(self, later: Deferred[Any] | ParkedRequest[Any] | None, request_size: int = 0) -> None:
        self.later = later
        self.parts: list[Part] | None = None
        self.size = 0
        self.request_size = request_size
        self.is_last = False


class Connection:
    """Decodes each request, calls its handler, and keeps the responses in order. Satisfies `FrameProtocol`."""

    __slots__ = (
        "_alone",
        "_client_id",
        "_closing",
        "_ending",
        "_header",
        "_header_client_id",
        "_header_end",
        "_header_version",
        "_held_back",
        "_held_bytes",
        "_known_positions",
        "_latest",
        "_output",
        "_output_bytes_max",
        "_quotas",
        "_registry",
        "_repeated",
        "_routes",
        "_session",
        "_slots",
        "_throttle",
        "_transport",
        "_turn_requests",
        "_waiting_bytes",
        "collected",
        "collected_count",
        "full",
        "in_flight_max",
        "output_bytes",
    )

    _transport: FrameTransport
    _session: Session
    _routes: Mapping[int, Route] | FirstRoutes

    def __init__(
        self,
        registry: Registry,
        turn_requests: TurnRequests | None = None,
        *,
        in_flight_max: int = IN_FLIGHT_MAX,
        output_bytes_max: int = OUTPUT_BYTES_MAX,
    ) -> None:
        """`turn_requests`: of all connections of the reactor; without it, requests are joined within a connection only."""
        self._registry = registry
        self._turn_requests = turn_requests or _NO_TURNS
        self.collected: dict[Hashable, KnownRequest] = {}
        """What its requests repeat that wait for the end of the turn (`turn_requests.py`), by what they write to; their number."""
        self.collected_count = 0
        self._quotas = registry.quotas
        self._throttle: Throttle | None = None  # from the first request on for which there are quotas
        self._routes = FirstRoutes(registry.routes, self._is_used)
        self.in_flight_max = in_flight_max
        self._output_bytes_max = output_bytes_max
        self._output: list[Part] = []
        self.output_bytes = 0
        self._slots: deque[_Slot] = deque()
        self._held_bytes = 0
        self._waiting_bytes = 0
        self._alone = False  # the request in flight does not overlap with others
        self._held_back = False  # the transport keeps a frame that must wait until nothing is in flight, or until a pause is over
        self.full = False
        self._ending = False  # no more requests are taken; it is closed once those in flight are answered
        self._closing = False
        # The last request's header after its first eight bytes: usually the next one has the same.
        self._header = b""
        self._header_end = 8
        self._header_version = 0
        self._header_client_id: str | None = None
        self._client_id: str | None = None
        # What its last requests repeat: the next ones are compared with it first. `_latest`: what the last one repeats.
        self._repeated: KnownRequest | None = None
        self._latest: KnownRequest | None = None
        # Where the changing field was in earlier requests (wire/known_requests.py), the latest position first.
        self._known_positions: tuple[int, ...] = ()

    def makeConnection(self, transport: FrameTransport) -> None:
        self._transport = transport
        self._session = transport.session

    def connectionLost(self, reason: Failure) -> None:
        """Cancel the requests in flight."""
        if isinstance(self._routes, FirstRoutes):
            if self._routes.greeted and not self._closing and not self._transport.disconnecting:
                self._registry.unsupported.closed_unused(self._session, self._client_id)
            self._routes = self._registry.routes
        self._closing = self._ending = self.full = True
        if self._throttle is not None:
            self._throttle.stop()
        slots, self._slots = self._slots, deque()
        for slot in slots:
            if slot.later is not None:
                self._cancel(slot.later)

    def _cancel(self, later: Deferred[Any] | ParkedRequest[Any]) -> None:
        try:
            later.cancel()
        except Exception:
            log.exception("internal error cancelling a request from %s", self._who())

    def _is_used(self) -> None:
        """The client has sent its first request that is not ApiVersions."""
        if isinstance(self._routes, FirstRoutes) and self._routes.greeted:
            self._registry.unsupported.used(self._session, self._client_id)
        self._routes = self._registry.routes

    @property
    def in_flight(self) -> int:
        return len(self._slots)

    def take_output(self) -> list[Part]:
        output, self._output = self._output, []
        self.output_bytes = 0
        if self.full:
            self._measure()
        return output

    def bad_size(self, size: int, size_max: int) -> None:
        self._turn_requests.handle()
        feature = other_protocols.feature(size)
        if feature is not None:
            self._refuse_protocol(feature)
            return
        reason = "request_too_large" if size > size_max else "request_too_small"
        self._close(reason, f"a request of {size} bytes (socket.request.max.bytes is {size_max})")

    def input_ended(self) -> None:
        self._turn_requests.handle()
        self._end()

    def _refuse_protocol(self, feature: Feature) -> None:
        if not self._ending:
            self._registry.unsupported.required(feature, self._session, self._client_id)
            self._put([other_protocols.ANSWER], len(other_protocols.ANSWER))
            self._end()

    def frame_received(self, frame: memoryview, received: memoryview = _NOTHING, /) -> int:
        taken = len(frame) + _SIZE_BYTES
        if self._ending:
            return taken
        turn = self._turn_requests
        try:
            key, correlation_id = _START.unpack_from(frame)
            route = self._routes[key]
            if turn.waiting and route.joins is None:
                turn.handle()
            if self._slots and (self._alone or not route.overlaps):
                return self._hold_back()
            throttle = None
            quotas = self._quotas
            if quotas is not None and quotas.active:
                throttle = self._throttle = self._throttle or Throttle(quotas, self._resume)
                if throttle.muted:
                    return self._hold_back()
                throttle_begun_s = throttle.begin()
            route.until_timed = left = route.until_timed - 1
            begun = 0.0 if left else route.begin_timed()
            holders: Sequence[Holder] = ()
            if route.known is None:
                request = route.decode(frame[self._read_header(frame, route.request_header) :])
            else:
                joins = route.joins is not None and throttle is None and (turn.actions.collects or len(received) > taken)
                repeated = self._repeated
                if joins and repeated is not None:
                    together = self._take(received, taken, route, repeated, begun)
                    if together:
                        return together
                for position in self._known_positions:
                    found = route.known.find(frame, position)
                    if found is not None:
                        request, holders, self._client_id = found.message, found.holders, found.client_id
                        if joins and found is not repeated and route.joins is not None:
                            target = route.joins(request)
                            if target is not None:
                                found.target = target
                                together = self._take(received, taken, route, found, begun)
                                if together:
                                    found.changing.records = b""  # the view of the frame ends here
                                    return together
                        break
                else:
                    request, holders = self._decode_unknown(frame, route, route.known)
        except ProtocolError as error:
            turn.handle()
            self._refuse(frame, error)
            return taken
        if turn.waiting:
            turn.handle()
        context = RequestContext(route.api_key, route.api_version, correlation_id, self._client_id, self._session)
        response: Any  # Handled; the checks below are by class, which is faster
        try:
            response = route.call(request, context)
        except Exception as error:
            response = self._failed(error, route, request, context)
        records_bytes = 0
        for holder in holders:
            records_bytes += len(holder.records or b"")
            holder.records = b""  # the view of the frame ends here
        if throttle is not None:
            response = throttle.limited(response, route, request, context, len(frame), throttle_begun_s)
            if throttle.muted:
                self.full = True
        kind = response.__class__
        if kind is EncodedResponse:
            if self._slots:
                self._put(response.parts, response.size)
            else:  # as `_put`, in place: this is for each small Produce and Fetch
                self._output += response.parts
                self.output_bytes += response.size
                if self.output_bytes > self._output_bytes_max:
                    self.full = True
        elif kind is route.response or kind is CachedResponse:
            self._put(*self._encode(response, route, request, context))
        elif response is not None:
            if begun and isinstance(response, ParkedRequest):
                response = response.deferred()  # `time` waits for it, too
            self._wait(response, len(frame) - records_bytes, route, request, context)
        if begun:
            self.time(begun, route, response)
        return taken

    def _take(self, received: memoryview, taken: int, route: Route, found: KnownRequest, begun: float) -> int:
        """Have the first request in `received`, of `taken` bytes, handled together with others, if it repeats `found`.

        Returns the bytes of those taken; 0: it must be handled alone.
        """
        turn = self._turn_requests
        if self.collected and not self._can_be_collected(found):
            turn.handle()
        joined: JoinedRequests | None
        if turn.actions.collects and not self._slots:
            joined = turn.take(self, route, found, taken - _SIZE_BYTES, received, begun, found is not self._latest)
        else:
            turn.handle()
            most = self.in_flight_max - len(self._slots)
            joined = joined_requests(taken - _SIZE_BYTES, received, found.key, route.flexible, most) if most > 1 else None
            if joined is not None and len(joined.places) > 1:
                route.count_untimed(len(joined.places) - 1)
                group = RequestGroup(route, found)
                group.add(joined)
                group.append(self)
                group.answer(self, 0, len(joined.places), begun)
            else:
                joined = None
        if joined is None:
            self._latest = self._repeated = None
            return 0
        # The next requests of a connection that writes to several partitions in turn do not repeat the last one.
        self._repeated = found if found is self._latest or len(joined.places) > 1 else None
        self._latest = found
        return joined.taken

    def _can_be_collected(self, found: KnownRequest) -> bool:
        """Whether a request that repeats `found` keeps its order if it is appended together with others: nothing is collected for its
        partition that it does not repeat. The partition has another name in other versions."""
        other = self.collected.get(found.target)
        if other is None:
            return next(iter(self.collected.values())).key[:_ROUTE_BYTES] == found.key[:_ROUTE_BYTES]
        return other.key == found.key

    def context(self, route: Route, found: KnownRequest, correlation_id: int) -> RequestContext:
        """Of a request that repeats `found`."""
        return RequestContext(route.api_key, route.api_version, correlation_id, found.client_id, self._session)

    def put(self, frames: list[Part], size: int) -> None:
        """Responses to requests that were handled together. None follows a request that cannot be answered."""
        if not self._ending:
            self._put(frames, size)
            self._transport.flush()

    def handle(
        self, route: Route, found: KnownRequest, correlation_id: int, request_size: int, call: Callable[[RequestContext], Handled]
    ) -> Handled:
        """Put the response that `call` returns, and return it. The request repeats `found`; `request_size`: without its records."""
        if self._ending:
            return None
        context = self.context(route, found, correlation_id)
        response: Any
        try:
            response = call(context)
        except Exception as error:
            response = self._failed(error, route, found.message, context)
        if isinstance(response, ParkedRequest):
            response = response.deferred()  # `time` may wait for it, too
        if isinstance(response, Deferred):
            self._wait(response, request_size, route, found.message, context)
        elif response is not None:
            self.put(*self._encode(response, route, found.message, context))
        return response  # type: ignore[no-any-return]

    def _hold_back(self) -> int:
        """Have the transport keep this frame until all requests before it are answered."""
        self._held_back = self.full = True
        return 0

    def _resume(self) -> None:
        """The pause of a client that has exceeded a quota is over."""
        self._held_back = False
        self._measure()
        self._transport.flush()

    def _decode_unknown(self, frame: memoryview, route: Route, known: Known) -> tuple[Request, Sequence[Holder]]:
        """Decode a request that may be repeated, and remember it; the structs that have records."""
        body = self._read_header(frame, route.request_header)
        request = route.decode(frame[body:])
        position = known.remember(frame, body, self._client_id, request)
        if position is not None and position not in self._known_positions:
            self._known_positions = (position, *self._known_positions[: KNOWN_POSITIONS_MAX - 1])
        return request, () if route.record_holders is None else route.record_holders(request)

    def time(self, begun: float, route: Route, response: Handled) -> None:
        """Record how long this request took, from its last byte until its response was made; not if its connection is gone by then."""
        if not isinstance(response, Deferred):
            route.times.end(begun)
            return

        def answered(result: object) -> object:
            if not self._closing:
                route.times.end(begun)
            return result

        response.addBoth(answered)

    def _read_header(self, frame: memoryview, version: int) -> int:
        """The position of the body; sets the client id."""
        if version == self._header_version and frame[8 : self._header_end] == self._header:
            self._client_id = self._header_client_id  # a known request may have had another one
            return self._header_end
        self._client_id, position = read_client_id(frame, version)
        if position <= HEADER_KEPT_MAX:
            self._header, self._header_end, self._header_version = bytes(frame[8:position]), position, version
            self._header_client_id = self._client_id
        return position

    def _put(self, parts: list[Part], size: int) -> None:
        """A response is made: it is sent next, unless others are before it."""
        if self._slots:
            slot = _Slot(None)
            self._slots.append(slot)
            self._fill(slot, parts, size)
            self._measure()
        else:
            self._output += parts
            self.output_bytes += size
            if self.output_bytes > self._output_bytes_max:
                self.full = True

    def _fill(self, slot: _Slot, parts: list[Part], size: int) -> None:
        slot.parts = parts
        slot.size = size
        self._held_bytes += size

    def _wait(self, response: object, request_size: int, route: Route, request: Request, context: RequestContext) -> None:
        later: Deferred[Any] | ParkedRequest[Any]
        if isinstance(response, Deferred | ParkedRequest):
            later = response
        else:
            later = fail(TypeError(f"a handler of {route.name} returned {type(response).__name__}"))
        slot = _Slot(later, request_size)
        self._slots.append(slot)
        self._alone = not route.overlaps or not route.is_answered(request)
        self._waiting_bytes += request_size
        self._measure()
        arguments = (slot, route, request, context)
        if isinstance(later, Deferred):
            later.addCallbacks(self._answered, self._broken, callbackArgs=arguments, errbackArgs=arguments)
        else:
            later.when_answered(self._answered, *arguments)
        if self._closing:  # the connection was lost in the turn in which the request was collected
            self._cancel(later)

    def _answered(self, response: Answer | None, slot: _Slot, route: Route, request: Request, context: RequestContext) -> None:
        if self._closing:
            return
        slot.later = None
        self._waiting_bytes -= slot.request_size
        slots = self._slots
        if self._throttle is not None and self._throttle.muted:
            self.full = True
        if response.__class__ is EncodedResponse and len(slots) == 1 and not self.full:
            # As `_fill` and `_drain`, in place: one produce may complete thousands of fetches.
            slots.popleft()
            self._output += response.parts
            self.output_bytes += response.size
            self._alone = False
            if self.output_bytes > self._output_bytes_max:
                self.full = True
            self._transport.flush()
            return
        self._fill(slot, *(_NO_FRAME if response is None else self._encode(response, route, request, context, slot)))
        if slot is slots[0]:
            self._drain()

    def _broken(self, failure: Failure, slot: _Slot, route: Route, request: Request, context: RequestContext) -> None:
        if self._closing:
            return
        error = failure.value
        assert error is not None
        error.__traceback__ = failure.getTracebackObject()
        self._answered(self._failed(error, route, request, context, slot), slot, route, request, context)

    def _drain(self) -> None:
        """The first response is made: it and those that waited for it are sent next."""
        slots = self._slots
        while slots and (parts := slots[0].parts) is not None:
            self._output += parts
            slot = slots.popleft()
            self._held_bytes -= slot.size
            self.output_bytes += slot.size
            if slot.is_last:
                self._lose()
                break
        if not slots:
            self._alone = self._held_back = False
        self._measure()
        self._transport.flush()

    def _measure(self) -> None:
        self.full = (
            self._ending
            or self._held_back
            or (self._throttle is not None and self._throttle.muted)
            or len(self._slots) >= self.in_flight_max
            or self.output_bytes + self._held_bytes > self._output_bytes_max
            or self._waiting_bytes > WAITING_BYTES_MAX
        )

    def _encode(self, response: Answer, route: Route, request: Request, context: RequestContext, slot: _Slot | None = None) -> Frame:
        """The response frame; nothing after an error that closes the connection. `slot`: of the request, if it has one."""
        try:
            return response_frame(response, route, context)
        except Exception as error:
            failed = self._failed(error, route, request, context, slot)
        if failed is not None:
            try:
                return response_frame(failed, route, context)
            except Exception:
                log.exception("internal error: the error response to %s from %s cannot be encoded", route.name, self._who())
                self._close("failed_without_answer", f"{route.name} failed", slot)
        return _NO_FRAME

    def _failed(
        self, error: BaseException, route: Route, request: Request, context: RequestContext, slot: _Slot | None = None
    ) -> Response | None:
        """The response to a request that failed as a whole; None when there can be none, and the connection is closed."""
        if isinstance(error, ProtocolError):
            self._close("unparsable_request", f"{route.name}: {error}", slot)
            return None
        if isinstance(error, UnsupportedFeature):
            self._registry.unsupported.required(error.feature, self._session, context.client_id)
        elif not isinstance(error, BrokerError):
            log.error("internal error handling %s from %s", route.name, self._who(), exc_info=error)
            error = BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR)
        response = None
        if route.failed is not None:
            try:
                response = route.failed(request, context, error)
            except Exception:
                log.exception("internal error: there is no error response to %s from %s", route.name, self._who())
        if response is None:
            details = "" if error.message is None else f" ({error.message})"
            why = f"{route.name} failed with {error.code.name}{details}; the response cannot carry this error"
            self._close("failed_without_answer", why, slot, is_logged=isinstance(error, Unanswered) and error.is_logged)
        return response

    def _refuse(self, frame: memoryview, error: ProtocolError) -> None:
        """Close, except for an ApiVersions request of an unknown version: clients learn the known ones from the response (KIP-511)."""
        key, correlation_id = _START.unpack_from(frame)
        if not (isinstance(error, UnsupportedVersion) and key >> 16 == API_VERSIONS_KEY):
            route = self._registry.routes.get(key)
            unserved = "unsupported_version" if isinstance(error, UnsupportedVersion) else "unknown_api"
            self._close("unparsable_request" if route else unserved, f"{route.name}: {error}" if route else str(error))
            return
        low, high = self._registry.ranges()[API_VERSIONS_KEY]
        served = ApiVersion(api_key=API_VERSIONS_KEY, min_version=low, max_version=high)
        body = encode_bytes(ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[served]), 0)
        prefix = response_prefix(0, len(body), correlation_id)
        self._put([prefix, body], len(prefix) + len(body))

    def unanswered(self, route: Route) -> None:
        """Requests cannot be answered because of an internal error, which is logged: close, as responses would be missing."""
        self._close("failed_without_answer", f"{route.name} failed")

    def _close(self, reason: str, why: str, slot: _Slot | None = None, *, is_logged: bool = False) -> None:
        """Close the connection. `reason` is counted, `why` is logged, unless the log has it already."""
        if not self._ending:
            self._registry.closed[reason] += 1
            log.log(logging.DEBUG if is_logged else logging.WARNING, "closing the connection of %s: %s", self._who(), why)
        self._end(slot)

    def _end(self, slot: _Slot | None = None) -> None:
        """Take no more requests, and close when those before `slot` are answered; None: all that are in flight."""
        was_ending, self._ending, self.full = self._ending, True, True
        if slot is not None:
            slot.is_last = True
        elif was_ending:
            return
        elif self._slots:
            slot = _Slot(None)
            slot.parts = []
            slot.is_last = True
            self._slots.append(slot)
        else:
            self._lose()

    def _lose(self) -> None:
        """Send the output, and close."""
        self._closing = True
        self._transport.loseConnection()

    def _who(self) -> str:
        session = self._session
        client = "" if self._client_id is None else f" (client id {self._client_id[:LOGGED_CLIENT_ID_MAX]!r})"
        return f"{session.peer_host}:{session.peer_port}{client}"
