"""All that a broker takes from outside. Made in `tap.py` of the real things, in tests of whatever they need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from twisted.internet.defer import Deferred

from txbroker.cluster.tree import Tree
from txbroker.log.directories import RunAll
from txbroker.log.disk import Disk
from txbroker.log.values import Later


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """The reactor, threads, the disk, the clock and chance."""

    reactor: Any
    disk: Disk
    in_worker: Callable[[Callable[[], Any]], Deferred[Any]]
    later: Later
    run_all: RunAll
    open_tree: Callable[[str], Tree]
    now_ms: Callable[[], int]
    random: Random
    random_bytes: Callable[[int], bytes]
    host_name: Callable[[], str]

    def unique_id(self) -> str:
        """32 hexadecimal digits, new at each call."""
        return self.random_bytes(16).hex()
