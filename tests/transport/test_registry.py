"""The dispatch table: served versions, and routes."""

from __future__ import annotations

import errno
from collections import Counter
from typing import Any

import pytest

from txbroker.api.registry import Api, NotLoaded, Registry, UnsupportedVersion, api_name, route_key
from txbroker.errors import ProtocolError
from txbroker.wire.messages.api_versions import ApiVersionsRequest
from txbroker.wire.messages.controlled_shutdown import ControlledShutdownRequest
from txbroker.wire.messages.fetch import FetchRequest, FetchResponse
from txbroker.wire.messages.produce import ProduceRequest
from txbroker.wire.schema import Request, VersionRange


def handler(answers: type[Request], **members: Any) -> Any:
    return type("Handler", (), {"request": answers, "__call__": lambda self, request, context: None, **members})()


def test_the_version_ranges_are_those_of_the_handlers() -> None:
    registry = Registry([handler(FetchRequest, versions=VersionRange(4, 11)), handler(ProduceRequest)])
    assert list(registry.ranges().items()) == [(0, ProduceRequest.versions), (1, VersionRange(4, 11))]


def test_a_handler_may_be_unadvertised() -> None:
    registry = Registry([handler(FetchRequest, advertised=False), handler(ProduceRequest)])
    assert list(registry.ranges()) == [0]
    assert registry.routes[route_key(1, 11)].name == "Fetch v11"


@pytest.mark.parametrize("versions", [VersionRange(3, 2), VersionRange(0, 99), VersionRange(-1, 3)])
def test_a_range_outside_the_schema_is_refused(versions: VersionRange) -> None:
    with pytest.raises(ValueError, match="Fetch has versions"):
        Registry([handler(FetchRequest, versions=versions)])


def test_an_api_key_has_one_handler() -> None:
    with pytest.raises(ValueError, match="Fetch has a handler already"):
        Registry([handler(FetchRequest), handler(FetchRequest)])


def test_handlers_may_be_made_for_the_first_request_of_their_family() -> None:
    made: list[Any] = []

    def make() -> list[Any]:
        made.extend([handler(FetchRequest, versions=VersionRange(4, 11), errors=errors), handler(ProduceRequest, advertised=False)])
        return made

    errors: Counter[int] = Counter()
    registry = Registry()
    apis = Api(1, "Fetch", VersionRange(4, 11)), Api(0, "Produce", ProduceRequest.versions, advertised=False)
    registry.register_later(apis, make)
    assert registry.ranges() == {1: VersionRange(4, 11)}
    assert registry.name(0) == "Produce"
    with pytest.raises(UnsupportedVersion, match="Fetch v12 is not served, only versions 4-11"):
        registry.routes[route_key(1, 12)]
    with pytest.raises(ValueError, match="Produce has a handler already"):
        registry.register(handler(ProduceRequest))
    assert (made, registry.errors) == ([], {0: {}, 1: {}})
    assert registry.routes[route_key(1, 11)].name == "Fetch v11"
    assert registry.errors[1] is errors
    assert [registry.handler(1), registry.handler(0)] == made
    assert registry.requests() == {1: FetchRequest, 0: ProduceRequest}


def test_a_handler_whose_code_cannot_be_read_is_tried_again() -> None:
    """Not every process has a free file descriptor at any time."""
    registry, problems = Registry(), [OSError(errno.EMFILE, "Too many open files"), OSError(errno.EIO, "Input/output error")]

    def make() -> list[Any]:
        if problems:
            raise problems.pop(0)
        return [handler(FetchRequest)]

    registry.register_later([Api.of(handler(FetchRequest))], make)
    for problem in (r"Too many open files; raise the limit of open files \(ulimit -n\)", "Input/output error"):
        with pytest.raises(NotLoaded, match=f"^the code for Fetch cannot be read: {problem}$"):
            registry.routes[route_key(1, 11)]
    assert registry.routes[route_key(1, 11)].name == "Fetch v11"


def test_a_handler_that_is_made_later_is_what_was_registered() -> None:
    registry = Registry()
    registry.register_later([Api(1, "Fetch", VersionRange(4, 11))], lambda: [handler(FetchRequest)])
    with pytest.raises(ValueError, match="was registered as"):
        registry.handler(1)


def test_routes_are_created_once_and_never_for_unknown_keys() -> None:
    registry = Registry([handler(FetchRequest, versions=VersionRange(4, 11), failed=lambda self, request, context, error: None)])
    route = registry.routes[route_key(1, 11)]
    assert (route.name, route.api_key, route.api_version, route.request_header, route.response_header) == ("Fetch v11", 1, 11, 1, 0)
    assert route.response is FetchResponse
    assert route.failed is not None
    assert registry.routes[route_key(1, 11)] is route
    for version in (3, 12, -1):
        with pytest.raises(UnsupportedVersion):
            registry.routes[route_key(1, version)]
    with pytest.raises(ProtocolError, match="no such API key here: -2 "):
        registry.routes[route_key(-2, 0)]
    assert list(registry.routes) == [route_key(1, 11)]


@pytest.mark.parametrize(
    ("request_class", "version", "headers"),
    [
        (FetchRequest, 12, (2, 1)),
        (ApiVersionsRequest, 2, (1, 0)),
        (ApiVersionsRequest, 3, (2, 0)),
        (ControlledShutdownRequest, 0, (0, 0)),
        (ControlledShutdownRequest, 1, (1, 0)),
    ],
)
def test_a_route_has_its_header_versions(request_class: type[Request], version: int, headers: tuple[int, int]) -> None:
    route = Registry([handler(request_class)]).routes[route_key(request_class.api_key, version)]
    assert (route.request_header, route.response_header) == headers


def test_apis_have_the_names_of_the_protocol() -> None:
    assert api_name(ApiVersionsRequest) == "ApiVersions"
