"""Notifies the controller that a log directory of this broker has failed, so that it finds the offline replicas and elects leaders."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from twisted.internet.defer import Deferred

from txbroker.backoff import Backoff
from txbroker.clock import Clock
from txbroker.cluster.broker_ids import report_log_dir_failure
from txbroker.cluster.tree.interface import Tree, TreeError
from txbroker.retrying import retrying, warning

RETRY_S, RETRY_S_MAX = 1.0, 10.0

log = logging.getLogger("txbroker.cluster")


class LogDirReports:
    """One broker's. Two notifications are as good as one. Without a session there is none: after the next registration come all roles."""

    def __init__(self, tree: Tree, broker_id: int, clock: Clock, chance: Callable[[], float]) -> None:
        """`chance` returns numbers from 0 to 1."""
        self._report = partial(report_log_dir_failure, tree, broker_id)
        self._clock = clock
        self._chance = chance
        self._due = False
        self._writing: Deferred[None] | None = None
        self._stopped = False

    def report(self) -> None:
        """Write a notification; again until it is written, or until `stop`."""
        self._due = True
        if self._writing is None and not self._stopped:
            self._writing = writing = Deferred.fromCoroutine(self._write())
            writing.addBoth(self._written)

    def stop(self) -> None:
        """Write no more: the controller finds out when the broker ends."""
        self._stopped = True
        if self._writing is not None:
            self._writing.cancel()

    async def _write(self) -> None:
        say = warning(log, "cannot report an offline directory to the controller, retrying: %s", TreeError)
        while self._due:
            self._due = False
            await retrying(self._report, self._clock, Backoff(self._chance, RETRY_S, RETRY_S_MAX), say)

    def _written(self, _: object) -> None:
        self._writing = None
