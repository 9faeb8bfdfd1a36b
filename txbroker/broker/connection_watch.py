"""Finds brokers whose processes have ended by their connections, before their ZooKeeper sessions end (docs/cluster.md).

Each broker keeps a connection to every other one (`peers/sentinel.py`). If it is reset, and new ones are refused, the broker creates an
ephemeral node with a report. All brokers watch the reports. When two brokers report a third one (`cluster/suspicions.py`), the controller
moves leadership away from it; if it is the controller, one of the two takes over.

The reports are nodes, and not requests to the controller: they need no controller that is alive, end with the session of the broker that
made them, and brokers of Apache Kafka neither see nor need them.

A broker that finds a report on itself is alive. It watches the states of the partitions that it leads, and steps down when ZooKeeper has
another leader, also if the controller cannot reach it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, DeferredLock
from twisted.python.failure import Failure

from txbroker.clock import DelayedCall
from txbroker.cluster import node_paths
from txbroker.cluster.controller.controller import Controller
from txbroker.cluster.image import ClusterImage, Endpoint
from txbroker.cluster.node_data import MalformedNode, is_int32
from txbroker.cluster.stepping_down import StepDown
from txbroker.cluster.suspicions import FailoverCounts, Report, Suspicions, parse_report
from txbroker.cluster.tree.interface import NodeExists, NoNode, SessionExpired, Tree, TreeError, WatchEvent
from txbroker.cluster.tree.operations import found, repeated
from txbroker.errors import BrokerError
from txbroker.peers.sentinel import Sentinel

log = logging.getLogger("txbroker.failover")

RETRY_S = 1.0  # after an operation on the tree failed


class ConnectionWatch:
    """One broker's. It is idle until `begin`."""

    def __init__(self, broker_id: int, image: ClusterImage, listener: str, reactor: Any, tree: Tree, step_down: StepDown) -> None:
        """`listener`: the name of the inter-broker listener. `tree`: its sessions follow each other."""
        self.counts = FailoverCounts()
        self._broker_id = broker_id
        self._image = image
        self._listener = listener
        self._reactor = reactor
        self._tree = tree
        self._step_down = step_down
        self._suspicions = Suspicions(broker_id)
        self._controller: Controller | None = None
        self._epoch = -1  # of this broker
        self._sentinels: dict[int, tuple[Endpoint, Sentinel]] = {}
        self._refused: dict[int, Report | None] = {}  # by broker: the report of this session, None before it is made
        self._steps = DeferredLock()
        self._timer: DelayedCall | None = None
        self._on_itself = False
        self._compare_due = False  # the states of the partitions that this broker leads may have changed since they were compared
        self._stopped = False

    def suspected(self) -> Mapping[int, int]:
        """The broker epochs of suspected brokers."""
        return {broker_id: suspicion.epoch for broker_id, suspicion in self._suspicions.suspected.items()}

    def begin(self, broker_epoch: int, controller: Controller) -> None:
        """This broker is registered, in its first session or another one."""
        self._controller = controller
        self._epoch = broker_epoch
        self._refused = dict.fromkeys(self._refused)  # the reports have ended with the session
        self._step(self._begin)

    def brokers_changed(self) -> None:
        """The image has other brokers, or other addresses of them."""
        if self._controller is None or self._stopped:
            return
        wanted = {id_: endpoint for id_ in self._image.brokers
                  if id_ != self._broker_id and (endpoint := self._image.endpoint(id_, self._listener)) is not None}  # fmt: skip
        for broker_id in [id_ for id_, (endpoint, _) in self._sentinels.items() if wanted.get(id_) != endpoint]:
            self._sentinels.pop(broker_id)[1].stop()
            self._connection_returned(broker_id)
        for broker_id, endpoint in wanted.items():
            if broker_id not in self._sentinels:
                calls = partial(self._connection_refused, broker_id), partial(self._connection_returned, broker_id)
                self._sentinels[broker_id] = endpoint, Sentinel(endpoint.host, endpoint.port, self._reactor, *calls)
        if self._suspicions.suspected:
            self._step(self._look)

    def stop(self) -> None:
        """End the connections."""
        self._stopped = True
        self._cancel_timer()
        for _, sentinel in list(self._sentinels.values()):
            sentinel.stop()
        self._sentinels.clear()

    # Steps, one after the other

    def _step(self, step: Callable[[], Awaitable[None]]) -> None:
        async def run() -> None:
            if not self._stopped:
                await step()

        self._steps.run(lambda: Deferred.fromCoroutine(run())).addErrback(self._failed)

    def _failed(self, failure: Failure) -> None:
        if failure.check(SessionExpired) or self._stopped:
            return  # `begin` is called in the next session
        if failure.check(TreeError, MalformedNode, BrokerError):
            log.warning("reports of refused connections cannot be read or written now: %s", failure.getErrorMessage())
        else:
            log.error("internal error in connection-loss failover: %s", failure.getTraceback())
        self._look_later(RETRY_S)

    def _look_later(self, delay_s: float) -> None:
        self._cancel_timer()
        self._timer = self._reactor.callLater(delay_s, self._step, self._begin)

    def _cancel_timer(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None

    async def _begin(self) -> None:
        with suppress(NodeExists):
            await repeated(lambda: self._tree.create(node_paths.REFUSALS))
        self.brokers_changed()
        await self._report_and_look()

    async def _report_and_look(self) -> None:
        for broker_id in [id_ for id_, report in self._refused.items() if report is None]:
            await self._report(broker_id)
        await self._look()

    # Reports of this broker

    def _connection_refused(self, broker_id: int) -> None:
        self._refused[broker_id] = None
        self._step(partial(self._report, broker_id))

    def _connection_returned(self, broker_id: int) -> None:
        """There is a connection again, or the broker is not in the cluster any more."""
        report = self._refused.pop(broker_id, None)
        if report is not None:
            self._step(partial(self._withdraw, report))

    async def _report(self, broker_id: int) -> None:
        if self._refused.get(broker_id, self) is not None:
            return  # it is reported, or there is a connection again
        registered = await self._tree.exists(node_paths.broker(broker_id))
        if registered is None:
            return  # its session has ended
        report = Report(broker_id, registered.czxid, self._broker_id)
        with suppress(NodeExists):
            await repeated(lambda: self._tree.create(node_paths.refusal(report.name), ephemeral=True))
        self.counts.reports += 1
        log.info("broker %d has reset its connections and refuses new ones: reported to the controller", broker_id)
        if self._refused.get(broker_id, self) is None:
            self._refused[broker_id] = report
        else:
            await self._withdraw(report)

    async def _withdraw(self, report: Report) -> None:
        with suppress(NoNode):
            await repeated(lambda: self._tree.delete(node_paths.refusal(report.name)))

    # Reports of all brokers

    def _reports_changed(self, _: WatchEvent) -> None:
        self._step(self._look)

    async def _look(self) -> None:
        names = await self._tree.children(node_paths.REFUSALS, watch=self._reports_changed)
        reports = [report for name in names if (report := parse_report(name)) is not None]
        if not reports and not self._suspicions.suspected:
            self._on_itself = False
            return
        registered = await self._registered()
        changes = self._suspicions.look(self._reactor.seconds(), registered, reports)
        for broker_id, suspicion in changes.new.items():
            by = ", ".join(map(str, suspicion.reported_by))
            log.warning("broker %d is suspected to be gone before its session has ended: brokers %s are refused by it", broker_id, by)
        for broker_id in changes.ended:
            log.info("broker %d is no longer suspected", broker_id)
        self.counts.suspicions += len(changes.new)
        witness = any(self._broker_id in suspicion.reported_by for suspicion in changes.new.values())
        if self._controller is not None and (witness or (self._controller.active and (changes.new or changes.ended))):
            self._controller.suspects_changed()
        if self._suspicions.next_s is not None:
            self._look_later(max(0.0, self._suspicions.next_s - self._reactor.seconds()))
        await self._look_at_itself(reports)

    async def _registered(self) -> dict[int, int]:
        """The epochs of the registered brokers."""
        names = [name for name in await self._tree.children(node_paths.BROKER_IDS) if is_int32(name)]
        stats = await found([self._tree.get(f"{node_paths.BROKER_IDS}/{name}") for name in names])
        return {int(name): read[1].czxid for name, read in zip(names, stats, strict=True) if read is not None}

    async def _look_at_itself(self, reports: Iterable[Report]) -> None:
        """Step down where another broker leads. While there is a report, each change of a state is looked at."""
        before, self._on_itself = self._on_itself, any(r.broker_id == self._broker_id and r.epoch == self._epoch for r in reports)
        if self._on_itself and not before:
            self.counts.reports_on_itself += 1
            log.warning("another broker reports that this one refuses its connections: check firewalls")
            self._compare_due = True
        if self._on_itself:
            await self._compare_states()

    async def _compare_states(self) -> None:
        """Once for all changes since the last time."""
        if not self._compare_due:
            return
        self._compare_due = False
        try:
            await self._step_down.compare(self._state_changed)
        except Exception:
            self._compare_due = True  # `_look` tries again
            raise

    def _state_changed(self, _: WatchEvent) -> None:
        if self._on_itself and not self._compare_due:
            self._compare_due = True
            self._step(self._compare_states)
