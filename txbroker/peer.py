"""How the controller's requests reach brokers. Here: this broker itself, by a call; other brokers come with the cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from twisted.internet.defer import Deferred, fail, succeed

from txbroker.cluster.configs import ConfigWatcher
from txbroker.cluster.controller_requests import ControllerRequest
from txbroker.cluster.image import ClusterImage, ImageChanges
from txbroker.cluster.replicas import Replicas
from txbroker.errors import BrokerError, ErrorCode
from txbroker.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from txbroker.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from txbroker.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from txbroker.wire.schema import Response


class OwnBroker:
    """What this broker does when its controller tells it something (Kafka's LeaderAndIsr, UpdateMetadata and StopReplica)."""

    def __init__(
        self,
        replicas: Replicas,
        image: ClusterImage,
        configs: ConfigWatcher,
        now_ms: Callable[[], int],
        image_changed: Callable[[ImageChanges], None],
    ) -> None:
        self._replicas = replicas
        self._image = image
        self._configs = configs
        self._now_ms = now_ms
        self._image_changed = image_changed

    def perform(self, request: ControllerRequest) -> Deferred[Response]:
        """Carry out one request; fails with BrokerError where the whole request is refused."""
        if isinstance(request, LeaderAndIsrRequest):
            return Deferred.fromCoroutine(self._leader_and_isr(request))
        if isinstance(request, StopReplicaRequest):
            return succeed(self._stop_replica(request))
        return succeed(self._update_metadata(request))

    async def _leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        # A log is opened with its topic's configuration, which must be known before.
        await self._configs.load_topics(self._new_topics(request))
        return self._replicas.leader_and_isr(request, self._now_ms())

    def _new_topics(self, request: LeaderAndIsrRequest) -> Iterable[str]:
        return [
            topic.topic_name
            for topic in request.topic_states
            if any(self._replicas.find(topic.topic_name, state.partition_index) is None for state in topic.partition_states)
        ]

    def _stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        response = self._replicas.stop_replica(request)
        for topic in request.topic_states:
            if all(state.delete_partition for state in topic.partition_states) and self._image.topic(topic.topic_name) is None:
                self._configs.forget_topic(topic.topic_name)
        return response

    def _update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        self._image_changed(self._image.apply(request))
        return UpdateMetadataResponse(error_code=ErrorCode.NONE)


class Peers:
    """Sends a controller's requests to brokers by id."""

    def __init__(self, broker_id: int, own: OwnBroker) -> None:
        self._broker_id = broker_id
        self._own = own

    def send(self, broker_id: int, request: ControllerRequest) -> Deferred[Response]:
        """The broker's response; fails with BROKER_NOT_AVAILABLE for a broker that cannot be reached."""
        if broker_id != self._broker_id:
            return fail(BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, f"there is no way to broker {broker_id}"))
        return self._own.perform(request)
