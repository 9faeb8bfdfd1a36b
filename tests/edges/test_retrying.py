"""The loop under everything that is repeated after a failure."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from txbroker.backoff import Backoff
from txbroker.retrying import retrying, warning

log = logging.getLogger("txbroker.test")


class Work:
    """Fails with these errors, then returns 7."""

    def __init__(self, clock: Clock, *errors: Exception) -> None:
        self.clock = clock
        self.errors = list(errors)
        self.at_s: list[float] = []

    async def __call__(self) -> int:
        self.at_s.append(self.clock.seconds())
        if self.errors:
            raise self.errors.pop(0)
        return 7


def run(work: Work, backoff: Backoff | None = None, **options: Any) -> tuple[Deferred[Any], list[Any], list[Exception]]:
    """The Deferred of the loop, its results, and what it said."""
    said: list[Exception] = []
    backoff = backoff or Backoff(lambda: 0.5, 1.0, 8.0)
    done: Deferred[Any] = Deferred.fromCoroutine(retrying(work, work.clock, backoff, said.append, **options))
    results: list[Any] = []
    done.addBoth(results.append)
    return done, results, said


def pass_time(clock: Clock) -> None:
    while calls := clock.getDelayedCalls():
        clock.advance(min(call.getTime() for call in calls) - clock.seconds())


def test_it_repeats_any_error_with_growing_pauses() -> None:
    work = Work(Clock(), *(KeyError(number) for number in range(9)))
    _, results, said = run(work)
    pass_time(work.clock)
    assert results == [7]
    assert work.at_s == [0, 1, 3, 7, 15, 23, 31, 39, 47, 55]
    assert [error.args[0] for error in said] == [0, 1, 3, 7], "the first failure, the second, the fourth, the eighth"


@pytest.mark.parametrize(("chance", "at_s"), [(0.0, 0.8), (0.5, 1.0), (1.0, 1.2)])
def test_pauses_have_jitter(chance: float, at_s: float) -> None:
    work = Work(Clock(), KeyError())
    run(work, Backoff(lambda: chance, 1.0, 8.0))
    pass_time(work.clock)
    assert work.at_s == [0, pytest.approx(at_s)]


def test_the_first_attempt_waits_if_the_work_has_failed_before() -> None:
    work = Work(Clock())
    backoff = Backoff(lambda: 0.5, 1.0, 8.0)
    backoff.failed(0.0)
    _, results, _ = run(work, backoff)
    assert work.at_s == []
    pass_time(work.clock)
    assert (work.at_s, results) == ([1.0], [7])


def test_final_errors_and_the_end_of_the_time_are_raised() -> None:
    work = Work(Clock(), KeyError(), ValueError())
    _, results, said = run(work, final=(ValueError,))
    pass_time(work.clock)
    assert isinstance(results[0], Failure) and results[0].check(ValueError)
    assert len(said) == 1
    late = Work(Clock(), *(KeyError() for _ in range(5)))
    _, results, _ = run(late, until_s=3.5)
    pass_time(late.clock)
    assert isinstance(results[0], Failure) and results[0].check(KeyError)
    assert late.at_s == [0, 1, 3]


def test_it_can_be_cancelled_in_a_pause() -> None:
    work = Work(Clock(), KeyError())
    done, results, _ = run(work)
    done.cancel()
    assert results[0].check(CancelledError) and not work.clock.getDelayedCalls()


def test_an_expected_error_is_a_warning_and_a_defect_has_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    say = warning(log, "cannot do it, retrying: %s", OSError)
    say(OSError("no memory"))
    say(KeyError("x"))
    expected, defect = caplog.records
    assert (expected.levelname, expected.getMessage(), expected.exc_info) == ("WARNING", "cannot do it, retrying: no memory", None)
    assert (defect.levelname, defect.getMessage()) == ("ERROR", "cannot do it, retrying: internal error: KeyError('x')")
    assert defect.exc_info is not None
