"""Controller election, and the sequential execution of the active controller's steps.

Every broker has a `Controller`. The broker that creates the ephemeral node `/controller`, and in the same transaction writes the next
`/controller_epoch`, is the active controller for a `ControllerTerm`. The others watch the node and run for election when it is deleted.

`open_channel(broker_id, broker) -> Channel` is a constructor argument: a channel sends LeaderAndIsr, UpdateMetadata and StopReplica to a
broker, this one included, and repeats them until they are answered.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TypeVar

from twisted.internet.defer import Deferred, DeferredLock
from twisted.python.failure import Failure

from txbroker.clock import DelayedCall
from txbroker.cluster import node_paths
from txbroker.cluster.controller.broker_channels import OpenChannel
from txbroker.cluster.controller.controlled_shutdown import controlled_shutdown
from txbroker.cluster.controller.elect_leaders import Election, ElectionType, begin_epochs, elect_leaders
from txbroker.cluster.controller.fenced_writes import ControllerMoved
from txbroker.cluster.controller.leader_balance import BalanceSettings
from txbroker.cluster.controller.reassignment import Outcomes, Targets
from txbroker.cluster.controller.request_batch import Controlling
from txbroker.cluster.controller.term import ControllerTerm, Handler
from txbroker.cluster.deferreds import uncancelled
from txbroker.cluster.node_data import MalformedNode, ReplicaAssignment, decode_controller_epoch, encode_controller, encode_controller_epoch
from txbroker.cluster.tree.interface import (
    BadVersion,
    ConnectionLost,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NoSpaceInStore,
    Op,
    Refused,
    SessionExpired,
    Set,
    Stat,
    Tree,
    WatchEvent,
)
from txbroker.cluster.tree.operations import for_client, repeated
from txbroker.errors import BrokerError, ErrorCode, StartError
from txbroker.names import TopicPartition, new_topic_id
from txbroker.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from txbroker.wire.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse

T = TypeVar("T")
log = logging.getLogger("txbroker.controller")

RETRY_S = 1.0  # delay before a new election after a failed read or write of the tree
RETRY_AFTER_FAILURE_S = 10.0  # the same after an unexpected error or a malformed node


class Controller:
    """Runs for election and serves while elected, until it is stopped or its session with the tree expires."""

    def __init__(
        self,
        tree: Tree,
        broker_id: int,
        *,
        listener: str,
        open_channel: OpenChannel,
        unclean_default: Callable[[], bool],
        now_ms: Callable[[], int],
        call_later: Callable[[float, Callable[[], None]], DelayedCall],
        random_bytes: Callable[[int], bytes],
        balance: BalanceSettings | None = None,
        suspected: Callable[[], Mapping[int, int]] = dict,
        informed: Callable[[], Collection[int]] = tuple,
    ) -> None:
        """`listener` names the inter-broker listener; `unclean_default` is this broker's unclean.leader.election.enable.

        `balance`: how leadership is moved back to preferred leaders; None if it is not (auto.leader.rebalance.enable).
        `suspected`: the broker epochs of the brokers that are suspected now. `informed`: the brokers that have metadata from a controller.
        """
        self._tree = tree
        self._broker_id = broker_id
        self._listener = listener
        self._open_channel = open_channel
        self._unclean_default = unclean_default
        self._now_ms = now_ms
        self._call_later = call_later
        self._random_bytes = random_bytes
        self._balance = balance
        self._suspected = suspected
        self._informed = informed
        self._steps = DeferredLock()
        self._term: ControllerTerm | None = None
        self._stopped = False
        self.takeovers = 0  # elections of this broker that ended another one's term
        self._suspended = False  # after an unexpected error, until the next election
        tree.on_expired(self.stop)

    @property
    def active(self) -> bool:
        """Whether this broker is the controller."""
        return self._term is not None

    @property
    def epoch(self) -> int | None:
        """The controller epoch, None while this broker is not the controller."""
        return None if self._term is None else self._term.controlling.epoch

    def broker_epoch(self, broker_id: int) -> int | None:
        """The broker epoch of a live broker; NOT_CONTROLLER."""
        broker = self._active_term().context.brokers.get(broker_id)
        return None if broker is None else broker.epoch

    def start(self) -> Deferred[None]:
        """Run for election. Fires when this broker has taken over the cluster, or another broker is the controller. StartError."""
        return self._step(lambda: repeated(self._elect_or_resign)).addErrback(self._start_failed)

    def renew(self, tree: Tree) -> None:
        """Run for election in the next session, after the expiry of the one before it."""
        self._tree = tree
        self._stopped = False
        tree.on_expired(self.stop)
        self._queue(self._elect)

    async def _elect_or_resign(self) -> None:
        try:
            await self._elect()
        except ConnectionLost:
            self._resign()
            raise

    def _start_failed(self, failure: Failure) -> Failure:
        self._resign()
        if failure.check(MalformedNode):
            raise StartError(f"The controller cannot read the metadata: {failure.getErrorMessage()}. Repair or restore it.")
        return failure

    def stop(self) -> None:
        """Stop. The node `/controller` is deleted with the session."""
        self._stopped = True
        self._resign()

    def idle(self) -> Deferred[None]:
        """Fires when all steps queued so far are complete."""
        return self._steps.run(lambda: None)

    def alter_partition(self, request: AlterPartitionRequest) -> Deferred[AlterPartitionResponse]:
        """Serve AlterPartition; NOT_CONTROLLER."""
        return self._serve(lambda term: term.alter_partition(request))

    def controlled_shutdown(self, request: ControlledShutdownRequest) -> Deferred[ControlledShutdownResponse]:
        """Serve ControlledShutdown; NOT_CONTROLLER."""
        return self._serve(lambda term: controlled_shutdown(request, term.context, term.leadership, term.outbox))

    def elect_leaders(self, kind: ElectionType, partitions: Iterable[TopicPartition] | None) -> Deferred[dict[TopicPartition, Election]]:
        """Serve ElectLeaders for these partitions, None for all; NOT_CONTROLLER."""
        asked = None if partitions is None else list(partitions)
        return self._serve(
            lambda term: elect_leaders(
                kind, list(term.context.partitions()) if asked is None else asked, term.context, term.leadership, term.outbox
            )
        )

    def begin_epochs(self, partitions: Iterable[TopicPartition]) -> Deferred[None]:
        """Begin a new leader epoch of these partitions, with the leaders that they have; NOT_CONTROLLER."""
        asked = list(partitions)
        return self._serve(lambda term: begin_epochs(asked, term.context, term.leadership, term.outbox))

    def reassign(self, targets: Targets, *, factor_may_change: bool = True) -> Deferred[Outcomes]:
        """Serve AlterPartitionReassignments: the outcome of each partition; NOT_CONTROLLER."""
        return self._serve(lambda term: term.reassign(targets, factor_may_change=factor_may_change))

    def reassignments(self) -> dict[TopicPartition, ReplicaAssignment]:
        """The reassignments in progress; NOT_CONTROLLER."""
        return self._active_term().reassignments.in_progress()

    def unclean_election_changed(self) -> None:
        """unclean.leader.election.enable may have been set: elect leaders for partitions without one, if this broker is the controller."""
        if self._term is not None:
            self._enqueue(self._term, self._term.elect_led_offline)

    def suspects_changed(self) -> None:
        """`suspected` returns something else: react to it if this broker is the controller; take over if the controller is suspected."""
        term = self._term
        if term is not None:
            self._enqueue(term, term.suspects_changed)
        else:
            self._queue(self._take_over)

    # Steps, executed in sequence

    def _step(self, step: Callable[[], Awaitable[T]]) -> Deferred[T]:
        async def run() -> T:
            return await step()

        return self._steps.run(lambda: Deferred.fromCoroutine(run()))

    def _queue(self, step: Handler) -> None:
        """Queue a step without a caller. A failure takes effect before the next step begins, which is perhaps one of a failed term."""

        async def run() -> None:
            try:
                await step()
            except Exception:
                self._step_failed(Failure())

        self._step(run)

    def _serve(self, serve: Callable[[ControllerTerm], Awaitable[T]]) -> Deferred[T]:
        async def step() -> T:
            term = self._active_term()
            try:
                return await serve(term)
            except (ControllerMoved, ConnectionLost) as error:
                self._retry_election(RETRY_S)
                raise BrokerError(ErrorCode.NOT_CONTROLLER) from error
            except SessionExpired as error:
                raise BrokerError(ErrorCode.NOT_CONTROLLER) from error  # `stop` was called
            except BrokerError:
                raise
            except (Refused, MalformedNode) as error:
                raise for_client(error) from error
            except Exception:
                self._abandon_term()
                raise

        return uncancelled(self._step(step))

    def _active_term(self) -> ControllerTerm:
        if self._term is None:
            raise BrokerError(ErrorCode.NOT_CONTROLLER)
        return self._term

    def _enqueue(self, term: ControllerTerm, handler: Handler) -> None:
        """Queue a step of a term; it is skipped when the term has ended by then."""

        async def step() -> None:
            if term is self._term:
                await handler()

        self._queue(step)

    def _step_failed(self, failure: Failure) -> None:
        if failure.check(SessionExpired):
            self._resign()
        elif failure.check(ControllerMoved):
            self._retry_election(0.0)
        elif failure.check(NoSpaceInStore):  # which the tree has logged
            self._retry_election(RETRY_S)
        elif failure.check(ConnectionLost):
            log.warning("metadata store connection lost, retrying the election in %d s: %s", RETRY_S, failure.getErrorMessage())
            self._retry_election(RETRY_S)
        elif failure.check(Refused):
            log.error("a controller step failed, next controller election in %d s: %s", RETRY_AFTER_FAILURE_S, failure.getErrorMessage())
            self._abandon_term()
        elif failure.check(MalformedNode):
            log.error("malformed metadata, next controller election in %d s: %s", RETRY_AFTER_FAILURE_S, failure.getErrorMessage())
            self._abandon_term()
        else:
            log.error("a controller step failed, next election in %d s: %s", RETRY_AFTER_FAILURE_S, failure.getTraceback())
            self._abandon_term()

    def _abandon_term(self) -> None:
        """End a term after an unexpected error, when its context may differ from the tree.

        The node `/controller` is deleted, so that another broker, or this one later, is elected and reads the tree again.
        """
        term = self._term
        self._suspended = True  # its own deletion of the node must not trigger the next election
        self._retry_election(RETRY_AFTER_FAILURE_S)
        if term is not None:
            self._step(term.release).addErrback(self._release_failed)

    def _release_failed(self, failure: Failure) -> None:
        # `_elect` deletes the node too, when this broker runs for election again.
        log.error("failed to delete %s: %s", node_paths.CONTROLLER, failure.getErrorMessage())

    # Election

    async def _elect(self) -> None:
        if self._stopped or self._term is not None:
            return
        stat = await self._tree.exists(node_paths.CONTROLLER, watch=self._controller_watch)
        if stat is not None and stat.ephemeral_owner == self._tree.session_id:
            with suppress(NoNode):  # deleted by another one, and this broker's server of ZooKeeper is behind
                await self._tree.delete(node_paths.CONTROLLER)  # left by a failed term of this broker: the next term needs a new epoch
            stat = await self._tree.exists(node_paths.CONTROLLER, watch=self._controller_watch)
        if stat is not None:
            return
        elected = await self._write_election()
        if elected is None:
            await self._elect()
        else:
            await self._begin_term(*elected)

    async def _take_over(self) -> None:
        """Replace the controller before its session ends, if it is suspected."""
        if self._stopped or self._suspended or self._term is not None:
            return
        suspected = self._suspected()
        elected = await self._write_election(suspected) if suspected else None
        if elected is not None:
            self.takeovers += 1
            log.warning("the controller was one of the suspected brokers %s: this broker has replaced it", sorted(suspected))
            await self._begin_term(*elected)

    async def _begin_term(self, epoch: int, epoch_version: int) -> None:
        controlling = Controlling(self._broker_id, epoch, self._listener)
        self._term = ControllerTerm(
            self._tree,
            controlling,
            epoch_version,
            self._open_channel,
            self._unclean_default,
            self._enqueue,
            self._call_later,
            partial(new_topic_id, self._random_bytes),
            self._balance,
            self._suspected,
            self._informed,
        )
        try:
            await self._term.begin()
        except ControllerMoved:
            self._retry_election(0.0)

    async def _write_election(self, suspected: Mapping[int, int] | None = None) -> tuple[int, int] | None:
        """Write the two nodes. Returns the epoch and its node's version, None when another broker won the election.

        With `suspected` replace the node of one of these brokers. The epoch is read first: an election after this read changes its version,
        and then the transaction fails. A controller that is replaced has no effect any more, as its writes and requests have an older
        epoch; it resigns when it sees that the node has changed, as Kafka's does (`KafkaController.maybeResign`).
        """
        try:
            data, stat = await self._tree.get(node_paths.CONTROLLER_EPOCH)
        except NoNode:
            try:
                await self._tree.create(node_paths.CONTROLLER_EPOCH, encode_controller_epoch(0))
            except NodeExists:
                return None
            data, stat = await self._tree.get(node_paths.CONTROLLER_EPOCH)
        epoch = decode_controller_epoch(data) + 1
        replaced = [] if suspected is None else await self._nodes_of(suspected)
        if replaced is None:
            return None
        controller = Create(node_paths.CONTROLLER, encode_controller(self._broker_id, self._now_ms()), ephemeral=True)
        elected = Set(node_paths.CONTROLLER_EPOCH, encode_controller_epoch(epoch), stat.version)
        try:
            results = await self._tree.multi([*replaced, controller, elected])
        except (NodeExists, BadVersion, NoNode):
            return None
        written = results[-1]
        assert isinstance(written, Stat)
        return epoch, written.version

    async def _nodes_of(self, suspected: Mapping[int, int]) -> list[Op] | None:
        """The deletion of `/controller`, if it is of the present session of one of these brokers; None otherwise."""
        found = await self._tree.exists(node_paths.CONTROLLER)
        if found is None:
            return None
        for broker_id, epoch in suspected.items():
            registered = await self._tree.exists(node_paths.broker(broker_id))
            if registered is not None and registered.czxid == epoch and registered.ephemeral_owner == found.ephemeral_owner:
                return [Delete(node_paths.CONTROLLER, found.version)]
        return None

    def _controller_watch(self, _: WatchEvent) -> None:
        self._queue(self._controller_changed)

    async def _controller_changed(self) -> None:
        """`/controller` has changed: a broker was elected, or the node was deleted."""
        stat = await self._tree.exists(node_paths.CONTROLLER, watch=self._controller_watch)
        if stat is None or stat.ephemeral_owner != self._tree.session_id:
            self._resign()
        if stat is None and not self._suspended:
            await self._elect()

    def _resign(self) -> None:
        if self._term is not None:
            log.info("this broker is no longer the controller")
            self._term.close()
            self._term = None

    def _retry_election(self, delay_s: float) -> None:
        self._resign()
        if not self._stopped:
            self._call_later(delay_s, self._run_again)

    def _run_again(self) -> None:
        self._suspended = False
        self._queue(self._elect)
        if self._suspected():
            self._queue(self._take_over)
