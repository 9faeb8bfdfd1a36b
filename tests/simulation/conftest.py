"""Nothing of a simulated cluster is left for the tests after it."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _no_remains(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Collect what killed brokers have left, and report no error of it, before the garbage collector starts in the middle of another test.

    Coroutines that are closed run the broker's code, and a report formats their tracebacks. CPython 3.11 formats one with `ast.parse`, and
    an `ast.parse` that runs meanwhile raises SystemError: also one of pytest, which ends the whole run.
    """
    with monkeypatch.context() as patch:
        patch.setattr(sys, "unraisablehook", lambda _: None)
        yield
        gc.collect()
