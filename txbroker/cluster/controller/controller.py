"""The controller's office: who holds it, and that what its holder does happens one step after the other.

Every broker has a `Controller`. The one that creates the ephemeral node `/controller`, and with the same transaction writes the next
`/controller_epoch`, holds the office for a `ControllerTerm`. The others watch the node and try when it vanishes.

`send(broker_id, request) -> Deferred[response]` is given to it: it delivers LeaderAndIsr, UpdateMetadata and StopReplica to a broker,
this one included, and goes on trying for as long as that broker is registered.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from twisted.internet.defer import Deferred, DeferredLock
from twisted.python.failure import Failure

from txbroker.cluster import node_paths
from txbroker.cluster.controller.broker_channels import Send
from txbroker.cluster.controller.controlled_shutdown import controlled_shutdown
from txbroker.cluster.controller.elect_leaders import ElectionType, elect_leaders
from txbroker.cluster.controller.fenced_writes import ControllerMoved
from txbroker.cluster.controller.isr_changes import alter_partition
from txbroker.cluster.controller.request_batch import Controlling
from txbroker.cluster.controller.term import ControllerTerm, Handler
from txbroker.cluster.node_data import decode_controller_epoch, encode_controller, encode_controller_epoch
from txbroker.cluster.tree.interface import (
    BadVersion,
    ConnectionLost,
    Create,
    NodeExists,
    NoNode,
    SessionExpired,
    Set,
    Stat,
    Tree,
    WatchEvent,
)
from txbroker.errors import BrokerError, ErrorCode
from txbroker.names import TopicPartition
from txbroker.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from txbroker.wire.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse

T = TypeVar("T")
log = logging.getLogger("txbroker.controller")

RETRY_S = 1.0  # after a write or read of the tree has failed, a new term begins this much later


class Controller:
    """Stands for election, and serves while elected, until it is stopped or its session with the tree expires."""

    def __init__(
        self,
        tree: Tree,
        broker_id: int,
        *,
        listener: str,
        send: Send,
        unclean_default: Callable[[], bool],
        clock_ms: Callable[[], int],
        call_later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        """`listener` names the inter-broker listener; `unclean_default` is this broker's unclean.leader.election.enable."""
        self._tree = tree
        self._broker_id = broker_id
        self._listener = listener
        self._send = send
        self._unclean_default = unclean_default
        self._clock_ms = clock_ms
        self._call_later = call_later
        self._steps = DeferredLock()
        self._term: ControllerTerm | None = None
        self._stopped = False
        tree.on_expired(self.stop)

    @property
    def active(self) -> bool:
        """Whether this broker is the controller."""
        return self._term is not None

    @property
    def epoch(self) -> int | None:
        """The controller epoch, None while another broker is the controller."""
        return None if self._term is None else self._term.controlling.epoch

    def broker_epoch(self, broker_id: int) -> int | None:
        """The epoch of a live broker, as the controller knows it; NOT_CONTROLLER."""
        broker = self._in_office().context.brokers.get(broker_id)
        return None if broker is None else broker.epoch

    def start(self) -> Deferred[None]:
        """Stand for election; fires when this broker has taken over the cluster, or another one is the controller."""
        return self._step(self._elect)

    def stop(self) -> None:
        """Do nothing more. The node `/controller` goes with the session."""
        self._stopped = True
        self._resign()

    def idle(self) -> Deferred[None]:
        """Fires when every step that has been asked for so far is done."""
        return self._steps.run(lambda: None)

    def alter_partition(self, request: AlterPartitionRequest) -> Deferred[AlterPartitionResponse]:
        """Serve AlterPartition; NOT_CONTROLLER."""
        return self._serve(lambda term: alter_partition(request, term.context, term.leadership, term.outbox))

    def controlled_shutdown(self, request: ControlledShutdownRequest) -> Deferred[ControlledShutdownResponse]:
        """Serve ControlledShutdown; NOT_CONTROLLER."""
        return self._serve(lambda term: controlled_shutdown(request, term.context, term.leadership, term.outbox))

    def elect_leaders(self, kind: ElectionType, partitions: Iterable[TopicPartition] | None) -> Deferred[dict[TopicPartition, ErrorCode]]:
        """Serve ElectLeaders for these partitions, None for all; NOT_CONTROLLER."""
        asked = None if partitions is None else list(partitions)
        return self._serve(
            lambda term: elect_leaders(
                kind, list(term.context.partitions()) if asked is None else asked, term.context, term.leadership, term.outbox
            )
        )

    # Steps, one after the other

    def _step(self, step: Callable[[], Awaitable[T]]) -> Deferred[T]:
        async def run() -> T:
            return await step()

        return self._steps.run(lambda: Deferred.fromCoroutine(run()))

    def _serve(self, serve: Callable[[ControllerTerm], Awaitable[T]]) -> Deferred[T]:
        async def step() -> T:
            try:
                return await serve(self._in_office())
            except (ControllerMoved, ConnectionLost) as error:
                self._begin_again(RETRY_S)
                raise BrokerError(ErrorCode.NOT_CONTROLLER) from error

        return self._step(step)

    def _in_office(self) -> ControllerTerm:
        if self._term is None:
            raise BrokerError(ErrorCode.NOT_CONTROLLER)
        return self._term

    def _enqueue(self, term: ControllerTerm, handler: Handler) -> None:
        """A step of a term, left out when the term is over by then."""

        async def step() -> None:
            if term is self._term:
                await handler()

        self._step(step).addErrback(self._step_failed)

    def _step_failed(self, failure: Failure) -> None:
        if failure.check(SessionExpired):
            self._resign()
        elif failure.check(ControllerMoved):
            self._begin_again(0.0)
        elif failure.check(ConnectionLost):
            log.warning("the metadata tree failed the controller, it begins again: %s", failure.getErrorMessage())
            self._begin_again(RETRY_S)
        else:
            log.error("a step of the controller failed: %s", failure.getTraceback())

    # Election

    async def _elect(self) -> None:
        if self._stopped or self._term is not None:
            return
        stat = await self._tree.exists(node_paths.CONTROLLER, watch=self._controller_watch)
        if stat is not None and stat.ephemeral_owner == self._tree.session_id:
            await self._tree.delete(node_paths.CONTROLLER)  # a term of this broker that failed: the next needs another epoch
            stat = await self._tree.exists(node_paths.CONTROLLER, watch=self._controller_watch)
        if stat is not None:
            return
        elected = await self._write_election()
        if elected is None:
            await self._elect()
            return
        epoch, epoch_version = elected
        controlling = Controlling(self._broker_id, epoch, self._listener)
        self._term = ControllerTerm(self._tree, controlling, epoch_version, self._send, self._unclean_default, self._enqueue)
        try:
            await self._term.begin()
        except ControllerMoved:
            self._begin_again(0.0)
        except BaseException:
            self._resign()
            raise

    async def _write_election(self) -> tuple[int, int] | None:
        """Write the two nodes; the epoch and its node's version, None when another broker was quicker."""
        try:
            data, stat = await self._tree.get(node_paths.CONTROLLER_EPOCH)
        except NoNode:
            try:
                await self._tree.create(node_paths.CONTROLLER_EPOCH, encode_controller_epoch(0))
            except NodeExists:
                return None
            data, stat = await self._tree.get(node_paths.CONTROLLER_EPOCH)
        epoch = decode_controller_epoch(data) + 1
        office = Create(node_paths.CONTROLLER, encode_controller(self._broker_id, self._clock_ms()), ephemeral=True)
        try:
            results = await self._tree.multi([office, Set(node_paths.CONTROLLER_EPOCH, encode_controller_epoch(epoch), stat.version)])
        except (NodeExists, BadVersion):
            return None
        written = results[1]
        assert isinstance(written, Stat)
        return epoch, written.version

    def _controller_watch(self, _: WatchEvent) -> None:
        self._step(self._look_at_office).addErrback(self._step_failed)

    async def _look_at_office(self) -> None:
        """`/controller` has changed: somebody was elected, or it is gone."""
        stat = await self._tree.exists(node_paths.CONTROLLER, watch=self._controller_watch)
        if stat is None or stat.ephemeral_owner != self._tree.session_id:
            self._resign()
        if stat is None:
            await self._elect()

    def _resign(self) -> None:
        if self._term is not None:
            log.info("this broker is not the controller any longer")
            self._term.close()
            self._term = None

    def _begin_again(self, delay_s: float) -> None:
        self._resign()
        if not self._stopped:
            self._call_later(delay_s, self._stand_again)

    def _stand_again(self) -> None:
        self._step(self._elect).addErrback(self._step_failed)
