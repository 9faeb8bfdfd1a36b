"""Carries out the controller's requests on this broker (the part of Kafka's `KafkaApis` and `ReplicaManager`)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator

from twisted.internet.defer import Deferred, fail, succeed

from txbroker.clock import Clock, DelayedCall
from txbroker.cluster.config_store import ConfigWatcher
from txbroker.cluster.controller.request_batch import ControllerRequest
from txbroker.cluster.controller_request_checks import check_values
from txbroker.cluster.followers import UNKNOWN_EPOCH
from txbroker.cluster.image import FULL, ClusterImage, ImageChanges
from txbroker.cluster.replicas import Replicas
from txbroker.cluster.tree.interface import ConnectionLost, SessionExpired
from txbroker.errors import BrokerError, ErrorCode
from txbroker.retrying import call_each
from txbroker.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    LeaderAndIsrTopicState,
)
from txbroker.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from txbroker.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from txbroker.wire.schema import Response

# In one turn of the reactor, so many partitions get a role whose logs have to be created or opened, or so many whose logs are open: the
# clients of these wait until the leader and its followers have their roles.
PARTITIONS_PER_TURN = 8
ROLES_PER_TURN = 96

RETRY_S = 5.0  # after a role failed because the disk is full, or the configuration of a topic cannot be read

log = logging.getLogger("txbroker.cluster")


class OwnBroker:
    """LeaderAndIsr, UpdateMetadata and StopReplica.

    A request is refused as a whole with STALE_BROKER_EPOCH if it is for an earlier start of this broker, with STALE_CONTROLLER_EPOCH
    after any request of a newer controller, and with INVALID_REQUEST if no controller sends such values.
    """

    def __init__(
        self,
        replicas: Replicas,
        image: ClusterImage,
        configs: ConfigWatcher,
        now_ms: Callable[[], int],
        image_changed: Callable[[ImageChanges], None],
        clock: Clock,
        broker_epoch: Callable[[], int],
        ask_again: Callable[[], None],
        replicas_changed: Callable[[int], None] = lambda count: None,
    ) -> None:
        """`broker_epoch`: of this broker's registration, -1 before it. `ask_again` has the controller send all roles again.

        `replicas_changed`: there may be more or fewer replicas, so many.
        """
        self._replicas = replicas
        self._image = image
        self._configs = configs
        self._now_ms = now_ms
        self._image_changed = image_changed
        self._clock = clock
        self._broker_epoch = broker_epoch
        self._ask_again = ask_again
        self._replicas_changed = replicas_changed
        self._retry: DelayedCall | None = None
        self._unserved: set[str] = set()  # topics whose configurations could not be read, in the last request
        self._stopped = False

    def stop(self) -> None:
        """Refuse further requests."""
        self._stopped = True
        if self._retry is not None:
            self._retry.cancel()

    def send(self, request: ControllerRequest) -> Deferred[Response]:
        """Carry out one request; fails with BrokerError where the whole request is refused.

        BROKER_NOT_AVAILABLE: this broker cannot carry it out now, and it is to be sent again.
        """
        try:
            check_values(request)
            self._check_broker(request.broker_epoch)
            self._replicas.check_controller(request.controller_epoch)
        except BrokerError as error:
            return fail(error)
        if isinstance(request, LeaderAndIsrRequest):
            return Deferred.fromCoroutine(self._leader_and_isr(request))
        if isinstance(request, StopReplicaRequest):
            return succeed(self._stop_replica(request))
        return succeed(self._update_metadata(request))

    def _check_broker(self, epoch: int) -> None:
        """A newer epoch is right: the controller may learn of a registration before the broker does (KAFKA-9839)."""
        own = self._broker_epoch()
        if epoch != UNKNOWN_EPOCH and epoch < own:
            raise BrokerError(ErrorCode.STALE_BROKER_EPOCH, f"the request is for broker epoch {epoch}, and this broker has {own}")

    async def _leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        try:
            # A log is opened with the configuration of its topic.
            refused = await self._configs.load_topics(self._new_topics(request))
        except (ConnectionLost, SessionExpired) as error:
            raise BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, f"the configurations of new topics cannot be read: {error}") from error
        topics: dict[str, LeaderAndIsrTopicError] = {}
        for unserved in (topic for topic in request.topic_states if topic.topic_name in refused):
            name = unserved.topic_name
            if name not in self._unserved:
                log.error("topic %s is not served: its configuration cannot be read, retrying: %s", name, refused[name])
            topics[name] = _refusal(unserved)
            self._retry_later()
        self._unserved = set(refused)
        for part in self._parts(request, refused):
            if topics:
                await self._yield_to_others()
            response = self._replicas.leader_and_isr(part, self._now_ms())
            self._replicas_changed(len(self._replicas))
            for state, answer in zip(part.topic_states, response.topics, strict=True):
                topic = topics.setdefault(state.topic_name, LeaderAndIsrTopicError(topic_id=state.topic_id))
                topic.partition_errors += answer.partition_errors
                failed = [error.partition_index for error in answer.partition_errors if error.error_code == ErrorCode.KAFKA_STORAGE_ERROR]
                if not all(self._replicas.is_offline(state.topic_name, index) for index in failed):
                    self._retry_later()
        return LeaderAndIsrResponse(error_code=ErrorCode.NONE, topics=list(topics.values()))

    def _retry_later(self) -> None:
        """A log could not be written or deleted, and its directory is online: its disk is full, perhaps not for long."""
        if self._retry is None and not self._stopped:
            self._retry = self._clock.callLater(RETRY_S, self._retry_now)

    def _retry_now(self) -> None:
        self._retry = None
        self._delete_unassigned()
        self._ask_again()

    def _delete_unassigned(self) -> None:
        if self._replicas.delete_unassigned():
            self._retry_later()
        self._replicas_changed(len(self._replicas))

    async def _yield_to_others(self) -> None:
        """Let the reactor serve other requests: creating a log takes one or two milliseconds."""
        turn: Deferred[None] = Deferred()
        self._clock.callLater(0, turn.callback, None)
        await turn
        if self._stopped:
            raise BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, "this broker is stopping")

    def _parts(self, request: LeaderAndIsrRequest, refused: Collection[str]) -> Iterator[LeaderAndIsrRequest]:
        """The request without the refused topics, divided into what is carried out in one turn."""
        part: dict[int, LeaderAndIsrTopicState] = {}
        room = ROLES_PER_TURN
        for topic in request.topic_states:
            if topic.topic_name in refused:
                continue
            for state in topic.partition_states:
                if room <= 0:
                    yield _part(request, part)
                    part, room = {}, ROLES_PER_TURN
                same = part.setdefault(id(topic), LeaderAndIsrTopicState(topic_name=topic.topic_name, topic_id=topic.topic_id))
                same.partition_states.append(state)
                is_open = self._replicas.find(topic.topic_name, state.partition_index) is not None
                room -= 1 if is_open else ROLES_PER_TURN // PARTITIONS_PER_TURN
        yield _part(request, part)

    def _new_topics(self, request: LeaderAndIsrRequest) -> Iterable[str]:
        return [
            topic.topic_name
            for topic in request.topic_states
            if any(self._replicas.find(topic.topic_name, state.partition_index) is None for state in topic.partition_states)
        ]

    def _stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        response = self._replicas.stop_replica(request)
        self._replicas_changed(len(self._replicas))
        for topic in request.topic_states:
            if all(state.delete_partition for state in topic.partition_states) and self._image.topic(topic.topic_name) is None:
                self._configs.forget_topic(topic.topic_name)
        failed = [error for error in response.partition_errors if error.error_code == ErrorCode.KAFKA_STORAGE_ERROR]
        if any(self._replicas.find(error.topic_name, error.partition_index) is not None for error in failed):
            self._retry_later()
        return response

    def _update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        changes = self._image.apply(request)
        calls = [self._replicas.brokers_changed] if changes.brokers else []
        call_each(log, "an observer of the metadata", *calls, lambda: self._image_changed(changes))
        if request.type == FULL:
            self._delete_unassigned()
        return UpdateMetadataResponse(error_code=ErrorCode.NONE)


def _refusal(topic: LeaderAndIsrTopicState) -> LeaderAndIsrTopicError:
    code = ErrorCode.UNKNOWN_SERVER_ERROR
    errors = [LeaderAndIsrPartitionError(partition_index=state.partition_index, error_code=code) for state in topic.partition_states]
    return LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=errors)


def _part(request: LeaderAndIsrRequest, topics: dict[int, LeaderAndIsrTopicState]) -> LeaderAndIsrRequest:
    return LeaderAndIsrRequest(
        controller_id=request.controller_id,
        controller_epoch=request.controller_epoch,
        broker_epoch=request.broker_epoch,
        type=request.type,
        topic_states=list(topics.values()),
        live_leaders=request.live_leaders,
    )
