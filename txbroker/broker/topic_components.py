"""The components of a broker that create and delete topics, and wait until they exist."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from txbroker.api.request_context import RequestContext
from txbroker.api.topic_creation import TopicCreation
from txbroker.api.topic_waiting import TopicWaiting
from txbroker.broker import internal_topics
from txbroker.broker.environment import Environment
from txbroker.client_quotas.mutations import Mutations
from txbroker.cluster.image import ClusterImage, ImageChanges
from txbroker.cluster.topics import TopicAdmin
from txbroker.cluster.tree.interface import Tree
from txbroker.config.resolve import BrokerConfig
from txbroker.config.topics import validate_topic_configs
from txbroker.purgatory import Purgatory


class TopicComponents:
    """The administration of topics."""

    def __init__(
        self,
        environment: Environment,
        config: BrokerConfig,
        tree: Tree,
        image: ClusterImage,
        purgatory: Purgatory,
        suspected: Callable[[], Mapping[int, int]],
        mutations: Callable[[RequestContext], Mutations],
    ) -> None:
        """`purgatory`: where requests wait for topics. `suspected`: the broker epochs of the brokers that are probably gone.
        `mutations`: see `TopicCreation`."""
        self.admin = TopicAdmin(
            tree,
            brokers=lambda: {broker.id: broker.rack for broker in image.brokers.values()},
            validate_configs=lambda configs: validate_topic_configs(config, configs),
            partition_count=config.int("num.partitions"),
            replication_factor=config.int("default.replication.factor"),
            random=environment.random,
            random_bytes=environment.random_bytes,
            suspected=suspected,
        )
        self.waiting = TopicWaiting(image, purgatory, self.admin.is_deleting)
        self.admin.on_deleted(lambda name: self.waiting.changed([name]))
        self.creation = TopicCreation(
            self.admin,
            self.waiting,
            enabled=lambda: config.boolean("auto.create.topics.enable"),
            internal_topic=lambda name: internal_topics.new_internal_topic(config, name),
            mutations=mutations,
        )

    def observers(self, changes: ImageChanges) -> list[Callable[[], object]]:
        """What is to be called when the metadata of the cluster has changed."""
        calls: list[Callable[[], object]] = [lambda: self.waiting.changed(changes.changed | changes.deleted)]
        return [*calls, self.waiting.brokers_changed] if changes.brokers else calls
