"""A leader's ISR change whose connection to the controller dies at any byte of the exchange (linkedin/kafka#451) is made all the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure

from tests.client.test_twisted_connection import Turning
from tests.cluster.replica_host import LAG_S, OTHER, OWN, THIRD, Fetching, ReplicaHost
from tests.peers.network import Node
from txbroker.api.api_versions import ApiVersionsHandler
from txbroker.api.registry import Registry
from txbroker.client.client_machine import ClientSettings
from txbroker.client.twisted_connection import TwistedConnection
from txbroker.cluster.image import ClusterImage, Endpoint
from txbroker.cluster.isr_requests import IsrRequests
from txbroker.peers.broker_link import BrokerLink
from txbroker.peers.controller_channel import ControllerChannel
from txbroker.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse, PartitionDataResult, TopicDataResult
from txbroker.wire.messages.update_metadata import UpdateMetadataBroker, UpdateMetadataEndpoint, UpdateMetadataRequest

TIMEOUT_S = 30.0


class Cut:
    """A proxy: the first connection ends after so many bytes in one direction, later ones are forwarded whole."""

    def __init__(self, turning: Turning, port: int, direction: str, after: int) -> None:
        self.left = {direction: after}
        self.was_cut = False
        reactor = turning.reactor

        class Forward(Protocol):
            """One side of a connection; `peer` is the other."""

            direction = "answer"
            peer: Any = None

            def dataReceived(forward, data: bytes) -> None:
                left = self.left.get(forward.direction)
                if left is not None and left <= len(data):
                    forward.peer.transport.write(data[:left])
                    self.left.clear()
                    self.was_cut = True
                    forward.peer.transport.loseConnection()
                    forward.transport.abortConnection()
                    return
                if left is not None:
                    self.left[forward.direction] = left - len(data)
                forward.peer.transport.write(data)

            def connectionLost(forward, reason: Failure = connectionDone) -> None:
                if forward.peer is not None and forward.peer.transport is not None:
                    forward.peer.transport.loseConnection()

        class Accepted(Forward):
            direction = "request"

            def connectionMade(accepted) -> None:
                accepted.transport.pauseProducing()
                other = Forward()
                accepted.peer, other.peer = other, accepted
                connected = Forward.connectionMade

                def made() -> None:
                    connected(other)
                    accepted.transport.resumeProducing()

                other.connectionMade = made  # type: ignore[method-assign]
                reactor.connectTCP("127.0.0.1", port, _Once(other))

        self._listener = reactor.listenTCP(0, Factory.forProtocol(Accepted), interface="127.0.0.1")
        self.port = self._listener.getHost().port

    def close(self) -> Any:
        return self._listener.stopListening()


class _Once(Factory):
    """Makes one protocol, as a client."""

    def __init__(self, protocol: Protocol) -> None:
        self._made = protocol

    def buildProtocol(self, addr: Any) -> Protocol:
        return self._made

    def startedConnecting(self, connector: Any) -> None: ...

    def clientConnectionFailed(self, connector: Any, reason: Failure) -> None: ...

    def clientConnectionLost(self, connector: Any, reason: Failure) -> None: ...


class Controller:
    """Writes ISRs as a controller does: the same request again has the same answer."""

    request = AlterPartitionRequest

    def __init__(self) -> None:
        self.written: list[list[int]] = []

    def __call__(self, request: AlterPartitionRequest, context: Any) -> AlterPartitionResponse:
        topics = []
        for topic in request.topics:
            (partition,) = topic.partitions
            isr = [one.broker_id for one in partition.new_isr_with_epochs]
            if isr not in self.written:
                self.written.append(isr)
            result = PartitionDataResult(partition_index=partition.partition_index, error_code=0, leader_id=OWN,
                                         leader_epoch=partition.leader_epoch, isr=isr, partition_epoch=7)  # fmt: skip
            topics.append(TopicDataResult(topic_id=topic.topic_id, topic_name=topic.topic_name, partitions=[result]))
        return AlterPartitionResponse(throttle_time_ms=0, error_code=0, topics=topics)


@pytest.fixture
def controller_node(turning: Turning, tmp_path: Path) -> Iterator[tuple[Node, Controller]]:
    node, controller = Node(turning, tmp_path), Controller()
    node.registry = Registry()
    node.registry.register(ApiVersionsHandler(node.registry.ranges))
    node.registry.register(controller)
    yield node, controller
    node.stop()


def altered(turning: Turning, node: Node, controller: Controller, cut: Cut) -> None:
    """A leader removes a follower that lags from the ISR, through the proxy."""
    controller.written.clear()
    host = ReplicaHost()
    image = ClusterImage()
    endpoint = UpdateMetadataEndpoint(port=cut.port, host="127.0.0.1", listener="PLAINTEXT")
    brokers = [UpdateMetadataBroker(id=THIRD, endpoints=[endpoint])]
    image.apply(UpdateMetadataRequest(controller_id=THIRD, controller_epoch=1, live_brokers=brokers))

    def link(address: Endpoint) -> BrokerLink:
        settings = ClientSettings("1", in_flight_max=1)
        return BrokerLink(TwistedConnection(address.host, address.port, turning.reactor, Random(1).random, settings), TIMEOUT_S)

    channel = ControllerChannel(OWN, image, lambda: 1, "PLAINTEXT", link)
    requests = IsrRequests(OWN, turning.reactor)
    requests.begin(5, channel.alter_partition)
    partition = host.partition()
    host.append(0)
    Fetching(host, OTHER).fetch({0: 1})
    host.clock.advance(LAG_S + 1)
    Fetching(host, OTHER).fetch({0: 1})
    host.replicas.check_followers()
    ((_, proposal),) = host.isr_requests.proposed
    requests.propose(partition, proposal)
    turning.until(lambda: partition.state.isr == (OWN, OTHER), "the ISR is changed")
    assert controller.written == [[OWN, OTHER]] and partition.state.partition_epoch == 7
    requests.stop()
    channel.stop()
    turning.outcome(cut.close())


@pytest.mark.parametrize("direction", ["request", "answer"])
def test_an_isr_change_whose_connection_dies_at_any_byte_is_made(
    turning: Turning, controller_node: tuple[Node, Controller], direction: str
) -> None:
    """A12: the negotiation of versions, the request and the response are cut at each third byte."""
    node, controller = controller_node
    after, step = 0, 3
    while True:
        cut = Cut(turning, node.port, direction, after)
        altered(turning, node, controller, cut)
        if not cut.was_cut:
            break
        after += step
    assert after > 60, "the whole exchange"
