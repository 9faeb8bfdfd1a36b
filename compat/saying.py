"""The output of Python drivers: a line of JSON about the client, and one per feature. Standard library only."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from typing import Any

from compat.adapter import Fault, Unsupported


def introduce(client: str, version: str) -> None:
    """The first line."""
    _say(client=client, version=version)


def attempt(name: str, feature: Callable[[], None]) -> None:
    """Try a feature and print its result."""
    _say(feature=name, **_outcome(feature))


def _say(**line: Any) -> None:
    print(json.dumps(line, ensure_ascii=False), flush=True)


def _outcome(feature: Callable[[], None]) -> dict[str, Any]:
    try:
        feature()
    except Unsupported as reason:
        return {"ok": None, "detail": str(reason)}
    except Fault as reason:
        return {"ok": None, "fault": str(reason)}
    except Exception as problem:  # any exception of a client is a cell with `no`
        traceback.print_exc()
        return {"ok": False, "detail": f"{type(problem).__name__}: {problem}"}
    return {"ok": True, "detail": ""}
