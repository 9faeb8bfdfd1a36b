"""The controller's outgoing requests: a batch per change."""

from __future__ import annotations

from txbroker.cluster.controller.broker_channels import Channels
from txbroker.cluster.controller.controller_context import ControllerContext
from txbroker.cluster.controller.request_batch import Controlling, RequestBatch


class OutgoingRequests:
    """Creates the request batches of one controller term and passes them to the brokers' channels."""

    def __init__(self, controlling: Controlling, context: ControllerContext, channels: Channels) -> None:
        self._controlling = controlling
        self._context = context
        self._channels = channels
        self.taking_over = True  # brokers that have just started have not got all topics yet

    def batch(self) -> RequestBatch:
        """An empty batch."""
        return RequestBatch(self._controlling, self._context, incremental=self.taking_over)

    def send(self, batch: RequestBatch) -> None:
        """Send the batch with the current states of its partitions."""
        for broker_id, request in batch.requests():
            self._channels.put(broker_id, self._context.brokers[broker_id], request)
