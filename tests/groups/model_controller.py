"""A model of the controller for `broker_group.py`: leaders and ISRs of the partitions of `__consumer_offsets`, and requests to brokers."""

from __future__ import annotations

from collections import deque

from tests.groups.broker_group import LISTENER, BrokerGroup, Process
from txbroker.cluster.local_replica import Leadership
from txbroker.errors import ErrorCode
from txbroker.names import OFFSETS_TOPIC
from txbroker.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse, PartitionDataResult, TopicDataResult
from txbroker.wire.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest, LeaderAndIsrTopicState
from txbroker.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

TOPIC_ID, DATA_ID = bytes(range(16)), bytes(range(16, 32))
DATA = "data"  # the topic whose offsets are committed; it has no replicas here
RETRY_S = 0.1


class ModelController:
    """Elects from the ISR, but for `elect_unclean`. Requests wait until a broker can be reached; those of one broker arrive in order."""

    def __init__(self, group: BrokerGroup, broker_ids: range, partitions: int) -> None:
        self._group = group
        group.alter_partition = self._alter_partition
        self._ids = tuple(broker_ids)
        self.registered: dict[int, Process] = {}
        self._queues: dict[int, deque[LeaderAndIsrRequest | UpdateMetadataRequest]] = {}
        shifted = [self._ids[n % len(self._ids) :] + self._ids[: n % len(self._ids)] for n in range(partitions)]
        self.states = [Leadership(replicas[0], 0, self._ids, replicas, 0) for replicas in shifted]
        for broker_id in broker_ids:
            self.register(group.start(broker_id))

    # Brokers

    def register(self, process: Process) -> None:
        """A broker is there, also one that had lost its session: it gets everything, and may lead what has no leader."""
        self.registered[process.id] = process
        queue = self._queues[process.id] = deque()
        self._pump(process.id, queue)
        for index, state in enumerate(self.states):
            if state.leader < 0 and process.id in state.isr:
                self.states[index] = self._elected(state, process.id)
        everything = range(len(self.states))
        self._send(process.id, self.metadata([]))
        self._send(process.id, self.roles(everything))
        for broker_id in self.registered:
            self._send(broker_id, self.metadata(everything))
        for broker_id in self.registered.keys() - {process.id}:
            self._send(broker_id, self.roles(everything))

    def lost(self, broker_id: int) -> None:
        """A broker's session is over. The last member of an ISR stays in it."""
        del self.registered[broker_id]
        del self._queues[broker_id]
        changed = []
        for index, state in enumerate(self.states):
            isr = tuple(member for member in state.isr if member != broker_id) or state.isr
            if state.leader == broker_id:
                leader = next((replica for replica in state.replicas if replica in isr and replica in self.registered), -1)
                self.states[index] = self._elected(state, leader, isr)
            elif isr != state.isr:
                self.states[index] = self._elected(state, state.leader, isr)
            else:
                continue
            changed.append(index)
        self._announce(changed)

    # Partitions

    def elect(self, index: int, leader: int) -> None:
        """Move the leadership to a live member of the ISR, or give the leader a new epoch."""
        state = self.states[index]
        assert leader in state.isr and leader in self.registered
        self.states[index] = self._elected(state, leader)
        self._announce([index])

    def elect_unclean(self, index: int, leader: int) -> None:
        """A live replica that is not in sync leads: what it does not have is lost."""
        assert leader not in self.states[index].isr and leader in self.registered
        self.states[index] = self._elected(self.states[index], leader, (leader,))
        self._announce([index])

    def candidates(self, index: int) -> list[int]:
        """The brokers that may lead."""
        return [member for member in self.states[index].isr if member in self.registered]

    def repeat(self, broker_id: int) -> None:
        """Send everything again, as a newly elected controller does."""
        self._send(broker_id, self.roles(range(len(self.states))))
        self._send(broker_id, self.metadata(range(len(self.states))))

    @staticmethod
    def _elected(state: Leadership, leader: int, isr: tuple[int, ...] | None = None) -> Leadership:
        return state._replace(
            leader=leader, leader_epoch=state.leader_epoch + 1, isr=isr or state.isr, partition_epoch=state.partition_epoch + 1
        )

    def _alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        sender = self.registered.get(request.broker_id)
        if sender is None or sender.epoch != request.broker_epoch:
            return AlterPartitionResponse(throttle_time_ms=0, error_code=ErrorCode.STALE_BROKER_EPOCH, topics=[])
        topics = []
        for topic in request.topics:
            results = []
            for asked in topic.partitions:
                state = self.states[asked.partition_index]
                members = {member.broker_id: member.broker_epoch for member in asked.new_isr_with_epochs}
                repeated = tuple(sorted(members)) == tuple(sorted(state.isr))  # it was written, and the response lost
                partition_epoch = state.partition_epoch if repeated else asked.partition_epoch
                error = self._alter_error(state, asked.leader_epoch, partition_epoch, request.broker_id)
                if not error and not repeated and not all(self._is_eligible(*member) for member in members.items()):
                    error = ErrorCode.INELIGIBLE_REPLICA
                if not error and not repeated:
                    state = state._replace(isr=tuple(sorted(members)), partition_epoch=state.partition_epoch + 1)
                    self.states[asked.partition_index] = state
                    for broker_id in self.registered:
                        self._send(broker_id, self.metadata([asked.partition_index]))
                results.append(
                    PartitionDataResult(
                        partition_index=asked.partition_index,
                        error_code=error,
                        leader_id=state.leader,
                        leader_epoch=state.leader_epoch,
                        isr=list(state.isr),
                        partition_epoch=state.partition_epoch,
                    )
                )
            topics.append(TopicDataResult(topic_name=topic.topic_name, topic_id=topic.topic_id, partitions=results))
        return AlterPartitionResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, topics=topics)

    @staticmethod
    def _alter_error(state: Leadership, leader_epoch: int, partition_epoch: int, sender: int) -> ErrorCode:
        if (leader_epoch, sender) != (state.leader_epoch, state.leader):
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.NONE if partition_epoch == state.partition_epoch else ErrorCode.INVALID_UPDATE_VERSION

    def _is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        known = self.registered.get(broker_id)
        return known is not None and broker_epoch in (-1, known.epoch)

    # Requests

    def roles(self, indexes: list[int] | range) -> LeaderAndIsrRequest:
        """The present state as a request."""
        states = [
            LeaderAndIsrPartitionState(
                partition_index=index,
                controller_epoch=1,
                leader=state.leader,
                leader_epoch=state.leader_epoch,
                isr=list(state.isr),
                partition_epoch=state.partition_epoch,
                replicas=list(state.replicas),
            )
            for index, state in enumerate(self.states)
            if index in indexes
        ]
        topic = LeaderAndIsrTopicState(topic_name=OFFSETS_TOPIC, topic_id=TOPIC_ID, partition_states=states)
        return LeaderAndIsrRequest(controller_id=1, controller_epoch=1, topic_states=[topic], live_leaders=[])

    def metadata(self, indexes: list[int] | range) -> UpdateMetadataRequest:
        """The live brokers and these partitions as a request."""
        data = Leadership(self._ids[0], 0, self._ids, self._ids, 0)
        topics = [(DATA, DATA_ID, [_partition(0, data)])]
        if indexes:
            topics.append((OFFSETS_TOPIC, TOPIC_ID, [_partition(index, self.states[index]) for index in indexes]))
        return UpdateMetadataRequest(
            controller_id=1,
            controller_epoch=1,
            topic_states=[UpdateMetadataTopicState(topic_name=n, topic_id=i, partition_states=p) for n, i, p in topics],
            live_brokers=[
                UpdateMetadataBroker(id=n, endpoints=[UpdateMetadataEndpoint(host=f"b{n}", port=n, listener=LISTENER, security_protocol=0)])
                for n in self.registered
            ],
        )

    def _announce(self, changed: list[int]) -> None:
        for broker_id in self.registered:
            self._send(broker_id, self.roles(changed))
        for broker_id in self.registered:
            self._send(broker_id, self.metadata(changed))

    def _send(self, broker_id: int, request: LeaderAndIsrRequest | UpdateMetadataRequest) -> None:
        self._queues[broker_id].append(request)

    def _pump(self, broker_id: int, queue: deque[LeaderAndIsrRequest | UpdateMetadataRequest]) -> None:
        """Deliver the next request of one registration, and go on."""
        group = self._group
        process = self.registered.get(broker_id)
        if self._queues.get(broker_id) is not queue or process is None:
            return
        if queue and broker_id not in group.deaf and process.clock.running:
            process.controlled(queue.popleft())
        group.reactor.callLater(group.delay_s("network") if queue else RETRY_S, self._pump, broker_id, queue)


def _partition(index: int, state: Leadership) -> UpdateMetadataPartitionState:
    return UpdateMetadataPartitionState(
        partition_index=index,
        controller_epoch=1,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        zk_version=state.partition_epoch,
        replicas=list(state.replicas),
        offline_replicas=[],
    )
