from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.transport.harness import ListenerHarness


@pytest.fixture
def start() -> Iterator[Callable[..., ListenerHarness]]:
    """Creates `ListenerHarness`s and closes them."""
    made: list[ListenerHarness] = []

    def make(*arguments: Any, **limits: Any) -> ListenerHarness:
        made.append(ListenerHarness(*arguments, **limits))
        return made[-1]

    yield make
    for one in made:
        one.close()
