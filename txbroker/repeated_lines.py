"""Lines of the log that a client in a loop would repeat for ever: each is written once in a while, with the number of those left out."""

from __future__ import annotations

from collections.abc import Callable, Hashable

LOGGED_EVERY_S = 60.0
# Lines that are remembered; beyond this many the oldest is forgotten, and written again.
LINES_MAX = 1000


class RepeatedLines:
    """When each line was last written (`monotonic_s`). A line has a key, such as the address of a client."""

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._written: dict[Hashable, tuple[float, int]] = {}  # when, and how often it was left out since

    def left_out(self, key: Hashable) -> int | None:
        """How often the line was left out since it was last written; None: leave it out, because it was written in this minute."""
        now_s = self._monotonic_s()
        written = self._written.pop(key, None)
        if written is not None and now_s < written[0] + LOGGED_EVERY_S:
            self._written[key] = written[0], written[1] + 1
            return None
        if len(self._written) >= LINES_MAX:
            del self._written[next(iter(self._written))]
        self._written[key] = now_s, 0
        return 0 if written is None else written[1]
