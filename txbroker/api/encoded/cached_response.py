"""Responses that are returned unchanged to many requests: encoded once, and kept as long as they are valid.

Metadata is the case: many clients request the same topics, all of them at once when a leader has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from txbroker.wire.schema import Response


class CachedResponse:
    """The response to all requests of one version that request the same. It must hold no file regions."""

    __slots__ = ("_body", "_response")

    def __init__(self, response: Response) -> None:
        self._response: Response | None = response
        self._body = b""

    def body(self, encode: Callable[[Any], list[Any]]) -> bytes:
        """The response as `encode`, the same function in each call, encodes it."""
        if self._response is not None:
            self._body = b"".join(encode(self._response))
            self._response = None
        return self._body


class ResponseCache:
    """Responses by what was requested, all valid for one `version` of their source; together they weigh at most `weight_max`."""

    def __init__(self, weight_max: int) -> None:
        self._weight_max = weight_max
        self._weight = 0
        self._version = -1
        self._responses: dict[Hashable, CachedResponse] = {}

    def get(self, version: int, key: Hashable) -> CachedResponse | None:
        """The response, if it was made from this version."""
        return self._responses.get(key) if version == self._version else None

    def keep(self, version: int, key: Hashable, response: Response, weight: int) -> CachedResponse:
        """Keep a response, unless it alone is heavier than `weight_max`; the older ones are removed when there is no room for it."""
        cached = CachedResponse(response)
        if weight > self._weight_max:
            return cached
        if version != self._version or self._weight + weight > self._weight_max:
            self._responses.clear()
            self._version = version
            self._weight = 0
        self._responses[key] = cached
        self._weight += weight
        return cached
