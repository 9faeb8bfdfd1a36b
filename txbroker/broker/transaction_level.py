"""Which version of transactions clients may use: the feature `transaction.version` of KIP-890.

It needs every broker of the cluster. The registrations say what a broker serves: txbroker's have the feature, those of Apache Kafka 3.9
on ZooKeeper do not. Brokers read them whenever the set of live brokers changes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from twisted.internet.defer import CancelledError, Deferred

from txbroker.api.api_versions import FinalizedLevel
from txbroker.backoff import Backoff
from txbroker.clock import Clock
from txbroker.cluster import node_paths
from txbroker.cluster.image import ClusterImage
from txbroker.cluster.node_data import TRANSACTION_VERSION, MalformedNode, decode_broker
from txbroker.cluster.tree.interface import NoNode, SessionExpired, Tree, TreeError
from txbroker.retrying import retrying, warning

log = logging.getLogger("txbroker.broker")

RETRY_S, RETRY_S_MAX = 1.0, 10.0  # after ZooKeeper could not be read


class TransactionLevel:
    """`finalized`: 2 if every live broker serves transactions v2, otherwise 0: those of brokers before KIP-890.

    Its epoch is the time of the change, which brokers have nearly in common; -1 before the registrations were read.
    """

    def __init__(
        self, tree: Tree, image: ClusterImage, clock: Clock, now_ms: Callable[[], int], chance: Callable[[], float], *, is_alone: bool
    ) -> None:
        """`chance` returns numbers from 0 to 1."""
        self._tree = tree
        self._image = image
        self._clock = clock
        self._now_ms = now_ms
        self._chance = chance
        self._reading: Deferred[None] | None = None
        self._changed = False
        self._stopped = False
        self.finalized = FinalizedLevel(TRANSACTION_VERSION, 0) if is_alone else FinalizedLevel(0, -1)

    def brokers_changed(self) -> None:
        """The set of live brokers has changed."""
        self._changed = True
        if self._reading is None and not self._stopped:
            read = retrying(self._read, self._clock, Backoff(self._chance, RETRY_S, RETRY_S_MAX), _say)
            self._reading = reading = Deferred.fromCoroutine(read)
            reading.addErrback(lambda failure: failure.trap(CancelledError)).addBoth(self._have_read)

    def stop(self) -> None:
        """Read no more."""
        self._stopped = True
        if self._reading is not None:
            self._reading.cancel()

    def _have_read(self, _: object) -> None:
        self._reading = None

    async def _read(self) -> None:
        self._changed = True
        while self._changed:
            self._changed = False
            level = min([await self._of(broker_id) for broker_id in list(self._image.brokers)], default=0)
            before = self.finalized
            if level != before.level or before.epoch < 0:
                self.finalized = FinalizedLevel(level, max(self._now_ms(), before.epoch + 1))
                log.info("clients may use transactions of version %d now", level)

    async def _of(self, broker_id: int) -> int:
        data, _ = await self._tree.get(node_paths.broker(broker_id))
        try:
            return 0 if data is None else min(decode_broker(data).transaction_version, TRANSACTION_VERSION)
        except MalformedNode:
            return 0


def _say(error: Exception) -> None:
    if not isinstance(error, NoNode | SessionExpired):  # a broker has stopped, and the image follows; the next session follows
        warning(log, "the registrations of brokers cannot be read, retrying: %s", TreeError)(error)
