"""What a controller reads of the tree: brokers, topics and requested deletions. Each read sets the watch that reports the next change.

Nodes that are malformed, or that ZooKeeper refuses to read, are logged and skipped: they concern one broker or one topic.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from txbroker.cluster import node_paths
from txbroker.cluster.controller.controller_context import ControllerContext, LiveBroker
from txbroker.cluster.controller.fenced_writes import StateNodes
from txbroker.cluster.node_data import MalformedNode, TopicAssignment, decode_broker, decode_topic, is_int32
from txbroker.cluster.tree.interface import NoNode, Refused, Tree, Watcher
from txbroker.cluster.tree.operations import read_each
from txbroker.errors import BrokerError
from txbroker.names import NULL_TOPIC_ID, TopicPartition, check_topic_name

log = logging.getLogger("txbroker.controller")


class NodeReads:
    """Of one term. Watches: `brokers` and `deletions` of those lists, `topics` of the list of topics, `topic` of the node of each topic."""

    def __init__(
        self,
        tree: Tree,
        context: ControllerContext,
        nodes: StateNodes,
        new_topic_id: Callable[[], bytes],
        *,
        brokers: Watcher,
        topics: Watcher,
        topic: Watcher,
        deletions: Watcher,
    ) -> None:
        self._tree = tree
        self._context = context
        self._nodes = nodes
        self._new_topic_id = new_topic_id
        self._brokers_watch = brokers
        self._topics_watch = topics
        self._topic_watch = topic
        self._deletions_watch = deletions

    async def brokers(self) -> dict[int, LiveBroker]:
        """The registered brokers, by id."""
        names = await self._tree.children(node_paths.BROKER_IDS, watch=self._brokers_watch)
        brokers: dict[int, LiveBroker] = {}
        for broker_id in sorted(int(name) for name in names if is_int32(name)):
            try:
                data, stat = await self._tree.get(node_paths.broker(broker_id))
                brokers[broker_id] = LiveBroker(stat.czxid, decode_broker(data))
            except NoNode:
                continue  # it stopped in the meantime: its watch fires
            except MalformedNode as error:
                log.error("ignoring the malformed registration of broker %d: %s", broker_id, error)
            except Refused as error:
                log.error("ignoring the registration of broker %d: %s", broker_id, error)
        return brokers

    async def new_topics(self) -> list[TopicPartition]:
        """Add new topics to the context and remove missing ones. Returns the partitions of the new topics."""
        names = set(await self._tree.children(node_paths.TOPICS, watch=self._topics_watch))
        for name in self._context.topics.keys() - names:
            self._context.forget_topic(name)  # not deleted by this controller: the tree was edited by hand
        self._context.malformed.clear()  # these are read again
        topics = await self.topics(sorted(names - self._context.topics.keys()))
        new = []
        for name, topic in topics.items():
            try:
                if topic.topic_id == NULL_TOPIC_ID:  # tools and controllers older than Kafka 2.8 create it without one
                    topic = await self._nodes.identify(name, self._new_topic_id()) or topic
            except (Refused, MalformedNode) as error:
                self._ignore(name, error)
                continue
            self._context.put_topic(name, topic)
            new.append(name)
        return list(self._context.partitions_of(new))

    async def topics(self, names: Sequence[str]) -> dict[str, TopicAssignment]:
        """Those of these topics that exist."""
        reads = await read_each(self._tree, map(node_paths.topic, names), self._topic_watch)
        topics: dict[str, TopicAssignment] = {}
        for name, read in zip(names, reads, strict=True):
            if read is None:
                continue  # deleted in the meantime: the watch on the list of topics fires
            try:
                if isinstance(read, Refused):
                    raise read
                check_topic_name(name)
                topics[name] = decode_topic(read[0])
                self._context.malformed.discard(name)
            except (BrokerError, MalformedNode, Refused) as error:
                self._ignore(name, error)
        return topics

    async def deletions(self) -> set[str]:
        """The topics whose deletion is requested."""
        return set(await self._tree.children(node_paths.DELETE_TOPICS, watch=self._deletions_watch))

    def _ignore(self, topic: str, error: Exception) -> None:
        self._context.malformed.add(topic)
        log.error("ignoring topic %s: %s", topic, error)
