from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.transport.harness import House


@pytest.fixture
def house() -> Iterator[Callable[..., House]]:
    """Creates `House`s and closes them."""
    made: list[House] = []

    def make(*arguments: Any, **limits: Any) -> House:
        made.append(House(*arguments, **limits))
        return made[-1]

    yield make
    for one in made:
        one.close()
