"""The dispatch table: which handler serves which API key, in which versions.

A handler is an object with

    request: type[Request]          the request class that it handles, and with it the API key
    __call__(request, context)      -> Response | Frame | CachedResponse | None; a Deferred or ParkedRequest of it
    versions: VersionRange          optional: a range narrower than the schema's
    advertised: bool                optional: False for an API that is answered, but not listed by ApiVersions
    for_login: bool                 optional: True for an API that is listed on listeners with SASL, though it is not advertised elsewhere
    in_cluster: bool                optional: True for an API that only a broker of a cluster serves (for the documentation)
    overlaps: bool                  optional, False: whether it may be called while earlier requests of its connection are in flight
                                    (txbroker.connection says when that is safe)
    is_answered(request) -> bool    optional, True: whether there is a response if the request succeeds; without one, its failure closes the
                                    connection, so that no request after it may be handled while it waits
    is_exempt(request) -> bool      optional, False: a request between brokers, to which no client quota applies
    release_records(request) -> int optional: removes the records of a request once __call__ has returned; their bytes
    resources(request, context)     what the request does with which resources (api/resources.py)
    elements_max: int               optional: the elements of all arrays of a request, where a client's limit is too low
    failed(request, context, error) -> Response | None          optional: the response to a request that failed as a whole
    errors: Errors                  optional: the error codes of its responses, which it counts itself; otherwise they are counted here

`__call__` returns a response, encoded already or not (api/encoded), or None if there is none (acks=0); if the response comes later, a
Deferred or a ParkedRequest (api/parking.py). Record views in the request are valid until it returns. A BrokerError that it raises, or that
its Deferred fails with, is the failure of the whole request; any other exception is logged and counts as one with UNKNOWN_SERVER_ERROR.
`failed` then makes the response that carries `error.code`. If it is missing, raises or returns None, the connection is closed, as Kafka
does for a producer with acks=0.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from twisted.internet.defer import Deferred

from txbroker.api.authorization import AllowAll, Authorizer, Guard
from txbroker.api.encoded.cached_response import CachedResponse
from txbroker.api.encoded.response_frame import Frame, Part
from txbroker.api.parking import ParkedRequest
from txbroker.api.request_context import RequestContext
from txbroker.api.request_counts import SAMPLED_ONE_IN, Clock, Errors, ErrorTally, RequestTimes
from txbroker.api.unsupported_features import UnsupportedFeatures
from txbroker.client_quotas.quotas import ClientQuotas
from txbroker.errors import BrokerError, ProtocolError
from txbroker.repeated_lines import RepeatedLines
from txbroker.wire.codec import decoder, encoder
from txbroker.wire.headers import request_header_version, response_header_version
from txbroker.wire.schema import Request, Response, VersionRange, response_class

if TYPE_CHECKING:
    from txbroker.security.audit_trail import AuditTrail

Answer: TypeAlias = Response | Frame | CachedResponse
HandlerResult: TypeAlias = Answer | Deferred[Any] | ParkedRequest[Any] | None  # of Answer | None; both are invariant


class Handler(Protocol):
    """What can be registered; the module's docstring has the optional members."""

    @property
    def request(self) -> type[Request]: ...

    @property
    def __call__(self) -> Callable[[Any, RequestContext], HandlerResult]: ...


class Api(NamedTuple):
    """What the registry knows of an API without its handler: the members are as those of handlers."""

    key: int
    name: str
    versions: VersionRange
    advertised: bool = True
    for_login: bool = False

    @classmethod
    def of(cls, handler: Handler) -> Api:
        """The API of a handler."""
        request = handler.request
        versions: VersionRange = getattr(handler, "versions", request.versions)
        is_advertised, is_for_login = getattr(handler, "advertised", True), getattr(handler, "for_login", False)
        return cls(request.api_key, api_name(request), versions, is_advertised, is_for_login)


class UnsupportedVersion(ProtocolError):
    """The API key is served, but not in this version."""


class NotLoaded(ProtocolError):
    """The code of a handler cannot be read now; the next request tries it again. The peer is not to blame, but without it has no answer."""


class Route:
    """Everything that requests of one API key and version need, looked up once."""

    __slots__ = ("_rounds", "api_key", "api_version", "call", "decode", "encode", "failed", "flexible", "is_answered", "is_exempt",
                 "name", "overlaps", "release_records", "request_header", "requests_until_sample", "response",
                 "response_header", "times")  # fmt: skip

    def __init__(
        self, handler: Handler, version: int, times: RequestTimes, tally: Callable[[Any], None] | None, authorizer: Authorizer
    ) -> None:
        request = handler.request
        self.api_key = request.api_key
        self.api_version = version
        self.name = f"{api_name(request)} v{version}"
        self.call: Callable[[Request, RequestContext], HandlerResult] = handler.__call__
        self.failed: Callable[[Any, RequestContext, BrokerError], Response | None] | None = getattr(handler, "failed", None)
        if not authorizer.allows_all:
            self.call = Guard(request, version, self.call, self.failed, handler.resources, authorizer).call  # type: ignore[attr-defined]
        self.release_records: Callable[[Any], int] | None = getattr(handler, "release_records", None)
        self.overlaps: bool = getattr(handler, "overlaps", False)
        self.is_answered: Callable[[Any], bool] = getattr(handler, "is_answered", _always)
        self.is_exempt: Callable[[Any], bool] = getattr(handler, "is_exempt", _never)
        self.flexible = version in request.flexible
        self.decode: Callable[[memoryview], Request] = decoder(
            request, version, exact=False, elements_max=getattr(handler, "elements_max", None)
        )
        self.response = response_class(request)
        self.encode: Callable[[Response], list[Part]] = _tallying(encoder(self.response, version), tally)
        self.request_header = request_header_version(request, version)
        self.response_header = response_header_version(request, version)
        self.times = times
        self.requests_until_sample = 1
        """Counted down with each request; one that makes it 0 is timed: `begin_timed`."""
        self._rounds = 0

    def begin_timed(self) -> float:
        """Start to time a request: the time for `times.end`, or 0.0 when nothing is timed."""
        self.requests_until_sample = SAMPLED_ONE_IN
        self._rounds += 1
        return self.times.begin()

    @property
    def requests(self) -> int:
        """How many there were."""
        return self._rounds * SAMPLED_ONE_IN - self.requests_until_sample + 1


def _never(request: object) -> bool:
    return False


def _always(request: object) -> bool:
    return True


def between_brokers(request: object) -> bool:
    """`is_exempt` of a handler that only brokers call."""
    return True


def _tallying(encode: Callable[[Any], list[Any]], tally: Callable[[Any], None] | None) -> Callable[[Any], list[Any]]:
    if tally is None:
        return encode

    def encode_and_tally(response: Any) -> list[Any]:
        tally(response)
        return encode(response)

    return encode_and_tally


class Registry:
    """The handlers of a broker, by API key, and what became of their requests.

    `errors`: how often responses had each error code, by API key. `closed`: how often connections were closed, by reason.
    """

    def __init__(
        self,
        handlers: Iterable[Handler] = (),
        *,
        clock: Clock | None = None,
        quotas: ClientQuotas | None = None,
        authorizer: Authorizer | None = None,
        audit: AuditTrail | None = None,
        lines: RepeatedLines | None = None,
    ) -> None:
        """`clock` returns monotonic seconds, to time some requests; without it none is timed. `quotas`: of clients, if there can be any.
        `authorizer`: without one every client may do everything. `audit`: if there is an audit log.

        `lines`: limits the lines of the log about connections that are closed; without it each has one."""
        self.quotas = quotas
        self.audit = audit
        if audit is not None:
            audit.api_name = self.name
        self.authorizer = authorizer or AllowAll()
        self._clock = clock
        self._apis: dict[int, Api] = {}
        self._handlers: dict[int, Handler] = {}
        self._later: dict[int, Callable[[], Iterable[Handler]]] = {}
        self._times: dict[int, RequestTimes] = {}
        self._tallies: dict[int, Callable[[Any], None] | None] = {}
        self.errors: dict[int, Errors] = {}
        self.closed: Counter[str] = Counter()
        self._lines = lines
        self.unsupported = UnsupportedFeatures()
        self.routes: dict[int, Route] = _Routes(self._resolve)
        """The hot look-up: `routes[route_key(api_key, api_version)]`. Raises ProtocolError instead of KeyError.

        Two of its kinds are UnsupportedVersion and NotLoaded.
        """
        for handler in handlers:
            self.register(handler)

    def connection_closed(self, peer_host: str, reason: str, is_logged: bool) -> int | None:
        """Count it. For each address and reason the log has a line once a minute: returns how often it was left out since the last one.

        None: leave it out, also if what led to it is in the log already (`is_logged`).
        """
        self.closed[reason] += 1
        if is_logged:
            return None
        return 0 if self._lines is None else self._lines.left_out((peer_host, reason))

    def register(self, handler: Handler) -> None:
        """Add a handler. ValueError when its key is taken, or its range leaves the schema's."""
        api, known = Api.of(handler), handler.request.versions
        if api.versions.low > api.versions.high or api.versions.low not in known or api.versions.high not in known:
            raise ValueError(f"{api.name} has versions {known}, and its handler asks for {api.versions}")
        self._add(api)
        self._put(api.key, handler)

    def register_later(self, apis: Iterable[Api], make: Callable[[], Iterable[Handler]]) -> None:
        """Add APIs whose handlers are made, and their modules imported, for the first request of one of them; ValueError."""
        for api in apis:
            self._add(api)
            self._later[api.key] = make

    def _add(self, api: Api) -> None:
        if api.key in self._apis:
            raise ValueError(f"{api.name} has a handler already")
        self._apis[api.key] = api
        self._times[api.key] = RequestTimes(self._clock)
        self.errors[api.key] = Counter()

    def _put(self, key: int, handler: Handler) -> None:
        self._handlers[key] = handler
        counted: Errors | None = getattr(handler, "errors", None)
        if counted is not None:
            self.errors[key] = counted

    def handler(self, api_key: int) -> Handler:
        """The handler of an API that is served; NotLoaded."""
        if api_key not in self._handlers:
            try:
                made = list(self._later[api_key]())
            except OSError as error:
                remedy = "; raise the limit of open files (ulimit -n)" if error.errno in (errno.EMFILE, errno.ENFILE) else ""
                raise NotLoaded(f"the code for {self.name(api_key)} cannot be read: {error.strerror or error}{remedy}") from error
            for handler in made:
                api = Api.of(handler)
                if self._apis[api.key] != api:
                    raise ValueError(f"{api} was registered as {self._apis[api.key]}")
                self._put(api.key, handler)
        return self._handlers[api_key]

    def requests(self) -> dict[int, type[Request]]:
        """The request classes of all APIs, by key; makes all handlers. NotLoaded."""
        return {key: self.handler(key).request for key in self._apis}

    @property
    def times(self) -> Mapping[int, RequestTimes]:
        """How long requests took, by API key."""
        return self._times

    def name(self, api_key: int) -> str:
        """The name of an API that is served."""
        return self._apis[api_key].name

    def ranges(self, with_login: bool = False) -> dict[int, VersionRange]:
        """What ApiVersions advertises: API key to versions, by ascending key. `with_login`: on a listener with SASL."""
        listed = (api for _, api in sorted(self._apis.items()) if api.advertised or (with_login and api.for_login))
        return {api.key: api.versions for api in listed}

    def _resolve(self, api_key: int, api_version: int) -> Route:
        api = self._apis.get(api_key)
        if api is None:
            raise ProtocolError(f"no such API key here: {api_key} (version {api_version})")
        if api_version not in api.versions:
            raise UnsupportedVersion(f"{api.name} v{api_version} is not served, only versions {api.versions}")
        handler = self.handler(api_key)
        return Route(handler, api_version, self._times[api_key], self._tally(handler), self.authorizer)

    def _tally(self, handler: Handler) -> Callable[[Any], None] | None:
        """What counts the errors of a handler that does not do so itself; one for all versions, made on first use."""
        key = handler.request.api_key
        if key not in self._tallies:
            own = hasattr(handler, "errors")
            self._tallies[key] = None if own else ErrorTally(response_class(handler.request), self.errors[key])
        return self._tallies[key]


class _Routes(dict[int, Route]):
    """Routes are made on first use. Requests for unknown APIs leave nothing behind, so that clients cannot make the table grow."""

    def __init__(self, resolve: Callable[[int, int], Route]) -> None:
        super().__init__()
        self._resolve = resolve

    def __missing__(self, key: int) -> Route:
        made = self[key] = self._resolve(_signed(key >> 16), _signed(key & 0xFFFF))
        return made


def route_key(api_key: int, api_version: int) -> int:
    """The first four bytes of a request, as one unsigned number."""
    return (api_key & 0xFFFF) << 16 | api_version & 0xFFFF


def _signed(number: int) -> int:
    return number - 0x10000 if number & 0x8000 else number


def api_name(request: type[Request]) -> str:
    """The name of an API as Kafka's protocol guide has it."""
    return request.__name__.removesuffix("Request")
