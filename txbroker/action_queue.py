"""Work that a change causes for others, done at the end of the reactor's turn (Kafka's ActionQueue).

An append does not read, encode or send for the fetches that wait for its partition: the producer would have to wait until all of
them are answered, and twenty appends in one turn would try the same fetches twenty times. It adds an action instead. The actions run
when all connections of the turn have been served and their own answers have been sent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from typing import Any, Protocol, TypeVar

log = logging.getLogger("txbroker.actions")

K = TypeVar("K", bound=Hashable)


class CallLater(Protocol):
    """As of Twisted's IReactorTime."""

    def __call__(self, delay_s: float, call: Callable[[], None], /) -> Any: ...


class ActionQueue:
    """Actions by key; each key is completed once a turn, in the order in which keys were added.

    The poller of connections calls `begin_turn` and `end_turn`. A change outside of such a turn (a timer, the result of a worker) runs its
    actions in the reactor's next iteration, which starts at once.
    """

    def __init__(self, call_later: CallLater) -> None:
        self._call_later = call_later
        self._pending: dict[Any, Callable[[Any], None]] = {}
        self._in_turn = False

    def __len__(self) -> int:
        """How many keys wait to be completed."""
        return len(self._pending)

    def add(self, key: K, action: Callable[[K], None]) -> None:
        """Call `action(key)` at the end of this turn, once, however often the key is added."""
        pending = self._pending
        if not pending and not self._in_turn:
            self._call_later(0, self.end_turn)
        pending[key] = action

    def begin_turn(self) -> None:
        """Hold actions back until `end_turn`."""
        self._in_turn = True

    def end_turn(self) -> None:
        """Run all actions, including those that they add. An exception in one is logged and does not stop the others."""
        self._in_turn = True
        try:
            while self._pending:
                pending, self._pending = self._pending, {}
                for key, action in pending.items():
                    try:
                        action(key)
                    except Exception:
                        log.exception("internal error in an action for %s; the other actions continue", key)
        finally:
            self._in_turn = False
