"""A function that changes answers (`When.edit`): it gets decoded answers, and its errors are kept for the test."""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Callable
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
        self._is_late: Callable[[], bool] | None = None  # while it runs
        self._is_known_late = False  # the test has got the error of the answer that is edited

    def run(self, api: str, version: int, body: bytes, is_late: Callable[[], bool] | None = None) -> tuple[bytes | None, str]:
        """The body of the changed answer; None and why if there is none. `is_late`: whether the client has got the original answer."""
        self._is_known_late, self._is_late = False, is_late
        try:
            return self._edited(api, version, body), ""
        except _Problem as problem:
            self._fails(problem)
            return None, str(problem)
        finally:
            self._is_late = None

    def was_late(self) -> None:
        """The client has got the original answer."""
        if not self._is_known_late:
            self._fails(self._late)

    def take_error(self) -> EditError | None:
        """The first error since the last call."""
        with self._lock:
            error, self._error = self._error, None
        is_late = self._is_late
        if error is None and not self._is_known_late and is_late is not None and is_late():
            self._is_known_late = True
            return self._as_error(self._late)
        return error

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
        error = self._as_error(problem)
        with self._lock:
            if self._error is not None:
                return
            self._error = error
        log.error("%s", error, exc_info=problem.__cause__)

    def _as_error(self, problem: _Problem) -> EditError:
        error = EditError(f"the rule {self._rule} has not edited an answer: {problem}")
        error.__cause__ = problem.__cause__
        return error


def _shown(error: BaseException) -> str:
    """In one line, with the place in the function."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    frames = traceback.extract_tb(error.__traceback__)[1:]  # without the call of the function
    return f"{text[:500]} ({frames[0].filename.rpartition('/')[2]}:{frames[0].lineno})" if frames else text[:500]
