"""Mistakes in the controller."""

from __future__ import annotations

from collections.abc import Callable

from txbroker.testing.simulation.bugs.patching import Patch

BUGS: dict[str, Callable[[], list[Patch]]] = {}
