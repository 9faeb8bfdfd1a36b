"""A broker's requests to the controller: found by the image, over real connections, and believed only in the same controller epoch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed

from tests.client.test_twisted_connection import Turning
from tests.peers.network import Held, Node, link
from txbroker.api.api_versions import ApiVersionsHandler
from txbroker.api.registry import Registry
from txbroker.cluster.image import ClusterImage, Endpoint
from txbroker.errors import BrokerError, ErrorCode
from txbroker.peers.broker_link import BrokerLink
from txbroker.peers.controller_channel import ControllerChannel
from txbroker.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from txbroker.wire.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from txbroker.wire.messages.update_metadata import UpdateMetadataBroker, UpdateMetadataEndpoint, UpdateMetadataRequest

OWN, OTHER = 7, 1
REQUEST = AlterPartitionRequest(broker_id=OWN, broker_epoch=5, topics=[])


def altered(error_code: int) -> AlterPartitionResponse:
    return AlterPartitionResponse(throttle_time_ms=0, error_code=error_code, topics=[])


class Harness:
    """Broker 7, and broker 1 on a socket, which holds AlterPartition requests back until the test answers them."""

    def __init__(self, turning: Turning, path: Path) -> None:
        self.turning = turning
        self.node = Node(turning, path)
        self.held = Held(AlterPartitionRequest, lambda request: altered(0))
        self.node.registry = Registry()
        self.node.registry.register(ApiVersionsHandler(self.node.registry.ranges))
        self.node.registry.register(self.held)
        self.image = ClusterImage()
        self.epoch = 0
        self.opened: list[Endpoint] = []
        self.channel = ControllerChannel(OWN, self.image, lambda: self.epoch, "PLAINTEXT", self._open)
        self.channel.begin(self)

    def _open(self, endpoint: Endpoint) -> BrokerLink:
        self.opened.append(endpoint)
        return link(self.turning, endpoint.port)

    def alter_partition(self, request: AlterPartitionRequest) -> Deferred[AlterPartitionResponse]:
        """This broker's own controller."""
        return succeed(altered(0))

    def controlled_shutdown(self, request: ControlledShutdownRequest) -> Deferred[ControlledShutdownResponse]:
        return succeed(ControlledShutdownResponse(error_code=0, remaining_partitions=[]))

    def metadata(self, controller_id: int, epoch: int, *, port: int | None = None) -> None:
        """The metadata of a controller comes."""
        endpoint = UpdateMetadataEndpoint(port=port or self.node.port, host="127.0.0.1", listener="PLAINTEXT")
        brokers = [UpdateMetadataBroker(id=OTHER, endpoints=[endpoint])]
        self.image.apply(UpdateMetadataRequest(controller_id=controller_id, controller_epoch=epoch, live_brokers=brokers))
        self.epoch = max(epoch, self.epoch)

    def ask(self) -> list[Any]:
        answers: list[Any] = []
        self.channel.alter_partition(REQUEST).addCallbacks(answers.append, lambda failure: answers.append(failure.value))
        return answers


@pytest.fixture
def harness(turning: Turning, tmp_path: Path) -> Iterator[Harness]:
    made = Harness(turning, tmp_path)
    yield made
    made.channel.stop()
    made.node.stop()


def code(answers: list[Any]) -> ErrorCode:
    (error,) = answers
    assert isinstance(error, BrokerError)
    return error.code


def test_without_a_controller_requests_fail(harness: Harness) -> None:
    assert code(harness.ask()) == ErrorCode.BROKER_NOT_AVAILABLE
    harness.metadata(3, 1)
    assert code(harness.ask()) == ErrorCode.BROKER_NOT_AVAILABLE, "broker 3 has no address"


def test_this_broker_as_the_controller_is_called(harness: Harness) -> None:
    harness.metadata(OWN, 1)
    assert harness.ask()[0].error_code == 0
    assert harness.turning.outcome(harness.channel.controlled_shutdown(ControlledShutdownRequest(broker_id=OWN))).error_code == 0
    assert harness.opened == []


def test_requests_go_to_the_controller_over_one_connection(harness: Harness) -> None:
    harness.metadata(OTHER, 1)
    first, second = harness.ask(), harness.ask()
    for answers in (first, second):
        harness.turning.until(lambda: harness.held.received, "the controller has the request")
        assert harness.held.received[0][0].broker_epoch == 5
        harness.held.answer()
        harness.turning.until(lambda: answers, "the answer is here")  # noqa: B023
        assert answers[0].error_code == 0
    assert len(harness.opened) == len(harness.node.connections) == 1


def test_a_controller_with_another_address_gets_another_connection(harness: Harness) -> None:
    harness.metadata(OTHER, 1)
    answers = harness.ask()
    harness.turning.until(lambda: harness.held.received, "the controller has the request")
    harness.node.stop()
    harness.turning.until(lambda: answers, "the connection is lost")
    assert code(answers) == ErrorCode.NETWORK_EXCEPTION
    harness.held.received.clear()
    old = harness.node.port
    harness.node.port = 0
    harness.node.start()
    assert harness.node.port != old
    harness.metadata(OTHER, 1)
    answers = harness.ask()
    harness.turning.until(lambda: harness.held.received, "the controller has the request")
    harness.held.answer()
    harness.turning.until(lambda: answers, "the answer is here")
    assert answers[0].error_code == 0
    assert [endpoint.port for endpoint in harness.opened] == [old, harness.node.port]


def test_nothing_is_sent_to_a_controller_that_was_replaced(harness: Harness) -> None:
    harness.metadata(OTHER, 1)
    harness.epoch = 2  # LeaderAndIsr of the next controller
    assert code(harness.ask()) == ErrorCode.NOT_CONTROLLER
    assert harness.opened == []


@pytest.mark.parametrize("controller", [OWN, OTHER])
def test_the_response_of_a_controller_that_was_replaced_is_ignored(harness: Harness, controller: int) -> None:
    """KAFKA-14154: it may refuse, in a leader epoch that it does not know, what the next controller accepts."""
    late: Deferred[AlterPartitionResponse] = Deferred()
    harness.alter_partition = lambda request: late  # type: ignore[method-assign]
    harness.metadata(controller, 1)
    answers = harness.ask()
    if controller == OTHER:
        harness.turning.until(lambda: harness.held.received, "the controller has the request")
    harness.metadata(OTHER, 2)
    assert not answers
    if controller == OTHER:
        harness.held.answer()
    else:
        late.callback(altered(0))
    harness.turning.until(lambda: answers, "the answer is here")
    assert code(answers) == ErrorCode.NOT_CONTROLLER
