"""The controller's requests after a change: one LeaderAndIsr, UpdateMetadata and StopReplica per broker for any number of partitions
(Kafka's `ControllerBrokerRequestBatch`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from txbroker.cluster.controller.controller_context import ControllerContext, LiveBroker
from txbroker.cluster.image import FULL, INCREMENTAL, LEADER_DURING_DELETE
from txbroker.cluster.node_data import PartitionState
from txbroker.config.listeners import PROTOCOLS
from txbroker.names import TopicPartition
from txbroker.wire.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from txbroker.wire.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from txbroker.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

ControllerRequest = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest

EPOCH_DURING_DELETE = -2  # Kafka's LeaderAndIsr.EpochDuringDelete: the replica stops at any epoch
NO_EPOCH = -1
_PROTOCOL_NUMBERS = {name: number for number, name in enumerate(PROTOCOLS)}


class Controlling(NamedTuple):
    """The sender: the fields that all requests of one controller term share."""

    broker_id: int
    epoch: int
    listener: str  # the name of the inter-broker listener


class RequestBatch:
    """Collects changes; `requests` returns the requests in sending order. Brokers that are not alive receive none."""

    def __init__(self, controlling: Controlling, context: ControllerContext, *, incremental: bool = False) -> None:
        """`incremental`: brokers that have just started get the other topics later."""
        self._controlling = controlling
        self._incremental = incremental
        self._context = context
        self._roles: dict[int, dict[TopicPartition, bool]] = {}  # by broker: partitions, and whether they are new
        self._metadata: dict[int, dict[TopicPartition, None]] = {}  # by broker: partitions, an ordered set
        self._full: set[int] = set()  # brokers that get all topics, and forget all others
        self._stops: dict[int, dict[TopicPartition, bool]] = {}  # by broker: partitions, and whether to delete them
        self._built: dict[tuple[TopicPartition, bool], LeaderAndIsrPartitionState] = {}  # all replicas get the same

    def roles(self, brokers: Iterable[int], topic_partition: TopicPartition, *, is_new: bool = False) -> None:
        """Send the partition's leader and ISR to these replicas, and its metadata to all brokers."""
        self.only_roles(brokers, topic_partition, is_new=is_new)
        self.metadata(self._context.brokers, [topic_partition])

    def only_roles(self, brokers: Iterable[int], topic_partition: TopicPartition, *, is_new: bool) -> None:
        """Send the partition's leader and ISR to these replicas."""
        for broker in brokers:
            self._roles.setdefault(broker, {})[topic_partition] = is_new

    def metadata(self, brokers: Iterable[int], partitions: Iterable[TopicPartition] = (), *, full: bool = False) -> None:
        """Send the metadata of these partitions, and the live brokers, to these brokers.

        `full`: they are of all topics of the cluster. These brokers forget the topics that were deleted while no request reached them.
        """
        wanted = dict.fromkeys(partitions)
        for broker in brokers:
            self._metadata.setdefault(broker, {}).update(wanted)
            if full:
                self._full.add(broker)

    def stop(self, broker: int, topic_partition: TopicPartition, *, delete: bool) -> None:
        """Stop a replica, and optionally delete its log."""
        self._stops.setdefault(broker, {})[topic_partition] = delete

    def requests(self) -> list[tuple[int, ControllerRequest]]:
        """LeaderAndIsr first, then UpdateMetadata, then StopReplica."""
        live = self._context.brokers
        requests: list[tuple[int, ControllerRequest]] = []
        requests += [(id_, self._leader_and_isr(live[id_], partitions)) for id_, partitions in self._roles.items() if id_ in live]
        requests += self._update_metadata()
        requests += [(id_, self._stop_replica(live[id_], partitions)) for id_, partitions in self._stops.items() if id_ in live]
        return requests

    def _leader_and_isr(self, broker: LiveBroker, partitions: dict[TopicPartition, bool]) -> LeaderAndIsrRequest:
        topics: dict[str, LeaderAndIsrTopicState] = {}
        leaders: dict[int, None] = {}
        for topic_partition, is_new in partitions.items():
            name = topic_partition.topic
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = LeaderAndIsrTopicState(topic_name=name, topic_id=self._context.topics[name].topic_id)
            state = self._context.states[topic_partition]
            leaders[state.leader] = None
            role = self._built.get((topic_partition, is_new))
            if role is None:
                role = self._built[topic_partition, is_new] = self._role(topic_partition, state, is_new)
            topic.partition_states.append(role)
        return LeaderAndIsrRequest(
            controller_id=self._controlling.broker_id,
            controller_epoch=self._controlling.epoch,
            broker_epoch=broker.epoch,
            topic_states=list(topics.values()),
            live_leaders=[leader for id_ in leaders if (leader := self._live_leader(id_)) is not None],
        )

    def _role(self, topic_partition: TopicPartition, state: PartitionState, is_new: bool) -> LeaderAndIsrPartitionState:
        assignment = self._context.assignment(topic_partition)
        return LeaderAndIsrPartitionState(
            partition_index=topic_partition.partition,
            controller_epoch=state.controller_epoch,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=list(state.isr),
            partition_epoch=state.partition_epoch,
            replicas=list(assignment.replicas),
            adding_replicas=list(assignment.adding),
            removing_replicas=list(assignment.removing),
            is_new=is_new,
            leader_recovery_state=int(state.recovering),
        )

    def _live_leader(self, broker_id: int) -> LeaderAndIsrLiveLeader | None:
        broker = self._context.brokers.get(broker_id)
        endpoint = None if broker is None else broker.endpoint(self._controlling.listener)
        return None if endpoint is None else LeaderAndIsrLiveLeader(broker_id=broker_id, host_name=endpoint.host, port=endpoint.port)

    def _update_metadata(self) -> list[tuple[int, ControllerRequest]]:
        live = self._context.brokers
        live_brokers = [_broker(broker_id, broker) for broker_id, broker in live.items()]
        built: dict[tuple[TopicPartition, ...], list[UpdateMetadataTopicState]] = {}  # most brokers get the same list
        requests: list[tuple[int, ControllerRequest]] = []
        for broker_id, partitions in self._metadata.items():
            if broker_id not in live:
                continue
            key = tuple(partitions)
            if key not in built:
                built[key] = self._topic_states(partitions)
            request = UpdateMetadataRequest(
                controller_id=self._controlling.broker_id,
                type=FULL if broker_id in self._full else INCREMENTAL if self._incremental else 0,
                controller_epoch=self._controlling.epoch,
                broker_epoch=live[broker_id].epoch,
                topic_states=built[key],
                live_brokers=live_brokers,
            )
            requests.append((broker_id, request))
        return requests

    def _topic_states(self, partitions: Iterable[TopicPartition]) -> list[UpdateMetadataTopicState]:
        topics: dict[str, UpdateMetadataTopicState] = {}
        for topic_partition in partitions:
            state = self._context.states.get(topic_partition)
            name = topic_partition.topic
            if state is None and name not in self._context.deleting:
                continue  # no leader could be elected yet: brokers do not know the partition
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = UpdateMetadataTopicState(topic_name=name, topic_id=self._context.topics[name].topic_id)
            topic.partition_states.append(self._metadata_of(topic_partition, state))
        return list(topics.values())

    def _metadata_of(self, topic_partition: TopicPartition, state: PartitionState | None) -> UpdateMetadataPartitionState:
        replicas = self._context.assignment(topic_partition).replicas
        offline = [replica for replica in replicas if not self._context.is_online(replica, topic_partition)]
        if state is None or topic_partition.topic in self._context.deleting:
            epoch = self._controlling.epoch if state is None else state.controller_epoch
            state = PartitionState(LEADER_DURING_DELETE, 0, () if state is None else state.isr, epoch)
        return UpdateMetadataPartitionState(
            partition_index=topic_partition.partition,
            controller_epoch=state.controller_epoch,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=list(state.isr),
            zk_version=state.partition_epoch,
            replicas=list(replicas),
            offline_replicas=offline,
        )

    def _stop_replica(self, broker: LiveBroker, partitions: dict[TopicPartition, bool]) -> StopReplicaRequest:
        topics: dict[str, StopReplicaTopicState] = {}
        for topic_partition, delete in partitions.items():
            topic = topics.get(topic_partition.topic)
            if topic is None:
                topic = topics[topic_partition.topic] = StopReplicaTopicState(topic_name=topic_partition.topic)
            partition = StopReplicaPartitionState(
                partition_index=topic_partition.partition,
                leader_epoch=self._stop_epoch(topic_partition),
                delete_partition=delete,
            )
            topic.partition_states.append(partition)
        return StopReplicaRequest(
            controller_id=self._controlling.broker_id,
            controller_epoch=self._controlling.epoch,
            broker_epoch=broker.epoch,
            topic_states=list(topics.values()),
        )

    def _stop_epoch(self, topic_partition: TopicPartition) -> int:
        if topic_partition.topic in self._context.deleting:
            return EPOCH_DURING_DELETE
        state = self._context.states.get(topic_partition)
        return NO_EPOCH if state is None else state.leader_epoch


def _broker(broker_id: int, broker: LiveBroker) -> UpdateMetadataBroker:
    endpoints = [
        UpdateMetadataEndpoint(
            port=e.port, host=e.host, listener=e.listener, security_protocol=_PROTOCOL_NUMBERS.get(e.security_protocol, 0)
        )
        for e in broker.registration.endpoints
    ]
    return UpdateMetadataBroker(id=broker_id, endpoints=endpoints, rack=broker.registration.rack)
