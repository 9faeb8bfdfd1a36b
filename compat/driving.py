"""Every driver in Python: the features that were asked for, one after the other, each with a line of JSON."""

from __future__ import annotations

import json
import sys
import time
import traceback
from typing import Any

from compat.adapter import Client, Fault, Unsupported
from compat.living import LIVING
from compat.matrix import CLIENTS, FEATURES
from compat.simple import SIMPLE

_KNOWN = SIMPLE | LIVING


def drive(adapter: type[Client]) -> None:
    """Run the features named on the command line (`HOST:PORT [FEATURE ...]`), or all."""
    address, *names = sys.argv[1:]
    client = adapter(address)
    _print(client=client.name, version=client.version)
    for name in names or FEATURES[CLIENTS]:
        topic = f"compat-{client.name}-{name}-{time.time_ns() // 1_000_000}".replace(" ", "-")
        _print(feature=name, **_attempt(name, client, topic))
    client.close()


def _attempt(name: str, client: Client, topic: str) -> dict[str, Any]:
    try:
        _KNOWN[name](client, topic)
    except Unsupported as reason:
        return {"ok": None, "detail": str(reason)}
    except Fault as reason:
        return {"ok": None, "fault": str(reason)}
    except Exception as problem:  # whatever a client raises is a cell that says no
        traceback.print_exc()
        return {"ok": False, "detail": f"{type(problem).__name__}: {problem}"}
    return {"ok": True, "detail": ""}


def _print(**line: Any) -> None:
    print(json.dumps(line, ensure_ascii=False), flush=True)
