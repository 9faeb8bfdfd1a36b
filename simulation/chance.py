"""Random numbers: one stream for each purpose, all of them from one seed."""

from __future__ import annotations

from random import Random


def stream(seed: int, purpose: str) -> Random:
    """The stream of a purpose. Other purposes do not influence it."""
    return Random(f"{seed}/{purpose}")
