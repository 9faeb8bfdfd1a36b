"""Whether the first request of a connection was ApiVersions: a client that then leaves misses something that is not implemented."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from txbroker.api.registry import Route
from txbroker.wire.headers import API_VERSIONS_KEY


class FirstRoutes:
    """The routes of a new connection, until its first request that is not ApiVersions. Later requests do not pay for this."""

    __slots__ = ("_on_other", "_routes", "greeted")

    def __init__(self, routes: Mapping[int, Route], on_other: Callable[[], None]) -> None:
        self._routes = routes
        self._on_other = on_other
        self.greeted = False
        """Whether there was an ApiVersions request."""

    def __getitem__(self, key: int) -> Route:
        if key >> 16 == API_VERSIONS_KEY:
            self.greeted = True
        else:
            self._on_other()
        return self._routes[key]
