"""The protocol of one client to one broker, without I/O: events, bytes and time go in; bytes, responses and deadlines come out.

An adapter owns the socket. It reports `connect_started`, `connected` and `disconnected`, passes on received bytes (`buffer` and
`received`, or `feed`), sends what `outgoing` returns, and calls `expired` no later than `deadline_s`. The machine outlives
connections: after `disconnected` the adapter may connect again, when `backoff.wait_s` has passed.

States, and the events that change them:

    DISCONNECTED ─ connect_started ─► CONNECTING ─ connected ─► NEGOTIATING ─ ApiVersions answered ─► READY
         ▲                                │                        │          or logged in            │
         └───────────────────────── disconnected ──────────────────┴──────────────────────────────────┘

The first request of each connection is ApiVersions in the newest version known here. A broker that does not know that version answers in
version 0 (KIP-511), and is asked again in version 0. With SASL in its settings the machine then logs in. It logs in again, in the state
RENEWING, before the session's lifetime is over (KIP-368): a caller asks for that by `check_session`. Every later request goes out in the
newest version that both sides know. A broker answers the requests of a connection in order.

Times are seconds of one monotonic clock, as an argument `now_s` wherever they matter.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Generator, Mapping
from enum import Enum, auto
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeVar

from txbroker import __version__
from txbroker.backoff import Backoff
from txbroker.client.client_errors import (
    AuthenticationExpected,
    Closed,
    ConnectionFailed,
    NotKafka,
    Silent,
    TlsExpected,
    TooOld,
    Unreachable,
)
from txbroker.client.client_security import ClientSecurity, login_steps
from txbroker.client.response_frames import RESPONSE_BYTES_MAX, ResponseFrames
from txbroker.errors import ErrorCode, ProtocolError
from txbroker.wire.codec import decode, encode
from txbroker.wire.headers import request_prefix, response_body_position, response_header_version
from txbroker.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from txbroker.wire.schema import Request, VersionRange, response_class

C = TypeVar("C")

RENEWED_AT = 0.85  # of a session's lifetime; Kafka's clients log in again at 85 to 95 %
CORRELATION_IDS = 2**31
OUTGOING_PARTS_MAX = 64  # of one sendmsg; Linux accepts 1024
_CORRELATION_ID = struct.Struct(">i")
_ERROR_CODE = struct.Struct(">h")
_SHOWN_BYTES = 64
_TLS_RECORDS = (b"\x15\x03", b"\x16\x03")  # alert, handshake


class State(Enum):
    """See the module's diagram."""

    DISCONNECTED = auto()
    CONNECTING = auto()
    NEGOTIATING = auto()
    READY = auto()
    RENEWING = auto()


class Event(Enum):
    """What changes the state."""

    CONNECT_STARTED = auto()
    CONNECTED = auto()
    NEGOTIATED = auto()
    RENEWAL_STARTED = auto()
    RENEWED = auto()
    DISCONNECTED = auto()


TRANSITIONS: Mapping[tuple[State, Event], State] = {
    (State.DISCONNECTED, Event.CONNECT_STARTED): State.CONNECTING,
    (State.CONNECTING, Event.CONNECTED): State.NEGOTIATING,
    (State.CONNECTING, Event.DISCONNECTED): State.DISCONNECTED,
    (State.NEGOTIATING, Event.NEGOTIATED): State.READY,
    (State.NEGOTIATING, Event.DISCONNECTED): State.DISCONNECTED,
    (State.READY, Event.RENEWAL_STARTED): State.RENEWING,
    (State.READY, Event.DISCONNECTED): State.DISCONNECTED,
    (State.RENEWING, Event.RENEWED): State.READY,
    (State.RENEWING, Event.DISCONNECTED): State.DISCONNECTED,
}


class ClientSettings(NamedTuple):
    """Limits of a client. Java's names: request.timeout.ms, socket.connection.setup.timeout.ms, max.in.flight.requests.per.connection.

    `security`: None for a PLAINTEXT listener. Only blocking connections use its TLS.
    """

    client_id: str = "txbroker"
    connect_timeout_s: float = 5.0
    request_timeout_s: float = 30.0
    in_flight_max: int = 5
    response_bytes_max: int = RESPONSE_BYTES_MAX
    security: ClientSecurity | None = None


class InFlight(NamedTuple, Generic[C]):
    """A request without its response yet. `context` is the caller's."""

    request: type[Request]
    version: int
    correlation_id: int
    deadline_s: float
    context: C


class Completed(NamedTuple, Generic[C]):
    """A response. `body` is valid as long as `ResponseFrames` says."""

    request: type[Request]
    version: int
    context: C
    body: memoryview

    def response(self) -> Any:
        """The response, decoded. NotKafka when it is malformed; the connection has to be closed then."""
        try:
            return decode(response_class(self.request), self.version, self.body)
        except ProtocolError as error:
            name = self.request.__name__.removesuffix("Request")
            text = f"the broker sent a malformed {name} response in version {self.version}: {error}"
            raise NotKafka(text, bytes(self.body[:_SHOWN_BYTES])) from None


class ClientMachine(Generic[C]):
    """See the module. `address` is for error messages; `chance` returns numbers from 0 to 1, `nonce` new random text for each login.

    `versions`: what the broker supports, by API key; `features`: the levels of the cluster's finalized features, by name (KIP-584).
    `failure` is set when the peer has broken the protocol: the adapter closes the connection with it, after it has handled the
    responses that came before.
    """

    def __init__(
        self, address: str, settings: ClientSettings, chance: Callable[[], float], nonce: Callable[[], str] | None = None
    ) -> None:
        self.address = address
        self.settings = settings
        self.state = State.DISCONNECTED
        self.backoff = Backoff(chance)
        self.failure: ConnectionFailed | None = None
        self.versions: Mapping[int, VersionRange] = {}
        self.features: Mapping[str, int] = {}
        self.in_flight: deque[InFlight[C]] = deque()
        self._nonce = nonce
        self._negotiating: InFlight[None] | None = None  # a request of the machine itself
        self._login: Generator[Request, Any, int] | None = None
        self._lifetime_s = 0.0
        self._renew_s: float | None = None
        self._connect_deadline_s: float | None = None
        self._correlation_id = 0
        self._responses = 0
        self._frames = ResponseFrames(settings.response_bytes_max)
        self._outgoing: deque[memoryview] = deque()

    # --- events of the connection ---

    def connect_started(self, now_s: float) -> None:
        """An attempt to connect began."""
        self._change(Event.CONNECT_STARTED)
        self._connect_deadline_s = now_s + self.settings.connect_timeout_s
        self.failure = None
        self.versions = {}
        self.features = {}
        self._responses = 0
        self._lifetime_s, self._renew_s = 0.0, None
        self._frames = ResponseFrames(self.settings.response_bytes_max)

    def connected(self, now_s: float) -> None:
        """The connection is there; the negotiation of versions begins."""
        self._change(Event.CONNECTED)
        self._connect_deadline_s = None
        self._ask_versions(ApiVersionsRequest.versions.high, now_s + self.settings.request_timeout_s)

    def disconnected(self, now_s: float) -> list[InFlight[C]]:
        """The connection is gone, or the attempt failed. The requests without a response: it is not known whether they were served."""
        self._change(Event.DISCONNECTED)
        self.backoff.failed(now_s)
        unanswered = list(self.in_flight)
        self.in_flight.clear()
        self._outgoing.clear()
        self._negotiating = self._login = None
        self._connect_deadline_s = None
        return unanswered

    def closed_by_peer(self, reason: str = "") -> ConnectionFailed:
        """The error for an end of the connection that this side did not cause, before `disconnected`."""
        if self.failure is not None:
            return self.failure
        received = self._frames.incomplete
        if received.startswith(_TLS_RECORDS):
            return TlsExpected(f"{self.address} answers in TLS; this client connects without TLS", received)
        detail = f" ({reason})" if reason else ""
        if self.state is State.NEGOTIATING:
            return Closed(f"{self.address} closed the connection without a response{detail}", received)
        if self.in_flight and not self._responses:
            text = f"{self.address} closed the connection at the first request after ApiVersions{detail}"
            return AuthenticationExpected(f"{text}; a listener with SASL does that", received)
        return Closed(f"{self.address} closed the connection{detail}", received)

    # --- requests ---

    @property
    def ready(self) -> bool:
        """Whether the versions are known and a request may be sent now: fewer than in_flight_max are without a response."""
        return self.state is State.READY and len(self.in_flight) < self.settings.in_flight_max

    def check_session(self, now_s: float) -> None:
        """Log in again if the session ends soon: requests that are in flight are answered first. To be called before requests are sent."""
        if not self._lifetime_s:
            return
        if self._renew_s is None:
            self._renew_s = now_s + self._lifetime_s * RENEWED_AT
        if now_s >= self._renew_s and self.state is State.READY:
            self._change(Event.RENEWAL_STARTED)
        if self.state is State.RENEWING and self._negotiating is None and not self.in_flight:
            self._begin_login(now_s + self.settings.request_timeout_s)

    def version_of(self, request: type[Request]) -> int | None:
        """The newest version of a request that both sides support; None when there is none."""
        theirs = self.versions.get(request.api_key)
        if theirs is None:
            return None
        version = min(theirs.high, request.versions.high)
        return version if version >= max(theirs.low, request.versions.low) else None

    def required_version(self, request: type[Request], version_max: int | None = None) -> int:
        """The same, at most `version_max`; TooOld when there is none."""
        version = self.version_of(request)
        if version is not None and version_max is not None:
            version = min(version, version_max) if version_max >= self.versions[request.api_key].low else None
        if version is None:
            name = request.__name__.removesuffix("Request")
            raise TooOld(f"{self.address} supports no version of {name} that is known here ({request.versions}); use a newer broker")
        return version

    def send(
        self, request: Request, context: C, now_s: float, *, timeout_s: float | None = None, version_max: int | None = None,
        response_expected: bool = True,
    ) -> None:  # fmt: skip
        """Add a request to `outgoing`. Only while `ready`. TooOld.

        The records of the request must not change until they are sent. Without `response_expected` (Produce with acks=0) it has no deadline
        and never completes.
        """
        assert self.ready, "a request was sent on a connection that is not ready"
        kind = type(request)
        version = self.required_version(kind, version_max)
        correlation_id = self._add(request, version)
        if response_expected:
            deadline_s = now_s + (self.settings.request_timeout_s if timeout_s is None else timeout_s)
            self.in_flight.append(InFlight(kind, version, correlation_id, deadline_s, context))

    # --- bytes ---

    @property
    def unsent(self) -> bool:
        """Whether there is anything to send."""
        return bool(self._outgoing)

    def outgoing(self) -> list[memoryview]:
        """The next parts to send, one after the other. They stay until `sent` reports them."""
        unsent = self._outgoing
        return list(islice(unsent, OUTGOING_PARTS_MAX))

    def sent(self, count: int) -> None:
        """`count` more bytes of `outgoing` were sent."""
        unsent = self._outgoing
        while count:
            first = unsent[0]
            if count < len(first):
                unsent[0] = first[count:]
                return
            count -= len(first)
            unsent.popleft()

    def buffer(self) -> memoryview:
        """Where to receive the next bytes."""
        return self._frames.buffer()

    def received(self, count: int) -> list[Completed[C]]:
        """`count` bytes were received into `buffer()`: the requests that they complete. See `failure` afterwards."""
        return self._complete(self._frames.received(count))

    def feed(self, data: bytes) -> list[Completed[C]]:
        """The same for bytes that are not in `buffer()`."""
        return self._complete(self._frames.feed(data))

    # --- time ---

    @property
    def deadline_s(self) -> float | None:
        """When `expired` has to be asked; None while nothing is waited for."""
        if self._connect_deadline_s is not None:
            return self._connect_deadline_s
        if self._negotiating is not None:
            return self._negotiating.deadline_s
        return min([waiting.deadline_s for waiting in self.in_flight], default=None)

    def expired(self, now_s: float) -> ConnectionFailed | None:
        """The error to close the connection with, when a deadline has passed.

        One late response ends the connection: all later ones come after it.
        """
        deadline_s = self.deadline_s
        if deadline_s is None or now_s < deadline_s:
            return None
        if self.state is State.CONNECTING:
            return Unreachable(self.address, f"no answer within {self.settings.connect_timeout_s:g} s", TimeoutError())
        late = self._negotiating or self.in_flight[0]
        name = late.request.__name__.removesuffix("Request")
        return Silent(f"{self.address} accepts connections but did not respond to {name} in time")

    # --- inside ---

    def _change(self, event: Event) -> None:
        self.state = TRANSITIONS[self.state, event]

    def _add(self, request: Request, version: int) -> int:
        parts = encode(request, version)
        self._correlation_id = (self._correlation_id + 1) % CORRELATION_IDS
        size = sum(map(len, parts))
        prefix = request_prefix(type(request), version, self._correlation_id, self.settings.client_id, size)
        self._outgoing.append(memoryview(prefix))
        self._outgoing.extend(map(memoryview, filter(len, parts)))
        return self._correlation_id

    def _ask_versions(self, version: int, deadline_s: float) -> None:
        request = ApiVersionsRequest(client_software_name="txbroker", client_software_version=__version__)
        correlation_id = self._add(request, version)
        self._negotiating = InFlight(ApiVersionsRequest, version, correlation_id, deadline_s, None)

    def _complete(self, frames: list[memoryview]) -> list[Completed[C]]:
        completed: list[Completed[C]] = []
        for frame in frames:
            if self.failure is not None:
                return completed
            correlation_id = _CORRELATION_ID.unpack_from(frame)[0]
            if self._negotiating is not None:
                self._own_answered(self._negotiating, correlation_id, frame)
            elif not self.in_flight or self.in_flight[0].correlation_id != correlation_id:
                self._fail("sent a response that was not requested", frame)
            else:
                waiting = self.in_flight[0]
                body = self._body(waiting, frame)
                if body is not None:
                    self.in_flight.popleft()
                    self._responses += 1
                    completed.append(Completed(waiting.request, waiting.version, waiting.context, body))
        malformed = self._frames.malformed
        if malformed is not None and self.failure is None:
            if malformed.startswith(_TLS_RECORDS):
                self.failure = TlsExpected(f"{self.address} answers in TLS; this client connects without TLS", malformed)
            else:
                self.failure = NotKafka(f"{self.address} does not speak Kafka's protocol", malformed)
        return completed

    def _body(self, waiting: InFlight[Any], frame: memoryview) -> memoryview | None:
        try:
            return frame[response_body_position(frame, response_header_version(waiting.request, waiting.version)) :]
        except ProtocolError:
            self._fail("does not speak Kafka's protocol", frame)
            return None

    def _own_answered(self, asked: InFlight[None], correlation_id: int, frame: memoryview) -> None:
        if correlation_id != asked.correlation_id:
            self._fail("does not speak Kafka's protocol", frame)
        elif self._login is None:
            self._versions_answered(asked, frame)
        elif (body := self._body(asked, frame)) is not None:
            try:
                answer = decode(response_class(asked.request), asked.version, body)
            except ProtocolError as error:
                self._fail(f"sent a malformed response to a login ({error})", frame)
            else:
                self._log_in(self._login, answer, asked.deadline_s)

    def _begin_login(self, deadline_s: float) -> None:
        security = self.settings.security
        assert security is not None and security.sasl is not None and self._nonce is not None, "there are no settings of SASL"
        self._login = login_steps(security.sasl, self._nonce())
        self._log_in(self._login, None, deadline_s)

    def _log_in(self, login: Generator[Request, Any, int], answer: Any, deadline_s: float) -> None:
        """Go on with the login after this answer."""
        self._negotiating = None
        try:
            request = login.send(answer)
            if request.api_key not in self.versions:
                raise TooOld(f"{self.address} does not offer SASL: specify a listener that does, or security.protocol=PLAINTEXT")
            version = self.required_version(type(request))
        except StopIteration as done:
            self._login = None
            self._lifetime_s, self._renew_s = done.value / 1000, None
            self._change(Event.RENEWED if self.state is State.RENEWING else Event.NEGOTIATED)
            self.backoff.succeeded()
        except ConnectionFailed as error:
            self.failure = error
        else:
            self._negotiating = InFlight(type(request), version, self._add(request, version), deadline_s, None)

    def _versions_answered(self, asked: InFlight[None], frame: memoryview) -> None:
        body = frame[4:]
        if asked.version and len(body) >= 2 and _ERROR_CODE.unpack_from(body)[0] == ErrorCode.UNSUPPORTED_VERSION:
            self._ask_versions(0, asked.deadline_s)
            return
        try:
            answer = decode(ApiVersionsResponse, asked.version, body)
        except ProtocolError as error:
            self._fail(f"sent a malformed ApiVersions response ({error})", frame)
            return
        if answer.error_code:
            self._fail(f"refused ApiVersions (error {answer.error_code})", frame)
            return
        self.versions = {api.api_key: VersionRange(api.min_version, api.max_version) for api in answer.api_keys}
        self.features = {feature.name: feature.max_version_level for feature in answer.finalized_features}
        self._negotiating = None
        if self.settings.security is not None and self.settings.security.sasl is not None:
            self._begin_login(asked.deadline_s)
        else:
            self.backoff.succeeded()
            self._change(Event.NEGOTIATED)

    def _fail(self, what: str, frame: memoryview) -> None:
        self.failure = NotKafka(f"{self.address} {what}", bytes(frame[:_SHOWN_BYTES]))

