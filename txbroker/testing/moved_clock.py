"""The wall clock of a broker for tests: the real one, ahead by an offset. A file keeps the offset for the next start."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass

from txbroker.ready_file import write_whole
from txbroker.testing.errors import KitError

FILE = "clock"
AHEAD_MS_MAX = 1000 * 365 * 86_400_000


@dataclass(frozen=True, slots=True)
class Offset:
    """By how much the clock is ahead, in milliseconds: `moved_ms` for good, and `scope_ms` until the end of a scope, 0 outside of one."""

    moved_ms: int = 0
    scope_ms: int = 0

    @property
    def ms(self) -> int:
        """Both together."""
        return self.moved_ms + self.scope_ms


def read_offset(directory: str) -> Offset:
    """The offset of the broker in this directory; none if its clock was never moved."""
    try:
        with open(os.path.join(directory, FILE), encoding="utf-8") as file:
            return Offset(**json.load(file))
    except FileNotFoundError:
        return Offset()


class MovedClock:
    """`directory`: of the broker, for its file.

    `offset` is what a restart finds. `shown_ms` is the offset in use, which follows in steps: what falls due at each date happens then.
    """

    def __init__(self, directory: str) -> None:
        self._real_ms: Callable[[], int] = int  # 0, until there is a broker
        self._path = os.path.join(directory, FILE)
        self._offset = read_offset(directory)
        self.shown_ms = self._offset.ms

    def over(self, real_ms: Callable[[], int]) -> Callable[[], int]:
        """The clock that a broker gets instead of its real one."""
        self._real_ms = real_ms
        return self.now_ms

    def now_ms(self) -> int:
        """Milliseconds since 1970, as the broker sees them."""
        return self._real_ms() + self.shown_ms

    @property
    def offset(self) -> Offset:
        """What is set."""
        return self._offset

    def advance(self, by_ms: int) -> None:
        """Set it ahead for good; KitError. `shown_ms` is to follow."""
        if self._offset.scope_ms:
            raise KitError("the clock is in a scope of at(), at whose end it returns: call advance() before or after it")
        self._set(Offset(moved_ms=self._offset.moved_ms + by_ms))

    def begin_scope(self, by_ms: int) -> None:
        """Set it ahead until `end_scope`; KitError if a scope has begun."""
        if self._offset.scope_ms:
            raise KitError("the clock is in a scope of at() already: end that one first")
        self._set(Offset(self._offset.moved_ms, by_ms))

    def end_scope(self) -> None:
        """Return to the time outside of the scope; KitError without one."""
        if not self._offset.scope_ms:
            raise KitError("the clock is in no scope of at()")
        self._set(Offset(self._offset.moved_ms))
        self.shown_ms = self._offset.ms

    def _set(self, offset: Offset) -> None:
        if offset.ms > AHEAD_MS_MAX:
            raise KitError(f"the clock would be {offset.ms // 86_400_000} days ahead; at most {AHEAD_MS_MAX // 86_400_000} are possible")
        write_whole(self._path, json.dumps(asdict(offset)))
        self._offset = offset
