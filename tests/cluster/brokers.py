"""Several brokers' controllers on one tree in memory, with requests recorded instead of sent."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple, TypeVar

from twisted.internet.defer import Deferred

from tests.support.fakes.turns import Turns
from txbroker.cluster import node_paths
from txbroker.cluster.broker_ids import create_structure, register
from txbroker.cluster.controller.controller import Controller
from txbroker.cluster.controller.leader_balance import BalanceSettings
from txbroker.cluster.controller.request_batch import ControllerRequest
from txbroker.cluster.controller.term import ControllerTerm
from txbroker.cluster.image import ClusterImage
from txbroker.cluster.node_data import BrokerRegistration, PartitionState, RegisteredEndpoint, decode_state
from txbroker.cluster.topics import NewTopic, TopicAdmin
from txbroker.cluster.tree.interface import Tree
from txbroker.cluster.tree.memory import MemoryTrees
from txbroker.errors import ErrorCode
from txbroker.names import TopicPartition
from txbroker.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from txbroker.wire.messages.stop_replica import StopReplicaPartitionError, StopReplicaRequest, StopReplicaResponse
from txbroker.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from txbroker.wire.schema import Response

T = TypeVar("T")
LISTENER = "INTERNAL"


def registration(broker_id: int) -> BrokerRegistration:
    return BrokerRegistration((RegisteredEndpoint(LISTENER, f"b{broker_id}", 9000 + broker_id),))


class FakeBroker:
    """A broker that records its requests, applies the metadata, and answers without error unless a test sets one."""

    def __init__(self, broker_id: int, tree: Tree, cluster: FakeCluster) -> None:
        self.id = broker_id
        self.tree = tree
        self.epoch: int | None = None
        self.image = ClusterImage()
        self.roles: dict[TopicPartition, tuple[int, int]] = {}  # leader and leader epoch of the replicas here
        self.assigned: dict[TopicPartition, tuple[bytes, list[int]]] = {}  # topic ids and replicas of the partitions here
        self.roles_error: Callable[[TopicPartition], int] = lambda _: 0
        self.stop_error: Callable[[TopicPartition], int] = lambda _: 0
        self.controller = Controller(
            tree,
            broker_id,
            listener=LISTENER,
            open_channel=lambda broker_id, _: FakeChannel(broker_id, cluster),
            unclean_default=lambda: cluster.unclean_default,
            now_ms=lambda: 1234,
            call_later=cluster.call_later,
            random_bytes=Random(broker_id).randbytes,
            balance=cluster.balance,
            suspected=lambda: {id_: epoch for id_, epoch in cluster.suspected.items() if id_ != broker_id},
            informed=lambda: self.image.brokers if self.image.is_complete else (),
        )

    def answer(self, request: ControllerRequest) -> Response:
        """As a broker does; a request for another start of it, or of a replaced controller, is refused."""
        stale = request.broker_epoch != self.epoch and self.epoch is not None
        if stale or request.controller_epoch < self.image.controller_epoch:
            return refusal(request)
        if isinstance(request, UpdateMetadataRequest):
            self.image.apply(request)
            return UpdateMetadataResponse(error_code=0)
        if isinstance(request, LeaderAndIsrRequest):
            return self._answer_roles(request)
        return self._answer_stop(request)

    def _answer_roles(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        topics = []
        for topic in request.topic_states:
            for p in topic.partition_states:
                topic_partition = TopicPartition(topic.topic_name, p.partition_index)
                topic_id, _ = self.assigned.get(topic_partition, (b"", []))
                known = topic_partition in self.roles and topic_id == topic.topic_id
                if self.roles_error(topic_partition) or (known and p.leader_epoch <= self.roles[topic_partition][1]):
                    continue
                self.roles[topic_partition] = (p.leader, p.leader_epoch)
                self.assigned[topic_partition] = (topic.topic_id, p.replicas)
            errors = [
                LeaderAndIsrPartitionError(
                    partition_index=p.partition_index,
                    error_code=self.roles_error(TopicPartition(topic.topic_name, p.partition_index)),
                )
                for p in topic.partition_states
            ]
            topics.append(LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=errors))
        return LeaderAndIsrResponse(error_code=0, topics=topics)

    def _answer_stop(self, request: StopReplicaRequest) -> StopReplicaResponse:
        for topic in request.topic_states:
            for p in topic.partition_states:
                self.roles.pop(TopicPartition(topic.topic_name, p.partition_index), None)
        errors = [
            StopReplicaPartitionError(
                topic_name=topic.topic_name,
                partition_index=p.partition_index,
                error_code=self.stop_error(TopicPartition(topic.topic_name, p.partition_index)),
            )
            for topic in request.topic_states
            for p in topic.partition_states
        ]
        return StopReplicaResponse(error_code=0, partition_errors=errors)


def refusal(request: ControllerRequest) -> Response:
    if isinstance(request, UpdateMetadataRequest):
        return UpdateMetadataResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    if isinstance(request, LeaderAndIsrRequest):
        return LeaderAndIsrResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    return StopReplicaResponse(error_code=ErrorCode.STALE_BROKER_EPOCH, partition_errors=[])


class Scheduled(NamedTuple):
    """A delayed call, in `FakeCluster.later` until a test calls it or it is cancelled."""

    delay_s: float
    call: Callable[[], None]
    later: list[Scheduled]

    def active(self) -> bool:
        return any(scheduled is self for scheduled in self.later)

    def cancel(self) -> None:
        self.later[:] = [scheduled for scheduled in self.later if scheduled is not self]


class FakeChannel:
    """Sends to a broker of the cluster."""

    def __init__(self, broker_id: int, cluster: FakeCluster) -> None:
        self._broker_id = broker_id
        self._cluster = cluster

    def send(self, request: ControllerRequest) -> Deferred[Response]:
        return self._cluster.send(self._broker_id, request)

    def close(self) -> None: ...


class FakeCluster:
    """Brokers on one tree; `sent` is what controllers have sent since it was last taken."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.trees = MemoryTrees(self.turns.call_soon)
        self.brokers: dict[int, FakeBroker] = {}
        self.sent: list[tuple[int, ControllerRequest]] = []
        self.later: list[Scheduled] = []
        self.balance: BalanceSettings | None = None  # of brokers that are started from then on
        self.suspected: dict[int, int] = {}  # by the other brokers
        self.unclean_default = False
        self.lost = 0  # so many of the next requests to other brokers than the first do not arrive
        self.observer = self.trees.session()
        self.result(create_structure(self.observer))
        self.admin = TopicAdmin(
            self.observer,
            brokers=lambda: dict.fromkeys(self.brokers),
            validate_configs=lambda _: None,
            partition_count=1,
            replication_factor=1,
            random=Random(1),
            random_bytes=Random(2).randbytes,
        )

    def result(self, deferred: Deferred[T]) -> T:
        return self.turns.result(deferred)

    def start(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self.start_on(broker_id, self.trees.session())

    def start_on(self, broker_id: int, tree: Tree) -> None:
        broker = self.brokers[broker_id] = FakeBroker(broker_id, tree, self)
        broker.epoch = self.result(register(tree, broker_id, registration(broker_id), 1234))
        self.result(broker.controller.start())

    @property
    def term(self) -> ControllerTerm:
        """The parts of the active controller."""
        term = self.controller._term
        assert term is not None
        return term

    def call_later(self, delay_s: float, call: Callable[[], None]) -> Scheduled:
        scheduled = Scheduled(delay_s, call, self.later)
        self.later.append(scheduled)
        return scheduled

    def run_later(self) -> list[float]:
        """Make all delayed calls that are scheduled now. Returns their delays."""
        now = list(self.later)
        self.later.clear()
        for scheduled in now:
            scheduled.call()
        self.turns.run()
        return [scheduled.delay_s for scheduled in now]

    def suspect(self, *broker_ids: int) -> None:
        """The other brokers suspect these ones, and no other."""
        self.suspected = {id_: self.brokers[id_].epoch or 0 for id_ in broker_ids}
        for broker in self.brokers.values():
            if broker.id not in self.suspected:
                broker.controller.suspects_changed()
        self.turns.run()

    def kill(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self.trees.expire(self.brokers.pop(broker_id).tree)
        self.turns.run()

    def send(self, broker_id: int, request: ControllerRequest) -> Deferred[Response]:
        self.sent.append((broker_id, request))
        answer: Deferred[Response] = Deferred()
        broker = self.brokers.get(broker_id)
        if self.lost and broker_id > 1:
            self.lost -= 1
            self.turns.call_soon(lambda: answer.errback(OSError("gone")))
        elif broker is not None:
            self.turns.call_soon(lambda: answer.callback(broker.answer(request)))
        return answer

    @property
    def controller(self) -> Controller:
        active = [broker.controller for broker in self.brokers.values() if broker.controller.active]
        assert len(active) == 1
        return active[0]

    def create_topic(self, name: str, *replicas: tuple[int, ...], **configs: str) -> None:
        """A topic whose partitions have these replicas; `sent` is empty afterwards."""
        topic = NewTopic(name=name, assignments=list(enumerate(replicas)), configs={k.replace("_", "."): v for k, v in configs.items()})
        self.result(self.admin.create(topic))
        self.sent.clear()

    def taken(self) -> dict[int, list[str]]:
        """What was sent to each broker, one line per request and partition. Between brokers there is no order."""
        lines: dict[int, list[str]] = {}
        for broker_id, request in self.sent:
            lines.setdefault(broker_id, []).extend(described(request))
        self.sent.clear()
        return dict(sorted(lines.items()))

    def state(self, topic: str, partition: int = 0) -> PartitionState:
        data, stat = self.result(self.observer.get(node_paths.state(TopicPartition(topic, partition))))
        return decode_state(data, stat.version)

    def put_state(self, topic: str, state: PartitionState) -> None:
        self.result(self.observer.set(node_paths.state(TopicPartition(topic, 0)), state.encode()))


def described(request: ControllerRequest) -> list[str]:
    """`LAI t-0 leader 1 epoch 0 isr 1,2 new`, `UM t-0 leader 1 epoch 0 offline 2`, `UM brokers 1,2`, `SR t-0 epoch 3 delete`."""
    if isinstance(request, LeaderAndIsrRequest):
        return [
            f"LAI {t.topic_name}-{p.partition_index} leader {p.leader} epoch {p.leader_epoch} isr {joined(p.isr)}"
            + (" new" if p.is_new else "")
            for t in request.topic_states
            for p in t.partition_states
        ]
    if isinstance(request, UpdateMetadataRequest):
        partitions = [
            f"UM {t.topic_name}-{p.partition_index} leader {p.leader} epoch {p.leader_epoch}"
            + (f" offline {joined(p.offline_replicas)}" if p.offline_replicas else "")
            for t in request.topic_states
            for p in t.partition_states
        ]
        return partitions or [f"UM brokers {joined([b.id for b in request.live_brokers])}"]
    return [
        f"SR {t.topic_name}-{p.partition_index} epoch {p.leader_epoch}" + (" delete" if p.delete_partition else "")
        for t in request.topic_states
        for p in t.partition_states
    ]


def joined(ids: list[int]) -> str:
    return ",".join(map(str, ids))


def cluster_of(*brokers: int) -> FakeCluster:
    cluster = FakeCluster()
    cluster.start(*brokers)
    cluster.sent.clear()
    return cluster


def new_topic(name: str, *replicas: tuple[int, ...]) -> NewTopic:
    return NewTopic(name=name, assignments=list(enumerate(replicas)))
