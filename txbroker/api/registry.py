"""The dispatch table: which handler answers which API key, in which versions.

A handler is an object with

    request: type[Request]          the request class it answers; its api_key is the handler's key
    versions: tuple[int, int]       optional: a range narrower than the schema's
    __call__(request, context)      -> Response | Deferred[Response | None] | None
    failed(request, context, error) -> Response | None         optional

`__call__` answers with a response, with None (no answer is wanted, as for acks=0) or with a Deferred of either. Record views in the
request are valid until it returns. A BrokerError that it raises, or that its Deferred fails with, is one for the whole
request; so is UNKNOWN_SERVER_ERROR, after any other exception. Then `failed` makes the response that carries `error.code`; where it is missing, raises or
gives None, the connection is closed, which is Kafka's way of telling a producer with acks=0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from txbroker.api.context import RequestContext
from txbroker.errors import ProtocolError

if TYPE_CHECKING:
    from txbroker.wire.schema import Request


class Handler(Protocol):
    """What can be registered; see the module's docstring for the two optional members."""

    request: type[Request]

    def __call__(self, request: Any, context: RequestContext, /) -> Any: ...


class ApiRange(NamedTuple):
    """One row of ApiVersions."""

    api_key: int
    min_version: int
    max_version: int


class UnsupportedVersion(ProtocolError):
    """The API key is known, the version is not."""

    def __init__(self, name: str, api_version: int, served: ApiRange) -> None:
        super().__init__(f"{name} has no version {api_version} here, only {served.min_version} to {served.max_version}")
        self.served = served


class Route:
    """All that one (API key, version) needs, resolved once.

    `encode` gives the body's parts; `head(correlation_id, body_size)` the size and the response header before them.
    """

    __slots__ = ("api_key", "api_version", "call", "decode", "encode", "failed", "flexible_response", "header_version", "name")

    api_key: int
    api_version: int
    name: str
    header_version: int
    flexible_response: bool
    decode: Callable[[memoryview], Any]
    call: Callable[[Any, RequestContext], Any]
    encode: Callable[[Any], Sequence[Any]]
    failed: Callable[[Any, RequestContext, Exception], Any] | None


class Registry:
    """The handlers of a listener; `routes[api_key << 16 | api_version]` finds one request's route.

    Raises ProtocolError for a key without a handler, UnsupportedVersion for a version outside the handler's range.
    """

    routes: dict[int, Route]

    def __init__(self, handlers: Iterable[Handler] = ()) -> None: ...

    def register(self, handler: Handler) -> None:
        """Add one handler; ValueError when its key is taken or its range is not within the schema's."""

    def ranges(self) -> list[ApiRange]:
        """What ApiVersions advertises, by ascending key."""
        raise NotImplementedError
