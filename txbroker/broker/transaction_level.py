"""Which version of transactions clients may use: the feature `transaction.version` of KIP-890.

It needs every broker of the cluster. The registrations say what a broker serves: txbroker's have the feature, those of Apache Kafka 3.9
on ZooKeeper do not. Brokers read them whenever the set of live brokers changes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from twisted.internet.defer import Deferred

from txbroker.api.api_versions import FinalizedLevel
from txbroker.clock import Clock, DelayedCall
from txbroker.cluster import node_paths
from txbroker.cluster.image import ClusterImage
from txbroker.cluster.node_data import TRANSACTION_VERSION, MalformedNode, decode_broker
from txbroker.cluster.tree.interface import Tree, TreeError

log = logging.getLogger("txbroker.broker")

RETRY_S = 1.0  # after ZooKeeper could not be read


class TransactionLevel:
    """`finalized`: 2 if every live broker serves transactions v2, otherwise 0: those of brokers before KIP-890.

    Its epoch is the time of the change, which brokers have nearly in common; -1 before the registrations were read.
    """

    def __init__(self, tree: Tree, image: ClusterImage, clock: Clock, now_ms: Callable[[], int], *, is_alone: bool) -> None:
        self._tree = tree
        self._image = image
        self._clock = clock
        self._now_ms = now_ms
        self._reading = False
        self._changed = False
        self._stopped = False
        self._retry: DelayedCall | None = None
        self.finalized = FinalizedLevel(TRANSACTION_VERSION, 0) if is_alone else FinalizedLevel(0, -1)

    def brokers_changed(self) -> None:
        """The set of live brokers has changed."""
        self._changed = True
        if not self._reading and not self._stopped:
            self._reading = True
            reading = Deferred.fromCoroutine(self._read())
            reading.addErrback(lambda failure: log.error("internal error: cannot read the registrations: %s", failure.getTraceback()))

    def stop(self) -> None:
        """Read no more."""
        self._stopped = True
        if self._retry is not None and self._retry.active():
            self._retry.cancel()

    async def _read(self) -> None:
        try:
            while self._changed:
                self._changed = False
                level = min([await self._of(broker_id) for broker_id in list(self._image.brokers)], default=0)
                before = self.finalized
                if level != before.level or before.epoch < 0:
                    self.finalized = FinalizedLevel(level, max(self._now_ms(), before.epoch + 1))
                    log.info("clients may use transactions of version %d now", level)
        except TreeError as error:
            log.debug("the registrations of brokers cannot be read: %s; trying again", error)
            if not self._stopped:
                self._retry = self._clock.callLater(RETRY_S, self.brokers_changed)
        finally:
            self._reading = False

    async def _of(self, broker_id: int) -> int:
        data, _ = await self._tree.get(node_paths.broker(broker_id))
        try:
            return 0 if data is None else min(decode_broker(data).transaction_version, TRANSACTION_VERSION)
        except MalformedNode:
            return 0
