"""A Spark session that a command does not stop, since others use it too."""

from __future__ import annotations

from typing import Any


class Unstopped:
    """The session, without its `stop`."""

    def __init__(self, opened: Any) -> None:
        self._opened = opened

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._opened, attribute)

    def stop(self) -> None:
        """Nothing."""
