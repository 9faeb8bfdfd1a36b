"""This broker as a member of its cluster: its registration, in each session with the metadata tree again, and its part in elections.

Without a session a broker goes on serving with what it knows. It cannot change an ISR then, so that `acks=all` remains safe, and it is
not the controller. When the next session begins it registers with a new broker epoch, and the controller sends it its roles again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from txbroker.broker.identity import BrokerIdentity
from txbroker.clock import Clock
from txbroker.cluster import broker_ids
from txbroker.cluster.controller.controller import Controller
from txbroker.cluster.node_data import BrokerRegistration
from txbroker.cluster.topics import TopicAdmin
from txbroker.cluster.tree.interface import SessionExpired, Tree
from txbroker.errors import StartError

log = logging.getLogger("txbroker.broker")


class Membership:
    """One broker's. `registered` receives its broker epoch each time."""

    def __init__(
        self,
        identity: BrokerIdentity,
        registration: BrokerRegistration,
        controller: Controller,
        topics: TopicAdmin,
        registered: Callable[[int], None],
        *,
        clock: Clock,
        now_ms: Callable[[], int],
        wait_s: float,
    ) -> None:
        """`wait_s`: one period of waiting for the end of another session that has the same broker id; see `broker_ids.register`."""
        self._identity = identity
        self._registration = registration
        self._controller = controller
        self._topics = topics
        self._registered = registered
        self._clock = clock
        self._now_ms = now_ms
        self._wait_s = wait_s
        self._is_registered = False

    def why_outside(self) -> str | None:
        """Why other brokers do not know this one now; None if they do."""
        return None if self._is_registered else "not registered: there is no session with the metadata"

    async def begin(self, tree: Tree) -> None:
        """Register, and run for election; StartError."""
        try:
            await self._register(tree)
            await self._controller.start()
        except SessionExpired as error:
            raise StartError("the session with the metadata ended before this broker was registered: start it again") from error

    async def renew(self, tree: Tree) -> None:
        """The same in the next session; StartError if this broker cannot be in the cluster any more."""
        found = await broker_ids.stored_cluster_id(tree)
        if found != self._identity.cluster_id:
            has = "no cluster" if found is None else f"cluster {found}"
            raise StartError(f"this broker belongs to cluster {self._identity.cluster_id}, and the metadata has {has} now: restore it")
        await self._register(tree)
        self._controller.renew(tree)
        await self._topics.renew()

    async def _register(self, tree: Tree) -> None:
        broker_id = self._identity.broker_id
        epoch = await broker_ids.register(
            tree, broker_id, self._registration, self._now_ms(), clock=self._clock, wait_s=self._wait_s
        )
        self._is_registered = True
        tree.on_expired(self._session_ended)
        log.info("registered as broker %d, epoch %d", broker_id, epoch)
        self._registered(epoch)

    def _session_ended(self) -> None:
        self._is_registered = False
