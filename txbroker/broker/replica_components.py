"""The components of a broker that lead and follow partitions, and that serve and ask the controller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from txbroker.api.fetch_sessions import FetchSessions
from txbroker.broker.connections import Connections
from txbroker.broker.environment import Environment
from txbroker.broker.identity import uses_zookeeper
from txbroker.broker.replication import FetcherLoops
from txbroker.cluster.config_store import ConfigWatcher
from txbroker.cluster.controller.controller import Controller
from txbroker.cluster.fetchers import Fetchers
from txbroker.cluster.image import ClusterImage, ImageChanges
from txbroker.cluster.isr_requests import IsrRequests
from txbroker.cluster.own_broker import OwnBroker
from txbroker.cluster.replicas import Replicas, ReplicasObserver
from txbroker.cluster.tree.interface import Tree
from txbroker.config.resolve import BrokerConfig
from txbroker.log.directories import LogDirectories
from txbroker.peers.controller_channel import ControllerChannel

if TYPE_CHECKING:
    from txbroker.broker.connection_watch import ConnectionWatch


class ReplicaComponents:
    """The partitions of this broker, and its ways from and to the controller and the other replicas."""

    def __init__(
        self,
        environment: Environment,
        config: BrokerConfig,
        broker_id: int,
        tree: Tree,
        image: ClusterImage,
        directories: LogDirectories,
        configs: ConfigWatcher,
        connections: Connections,
        inter_broker: str,
        observer: ReplicasObserver,
        image_changed: Callable[[ImageChanges], None],
        directory_lost: Callable[[], None],
    ) -> None:
        """`inter_broker`: the name of the inter-broker listener. `directory_lost`: notifies the controller of an offline directory."""
        self.replicas = Replicas(
            broker_id, directories, image, observer, environment.monotonic_s, lambda: config.int("replica.lag.time.max.ms") / 1000
        )
        self.sessions = FetchSessions(config.int("max.incremental.fetch.session.cache.slots"), lambda: environment.random.getrandbits(31))
        self.isr_requests = IsrRequests(broker_id, environment.reactor)
        self.own = OwnBroker(
            self.replicas,
            image,
            configs,
            environment.now_ms,
            image_changed,
            environment.reactor,
            lambda: self.isr_requests.broker_epoch,
            directory_lost,
            environment.replicas_changed,
        )
        self.to_controller = ControllerChannel(broker_id, image, lambda: self.replicas.controller_epoch, inter_broker, connections.link)
        self.fetchers = Fetchers(FetcherLoops(broker_id, config, image, environment, self.isr_requests, connections, inter_broker))
        self.watch = self._watch(environment, config, broker_id, tree, image, inter_broker)

    def _watch(
        self, environment: Environment, config: BrokerConfig, broker_id: int, tree: Tree, image: ClusterImage, inter_broker: str
    ) -> ConnectionWatch | None:
        if not uses_zookeeper(config) or not config.boolean("txbroker.failover.on.connection.loss"):
            return None
        # Imported only here: a broker alone starts without them.
        from txbroker.broker.connection_watch import ConnectionWatch
        from txbroker.cluster.stepping_down import StepDown

        return ConnectionWatch(broker_id, image, inter_broker, environment.reactor, tree, StepDown(self.replicas, self.own, image, tree))

    def registered(self, broker_epoch: int, controller: Controller) -> None:
        """This broker is registered, and `controller` is about to run for election in the same session."""
        self.to_controller.begin(controller)
        self.isr_requests.begin(broker_epoch, self.to_controller.alter_partition)
        if self.watch is not None:
            self.watch.begin(broker_epoch, controller)

    def suspected(self) -> Mapping[int, int]:
        """The broker epochs of the brokers that are probably gone, though their sessions have not ended."""
        return {} if self.watch is None else self.watch.suspected()

    def observers(self, changes: ImageChanges) -> list[Callable[[], object]]:
        """What is to be called when the metadata of the cluster has changed."""
        return [self.watch.brokers_changed] if changes.brokers and self.watch is not None else []

    def stop(self) -> None:
        """End the connections."""
        self.own.stop()
        self.isr_requests.stop()
        self.to_controller.stop()
        if self.watch is not None:
            self.watch.stop()
        self.fetchers.stop()
