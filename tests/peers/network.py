"""Brokers on loopback sockets in one reactor, which the test turns by hand: the real transport, connections, handlers and channels."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed

from tests.client.test_twisted_connection import Turning
from tests.cluster.test_replicas import ReplicasHarness
from tests.log_directories.support import NOW
from tests.transport.harness import JobWorker
from txbroker.action_queue import ActionQueue
from txbroker.api.api_versions import ApiVersionsHandler
from txbroker.api.registry import Handler, Registry
from txbroker.broker.cluster_handlers import register_for_cluster
from txbroker.client.client_machine import ClientSettings
from txbroker.client.twisted_connection import TwistedConnection
from txbroker.cluster.controller.controller import Controller
from txbroker.cluster.image import ClusterImage
from txbroker.cluster.own_broker import OwnBroker
from txbroker.cluster.tree.interface import Refused
from txbroker.connection.protocol import Connection
from txbroker.errors import BrokerError, ErrorCode
from txbroker.peers.broker_link import BrokerLink
from txbroker.peers.peer_channel import PeerChannel
from txbroker.transport.hub import Hub
from txbroker.transport.limits import Limits
from txbroker.transport.listener import Listener
from txbroker.wire.schema import Request

TIMEOUT_S = 30.0


class Configs:
    """The configurations of topics; `failure` is how reading them fails."""

    failure: Exception | None = None
    reads = 0

    def load_topics(self, names: Iterable[str]) -> Deferred[dict[str, Refused]]:
        self.reads += 1
        return succeed({}) if self.failure is None else fail(self.failure)

    def forget_topic(self, name: str) -> None: ...


class Node:
    """Broker 1 as its controller sees it: a listener, the inter-broker handlers, and replicas in two log directories."""

    def __init__(self, turning: Turning, path: Path, *others: Handler) -> None:
        self._turning = turning
        self.harness = ReplicasHarness(path)
        self.image = ClusterImage()
        self.configs = Configs()
        self.epoch = 100
        self.controller: Controller | None = None
        reactor = turning.reactor
        configs: Any = self.configs
        self.own = OwnBroker(
            self.harness.replicas, self.image, configs, lambda: NOW, lambda changes: None, reactor, lambda: self.epoch, lambda: None
        )
        self.registry = Registry()
        self.registry.register(ApiVersionsHandler(self.registry.ranges))
        for handler in others:
            self.registry.register(handler)
        register_for_cluster(self.registry, self.own, self._controller, lambda broker_id: Deferred())
        self.connections: list[Connection] = []
        self.port = 0
        self._hub: Any = None
        self.start()

    def _controller(self) -> Controller:
        if self.controller is None:
            raise BrokerError(ErrorCode.NOT_CONTROLLER)
        return self.controller

    def start(self) -> None:
        """Listen, on the same port as before."""
        self._hub = Hub(self._turning.reactor, Limits(), JobWorker(), ActionQueue(self._turning.reactor.callLater))
        self._listener: Any = Listener(self._hub, "PLAINTEXT", "127.0.0.1", self.port, self._build)
        self._hub.start()
        self._listener.startListening()
        self.port = self._listener.getHost().port

    def stop(self) -> None:
        """Close the port and all connections."""
        if self._hub is not None:
            self._turning.outcome(self._listener.stopListening() or succeed(None))
            self._turning.outcome(self._hub.stop())
            self._hub = None

    def _build(self) -> Connection:
        self.connections.append(Connection(self.registry))
        return self.connections[-1]


def link(turning: Turning, port: int, timeout_s: float = TIMEOUT_S) -> BrokerLink:
    connection = TwistedConnection("127.0.0.1", port, turning.reactor, Random(1).random, ClientSettings("7", in_flight_max=1))
    return BrokerLink(connection, timeout_s)


def channel(turning: Turning, port: int, timeout_s: float = TIMEOUT_S) -> PeerChannel:
    """The controller's channel to broker 1."""
    return PeerChannel(1, link(turning, port, timeout_s), turning.reactor, Random(1).random)


class Held:
    """A handler whose requests wait until the test answers them."""

    def __init__(self, request: type[Request], answer: Callable[[Any], Any]) -> None:
        self.request = request
        self.received: list[tuple[Any, Deferred[Any]]] = []
        self._answer = answer

    def __call__(self, request: Any, context: Any) -> Deferred[Any]:
        self.received.append((request, Deferred()))
        return self.received[-1][1]

    def answer(self) -> None:
        request, deferred = self.received.pop(0)
        deferred.callback(self._answer(request))
