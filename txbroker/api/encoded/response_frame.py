"""Whole response frames, with their size and header."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from txbroker.api.encoded.cached_response import CachedResponse
from txbroker.api.encoded.encoded_response import EncodedResponse, Part
from txbroker.wire.codec import size_of
from txbroker.wire.headers import response_prefix

if TYPE_CHECKING:
    from txbroker.api.registry import Answer, Route
    from txbroker.api.request_context import RequestContext

# A response frame: its parts and their size.
Frame: TypeAlias = tuple[list[Part], int]


def response_frame(response: Answer, route: Route, context: RequestContext) -> Frame:
    """The frame of a response, encoded already or not."""
    if isinstance(response, EncodedResponse):
        return response.parts, response.size
    if isinstance(response, CachedResponse):
        body = response.body(route.encode)
    else:
        parts = route.encode(response)
        if route.has_regions:
            return _framed(parts, route, context)
        try:
            body = b"".join(parts)  # type: ignore[arg-type]  # a TypeError says that there are regions
        except TypeError:
            route.has_regions = True
            return _framed(parts, route, context)
    frame = response_prefix(route.response_header, len(body), context.correlation_id) + body
    return [frame], len(frame)


def _framed(parts: list[Part], route: Route, context: RequestContext) -> Frame:
    """The parts of a body, which begins with bytes, with the frame's size and the header before them."""
    size = size_of(parts)
    prefix = response_prefix(route.response_header, size, context.correlation_id)
    first = parts[0]
    assert isinstance(first, bytes)
    parts[0] = prefix + first
    return parts, size + len(prefix)
