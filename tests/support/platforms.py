"""The functions of the operating system that tests and their brokers use: `pytest --platform portable`."""

from __future__ import annotations

from txbroker.platform import PORTABLE, system


def platform_override() -> dict[str, str]:
    """The setting for brokers as processes."""
    return {"txbroker.platform": system.name} if system.name == PORTABLE else {}
