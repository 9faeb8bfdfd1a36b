"""Nothing of a simulated cluster is left for the tests after it."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _no_reports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Collect the coroutines of killed brokers, which run the broker's code when they are closed, and report no error of that."""
    with monkeypatch.context() as patch:
        patch.setattr(sys, "unraisablehook", lambda _: None)
        yield
        gc.collect()
