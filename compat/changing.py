"""A driver requests a change of the brokers with a line on standard output; a line on standard input confirms it.

That line is the address of the leader of the topic's first partition. Standard library only.
"""

from __future__ import annotations

import json
import sys

from compat.adapter import Unsupported


def restart_broker(topic: str) -> None:
    """Return when the broker has been restarted; of several brokers, the leader of the topic's first partition after kill -9."""
    if not _requested(restart=topic):
        raise Unsupported("the broker cannot be restarted here")


def move_leaders(topic: str) -> str | None:
    """Return when the leaders of the topic, and of internal topics, are other brokers, if there are several.

    The address of the leader of its first partition; None if nothing confirms requests here.
    """
    return _requested(move=topic) or None


def _requested(**line: str) -> str:
    print(json.dumps(line), flush=True)
    return sys.stdin.readline().strip()
