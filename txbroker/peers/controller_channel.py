"""A broker's requests to the controller of the moment (Kafka's `NodeToControllerChannelManager`).

The image names the controller. A request goes to it only while no newer controller epoch is known than the image's, and its response
counts only while the epoch is still the same: a replaced controller that does not know it yet would refuse a new leader's request with
FENCED_LEADER_EPOCH (KAFKA-14154).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from twisted.internet.defer import Deferred

from txbroker.client.client_errors import ConnectionFailed
from txbroker.cluster.image import NO_CONTROLLER, ClusterImage, Endpoint
from txbroker.errors import BrokerError, ErrorCode
from txbroker.peers.broker_link import BrokerLink
from txbroker.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from txbroker.wire.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse


class ControllerServices(Protocol):
    """What a controller does for brokers (`cluster/controller/controller.py`). NOT_CONTROLLER while it is not elected."""

    def alter_partition(self, request: AlterPartitionRequest) -> Deferred[AlterPartitionResponse]:
        """Serve AlterPartition."""

    def controlled_shutdown(self, request: ControlledShutdownRequest) -> Deferred[ControlledShutdownResponse]:
        """Serve ControlledShutdown."""


class ControllerChannel:
    """Each request is sent once: the Deferred fails with BrokerError while there is no controller, or it cannot be reached."""

    _own: ControllerServices

    def __init__(
        self,
        broker_id: int,
        image: ClusterImage,
        controller_epoch: Callable[[], int],
        listener: str,
        open_link: Callable[[Endpoint], BrokerLink],
    ) -> None:
        """`controller_epoch`: the highest in any request of a controller. `listener` is the inter-broker listener."""
        self._broker_id = broker_id
        self._image = image
        self._controller_epoch = controller_epoch
        self._listener = listener
        self._open_link = open_link
        self._link: tuple[Endpoint, BrokerLink] | None = None

    def begin(self, own: ControllerServices) -> None:
        """`own` serves the requests while this broker is the controller."""
        self._own = own

    def stop(self) -> None:
        """End the connection."""
        if self._link is not None:
            self._link[1].close()
            self._link = None

    def alter_partition(self, request: AlterPartitionRequest) -> Deferred[AlterPartitionResponse]:
        """Send AlterPartition."""
        return self._ask(request, lambda: self._own.alter_partition(request))

    def controlled_shutdown(self, request: ControlledShutdownRequest) -> Deferred[ControlledShutdownResponse]:
        """Send ControlledShutdown."""
        return self._ask(request, lambda: self._own.controlled_shutdown(request))

    def _ask(self, request: AlterPartitionRequest | ControlledShutdownRequest, own: Callable[[], Deferred[Any]]) -> Deferred[Any]:
        async def ask() -> Any:
            epoch = self._controller_epoch()
            if self._image.controller_epoch < epoch:
                raise BrokerError(ErrorCode.NOT_CONTROLLER, f"the metadata of controller epoch {epoch} has not come yet")
            if self._image.controller_id == self._broker_id:
                response = await own()
            else:
                response = await self._send(request)
            if self._controller_epoch() != epoch:
                raise BrokerError(ErrorCode.NOT_CONTROLLER, "another controller was elected before the response")
            return response

        return Deferred.fromCoroutine(ask())

    async def _send(self, request: AlterPartitionRequest | ControlledShutdownRequest) -> Any:
        link = self._link_to(self._image.controller_id)
        try:
            return await link.send(request)
        except ConnectionFailed as error:
            raise BrokerError(ErrorCode.NETWORK_EXCEPTION, str(error)) from error

    def _link_to(self, controller_id: int) -> BrokerLink:
        endpoint = self._image.endpoint(controller_id, self._listener)
        if endpoint is None:
            what = "the controller" if controller_id == NO_CONTROLLER else f"the address of controller {controller_id}"
            raise BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, f"{what} is not known")
        if self._link is None or self._link[0] != endpoint:
            self.stop()
            self._link = endpoint, self._open_link(endpoint)
        return self._link[1]
