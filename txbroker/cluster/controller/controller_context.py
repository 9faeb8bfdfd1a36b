"""The controller's copy of the cluster state, as last read or written (Kafka's `ControllerContext`)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from txbroker.cluster.node_data import BrokerRegistration, PartitionState, RegisteredEndpoint, ReplicaAssignment, TopicAssignment
from txbroker.names import TopicPartition


class LiveBroker(NamedTuple):
    """A registered broker."""

    epoch: int  # the czxid of its registration: a new one means that the broker restarted
    registration: BrokerRegistration

    def endpoint(self, listener: str) -> RegisteredEndpoint | None:
        """The endpoint for this listener name."""
        return next((e for e in self.registration.endpoints if e.listener == listener), None)


class ControllerContext:
    """Plain data with look-ups; changed only by the controller's term."""

    def __init__(self) -> None:
        self.brokers: dict[int, LiveBroker] = {}
        self.shutting_down: set[int] = set()  # registered brokers in controlled shutdown: they get no leadership
        self.suspected: set[int] = set()  # registered brokers that are probably gone: others are preferred in elections
        self._topics: dict[str, TopicAssignment] = {}
        self._names: dict[bytes, str] = {}  # of the topics, by id
        self.reassigning: set[TopicPartition] = set()  # partitions with a reassignment in progress
        self.states: dict[TopicPartition, PartitionState] = {}  # without partitions that have no state yet
        self.deleting: set[str] = set()
        self.malformed: set[str] = set()  # topics whose nodes cannot be read
        self.offline: dict[int, set[TopicPartition]] = {}  # by broker: replicas whose log directory has failed

    @property
    def topics(self) -> Mapping[str, TopicAssignment]:
        """The topics that exist."""
        return self._topics

    @property
    def is_complete(self) -> bool:
        """Whether all topics and states were read. If not, brokers must not forget the others, nor the offsets that groups have in them."""
        return not self.malformed and all(tp in self.states or tp.topic in self.deleting for tp in self.partitions())

    def topic_name(self, topic_id: bytes) -> str | None:
        """The topic of this id."""
        return self._names.get(topic_id)

    def put_topic(self, name: str, topic: TopicAssignment) -> None:
        """Add a topic, or replace its assignment."""
        self._topics[name] = topic
        self._names[topic.topic_id] = name
        for partition, assignment in topic.partitions.items():
            if assignment.is_reassigning:
                self.reassigning.add(TopicPartition(name, partition))
            else:
                self.reassigning.discard(TopicPartition(name, partition))

    def is_online(self, broker_id: int, topic_partition: TopicPartition, *, shutting_down_too: bool = False) -> bool:
        """Whether a replica can serve: its broker is alive and not shutting down, and its log directory is online."""
        return (
            broker_id in self.brokers
            and (shutting_down_too or broker_id not in self.shutting_down)
            and topic_partition not in self.offline.get(broker_id, ())
        )

    def online(self, topic_partition: TopicPartition, *, shutting_down_too: bool = False) -> tuple[int, ...]:
        """The replicas of a partition that can serve, in the order of the assignment."""
        replicas = self.assignment(topic_partition).replicas
        return tuple(r for r in replicas if self.is_online(r, topic_partition, shutting_down_too=shutting_down_too))

    def by_preference(self, replicas: Iterable[int]) -> tuple[int, ...]:
        """These replicas in their order, suspected brokers last."""
        return tuple(sorted(replicas, key=self.suspected.__contains__))

    def assignment(self, topic_partition: TopicPartition) -> ReplicaAssignment:
        """The replicas of an existing partition."""
        return self.topics[topic_partition.topic].partitions[topic_partition.partition]

    def isr_epochs(self, topic_partition: TopicPartition, isr: Iterable[int]) -> tuple[int, ...]:
        """The epochs of these brokers, -1 if one is not registered; none for a partition with one replica, which has no follower."""
        if len(self.assignment(topic_partition).replicas) == 1:
            return ()
        return tuple(self.brokers[id_].epoch if id_ in self.brokers else -1 for id_ in isr)

    def knows(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition exists."""
        topic = self.topics.get(topic_partition.topic)
        return topic is not None and topic_partition.partition in topic.partitions

    def partitions_of(self, topics: Iterable[str]) -> Iterator[TopicPartition]:
        """All partitions of these topics."""
        for topic in topics:
            for partition in self.topics[topic].partitions:
                yield TopicPartition(topic, partition)

    def partitions(self) -> Iterator[TopicPartition]:
        """All partitions."""
        return self.partitions_of(self.topics)

    def first_partitions(self) -> Iterator[TopicPartition]:
        """A partition of each topic."""
        for topic, assignment in self.topics.items():
            for partition in list(assignment.partitions)[:1]:
                yield TopicPartition(topic, partition)

    def partitions_on(self, brokers: Collection[int]) -> Iterator[TopicPartition]:
        """All partitions with a replica on any of these brokers."""
        for topic, assignment in self.topics.items():
            for partition, replicas in assignment.partitions.items():
                if any(replica in brokers for replica in replicas.replicas):
                    yield TopicPartition(topic, partition)

    def led_offline(self, partitions: Iterable[TopicPartition] | None = None) -> list[TopicPartition]:
        """Those of all partitions, or of these, without an online leader, including those without state; not of topics in deletion."""
        wanted = self.partitions() if partitions is None else partitions
        return [tp for tp in wanted if tp.topic not in self.deleting and not self._is_led(tp)]

    def forget_broker(self, broker_id: int) -> None:
        """Remove a broker that is no longer registered."""
        self.brokers.pop(broker_id, None)
        self.shutting_down.discard(broker_id)
        self.suspected.discard(broker_id)
        self.offline.pop(broker_id, None)

    def forget_topic(self, topic: str) -> None:
        """Remove a deleted topic."""
        for topic_partition in self.partitions_of([topic]):
            self.states.pop(topic_partition, None)
            self.reassigning.discard(topic_partition)
            for offline in self.offline.values():
                offline.discard(topic_partition)
        self._names.pop(self._topics.pop(topic).topic_id, None)
        self.deleting.discard(topic)

    def _is_led(self, topic_partition: TopicPartition) -> bool:
        state = self.states.get(topic_partition)
        return state is not None and self.is_online(state.leader, topic_partition)
