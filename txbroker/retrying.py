"""Work that is done again until it succeeds: the one loop under sessions, child processes, and observers of the metadata.

And calls of several observers, of which one that fails must not stop the others.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from typing import TypeVar

from twisted.internet.defer import CancelledError
from twisted.internet.task import deferLater

from txbroker.backoff import Backoff
from txbroker.clock import Clock

T = TypeVar("T")
Say = Callable[[Exception], object]


async def retrying(
    work: Callable[[], Awaitable[T]],
    clock: Clock,
    backoff: Backoff,
    say: Say,
    *,
    final: tuple[type[Exception], ...] = (),
    until_s: float = math.inf,
) -> T:
    """The result of `work`, which is called again after each exception but CancelledError, when `backoff` permits it.

    CancelledError is raised at once: to end the loop cancel the Deferred that runs it, or let `work` raise it.
    Raised are also errors of `final`, and one after which the next attempt would begin after `until_s` (of the clock). `say` receives the
    first failure in succession, the second, the fourth, the eighth and so on.

    The caller reports success to the back-off: work that only begins something has not succeeded yet.
    """
    while True:
        wait_s = backoff.wait_s(clock.seconds())
        if wait_s > 0:
            await deferLater(clock, wait_s)  # type: ignore[arg-type]
        try:
            return await work()
        except CancelledError:
            raise
        except final:
            raise
        except Exception as error:
            now_s = clock.seconds()
            backoff.failed(now_s)
            if now_s + backoff.wait_s(now_s) > until_s:
                raise
            if backoff.failures.bit_count() == 1:
                say(error)


def warning(log: logging.Logger, line: str, *expected: type[Exception]) -> Say:
    """Writes a log line, which has one `%s`: a warning for an expected error, and for another one, a defect, an error with a traceback."""

    def say(error: Exception) -> None:
        if isinstance(error, expected):
            log.warning(line, error)
        else:
            log.error(line, f"internal error: {error!r}", exc_info=error)

    return say


def call_each(log: logging.Logger, what: str, *calls: Callable[[], object]) -> None:
    """Make all calls. An exception of one is logged with `what` has failed, and does not keep the event from the others."""
    for call in calls:
        try:
            call()
        except Exception:
            log.exception("internal error: %s failed", what)
