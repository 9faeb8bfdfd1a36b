from __future__ import annotations

from types import SimpleNamespace

import pytest
from twisted.internet.defer import Deferred

from txbroker.cluster.controller.broker_channels import Channel, Channels
from txbroker.cluster.controller.controller_context import LiveBroker
from txbroker.cluster.controller.request_batch import ControllerRequest
from txbroker.cluster.node_data import BrokerRegistration
from txbroker.errors import BrokerError, ErrorCode
from txbroker.wire.messages.stop_replica import StopReplicaRequest
from txbroker.wire.messages.update_metadata import UpdateMetadataResponse
from txbroker.wire.schema import Response

BROKER = LiveBroker(1, BrokerRegistration(()))
OK = UpdateMetadataResponse(error_code=0)


class ChannelsHarness:
    """Sends are kept until the test answers them; the controller epoch identifies a request."""

    def __init__(self) -> None:
        self.flying: list[tuple[int, int, Deferred[Response]]] = []
        self.answered: list[tuple[int, int]] = []
        self.closed: list[int] = []
        self.channels = Channels(self.open_channel, lambda broker, request, _: self.answered.append((broker, request.controller_epoch)))

    def open_channel(self, broker_id: int, broker: LiveBroker) -> Channel:
        return SimpleNamespace(send=lambda request: self.send(broker_id, request), close=lambda: self.closed.append(broker_id))

    def send(self, broker_id: int, request: ControllerRequest) -> Deferred[Response]:
        if request.controller_epoch < 0:
            raise BrokerError(ErrorCode.STALE_CONTROLLER_EPOCH)
        self.flying.append((broker_id, request.controller_epoch, Deferred()))
        return self.flying[-1][2]

    def put(self, broker_id: int, *numbers: int) -> None:
        for number in numbers:  # of a kind that is not merged
            self.channels.put(broker_id, BROKER, StopReplicaRequest(controller_id=1, controller_epoch=number))

    def sent(self) -> list[tuple[int, int]]:
        return [(broker, number) for broker, number, _ in self.flying]


def test_each_broker_has_one_request_in_flight_in_order() -> None:
    harness = ChannelsHarness()
    harness.put(1, 10, 11)
    harness.put(2, 20)
    assert harness.sent() == [(1, 10), (2, 20)]
    harness.flying[0][2].callback(OK)
    assert harness.sent() == [(1, 10), (2, 20), (1, 11)]
    assert harness.answered == [(1, 10)]


def test_a_lost_request_does_not_hold_up_the_next(caplog: pytest.LogCaptureFixture) -> None:
    harness = ChannelsHarness()
    harness.put(1, 10, -1, 11)
    harness.flying[0][2].errback(OSError("gone"))
    assert harness.sent() == [(1, 10), (1, 11)]
    assert harness.answered == []
    assert "failed to send StopReplicaRequest to broker 1: gone" in caplog.text
    assert "STALE_CONTROLLER_EPOCH" in caplog.text
    # The own broker can know of another election before the controller does: that is no defect.
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]


def test_a_dropped_broker_gets_no_requests_and_its_responses_are_ignored() -> None:
    harness = ChannelsHarness()
    harness.put(1, 10, 11)
    harness.channels.drop(1)
    assert harness.closed == [1]
    harness.put(1, 12)
    harness.flying[0][2].callback(OK)
    assert harness.sent() == [(1, 10), (1, 12)]
    harness.flying[1][2].callback(OK)
    assert harness.answered == [(1, 12)]


def test_closed_channels_send_nothing() -> None:
    harness = ChannelsHarness()
    harness.put(1, 10, 11)
    harness.channels.close()
    harness.flying[0][2].callback(OK)
    assert harness.sent() == [(1, 10)]
    assert harness.answered == []
