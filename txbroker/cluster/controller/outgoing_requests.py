"""What the parts of the controller send through: batches for one change after the other."""

from __future__ import annotations

from txbroker.cluster.controller.broker_channels import Channels
from txbroker.cluster.controller.controller_context import ControllerContext
from txbroker.cluster.controller.request_batch import Controlling, RequestBatch


class Outbox:
    """Makes request batches of one controller's term and hands them to the brokers' channels."""

    def __init__(self, controlling: Controlling, context: ControllerContext, channels: Channels) -> None:
        self._controlling = controlling
        self._context = context
        self._channels = channels

    def batch(self) -> RequestBatch:
        """An empty batch."""
        return RequestBatch(self._controlling, self._context)

    def send(self, batch: RequestBatch) -> None:
        """Send what the batch has collected, with the states of the partitions as they are known now."""
        for broker_id, request in batch.requests():
            self._channels.put(broker_id, request)
