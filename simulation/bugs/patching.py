"""What a deliberate bug consists of."""

from __future__ import annotations

from typing import Any, NamedTuple


class Patch(NamedTuple):
    """An attribute of a class or module, and what replaces it."""

    owner: Any
    attribute: str
    value: Any
