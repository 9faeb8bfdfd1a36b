"""A driver requests a restart of the broker with a line on standard output; a line on standard input confirms it."""

from __future__ import annotations

import json
import sys

from compat.adapter import Unsupported


def restart_broker() -> None:
    """Return when the broker is up again."""
    print(json.dumps({"restart": True}), flush=True)
    if not sys.stdin.readline():
        raise Unsupported("the broker cannot be restarted here")
