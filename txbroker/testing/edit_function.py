"""A function that changes answers (`When.edit`): it gets decoded answers, and its errors are kept for the test."""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from txbroker.testing.edited_values import own_structs, value_problem
from txbroker.testing.errors import EditError
from txbroker.testing.traffic import request_classes
from txbroker.wire.codec import decode, encode_bytes
from txbroker.wire.schema import response_class

log = logging.getLogger("txbroker.testing")


class _Problem(Exception):
    """Why there is no changed answer. The exception of the function is its cause."""


class EditFunction:
    """`rule`: as errors show it. `timeout_s`: how long the broker waits for an answer.

    The first error is kept until the test has got it, and logged with its traceback.
    """

    def __init__(self, function: Callable[[Any], Any], rule: str, timeout_s: float) -> None:
        self._function = function
        self._rule = rule
        advice = "functions run one after the other: let them return sooner, or raise timeout_s"
        self._late = _Problem(f"the function has not returned within {timeout_s:g} s; {advice}")
        self._lock = threading.Lock()
        self._error: EditError | None = None
        self._waiting: list[Callable[[], bool]] = []  # of the answers that wait

    def run(self, api: str, version: int, body: bytes) -> tuple[bytes | None, str]:
        """The body of the changed answer; None and why if there is none."""
        try:
            return self._edited(api, version, body), ""
        except _Problem as problem:
            with self._lock:
                self._fails(problem)
            return None, str(problem)

    @contextmanager
    def waiting(self, is_late: Callable[[], bool]) -> Iterator[None]:
        """An answer waits for the function. `is_late`: whether its client has got the original one, which is an error."""
        with self._lock:
            self._waiting.append(is_late)
        try:
            yield
        finally:
            with self._lock:
                self._look_for_late()
                if is_late in self._waiting:
                    self._waiting.remove(is_late)

    def take_error(self) -> EditError | None:
        """The first error since the last call."""
        with self._lock:
            self._look_for_late()
            error, self._error = self._error, None
        return error

    def _look_for_late(self) -> None:
        """Each late answer is an error once."""
        late = [is_late for is_late in self._waiting if is_late()]
        for is_late in late:
            self._waiting.remove(is_late)
            self._fails(self._late)

    def _edited(self, api: str, version: int, body: bytes) -> bytes:
        response = decode(response_class(request_classes(api)[api]), version, body)
        own_structs(response)
        try:
            returned = self._function(response)
        except BaseException as error:  # as pytest.fail() raises, too: this thread goes on
            raise _Problem(f"the function raised {_shown(error)}") from error
        edited = response if returned is None else returned
        if type(edited) is not type(response):
            right = f"a {type(response).__name__}, or None for the one that it got"
            raise _Problem(f"the function returned {edited!r:.200}; it must be {right}")
        problem, cause = value_problem(edited, version), None
        if not problem:
            try:
                return encode_bytes(edited, version)
            except Exception as error:
                problem, cause = f"{type(error).__name__}: {error}", error
        raise _Problem(f"the answer cannot be encoded: {problem}") from cause

    def _fails(self, problem: _Problem) -> None:
        """The lock must be held."""
        if self._error is None:
            self._error = EditError(f"the rule {self._rule} has not edited an answer: {problem}")
            self._error.__cause__ = problem.__cause__
            log.error("%s", self._error, exc_info=problem.__cause__)


def _shown(error: BaseException) -> str:
    """In one line, with the place in the function."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    frames = traceback.extract_tb(error.__traceback__)[1:]  # without the call of the function
    return f"{text[:500]} ({frames[0].filename.rpartition('/')[2]}:{frames[0].lineno})" if frames else text[:500]
