"""Administrators: they create and delete topics, add partitions, reassign replicas, cancel that, elect leaders and change configurations.

Each request is sent once. `Expected` has what must be true at the end: the outcome of each request that was answered without an error. What
a request without an answer concerns is `doubtful` from then on, since the request may still be carried out. Names of topics are not reused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from simulation.clients.cluster_client import PASSING, ClusterClient, Refused
from simulation.ledger import Ledger
from txbroker.errors import ErrorCode
from txbroker.names import TopicPartition
from txbroker.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from txbroker.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from txbroker.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from txbroker.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from txbroker.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from txbroker.wire.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest

RETRY_S = 0.2
TOPIC = 2  # the type of a resource
SET = 0  # the operation on a configuration
TIMEOUT_MS = 3000

# The controller is another broker now, or a broker does not answer: the request may have been carried out.
_CONTROLLER_MOVED = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.BROKER_NOT_AVAILABLE})
_NO_BROKERS = frozenset({ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.INVALID_REPLICATION_ASSIGNMENT})  # as some do not run
_NO_TOPIC = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})  # a broker does not know it yet
_FAILURES = {
    "create": _CONTROLLER_MOVED | _NO_BROKERS,
    "delete": _CONTROLLER_MOVED | _NO_TOPIC,
    "add_partitions": _CONTROLLER_MOVED | _NO_BROKERS | _NO_TOPIC | {ErrorCode.REASSIGNMENT_IN_PROGRESS},
    "reassign": _CONTROLLER_MOVED | _NO_BROKERS | _NO_TOPIC,
    "cancel": _CONTROLLER_MOVED | _NO_TOPIC | {ErrorCode.NO_REASSIGNMENT_IN_PROGRESS},
    "elect": _CONTROLLER_MOVED | _NO_TOPIC | {ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE},
    "configure": _CONTROLLER_MOVED | _NO_TOPIC,
}  # fmt: skip

REQUESTS = ("create", "delete", "add_partitions", "reassign", "cancel", "elect", "configure")


@dataclass(frozen=True, slots=True)
class AdminPlan:
    """What one administrator does. `topics`: those of the plan, with their partitions, brokers' ids and `replicas` of each partition.

    `work`: some of `REQUESTS`, each the name of a method without its underscore. The topics of the plan are not deleted.
    """

    name: str
    topics: Mapping[str, int]
    brokers: int
    replicas: int
    work: tuple[str, ...]
    pause_s: float


@dataclass(slots=True)
class Expected:
    """`partitions`: how many each existing topic has. `targets`: the replicas of reassigned partitions. `doubtful`: not to be checked."""

    partitions: dict[str, int] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    targets: dict[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    segment_bytes: dict[str, int] = field(default_factory=dict)  # of topics; 0 if a request had no answer
    doubtful: set[str | TopicPartition] = field(default_factory=set)


class Administrator:
    """Works until `finish`. `busy`: a request is not answered yet."""

    def __init__(self, name: str, client: ClusterClient, plan: AdminPlan, ledger: Ledger) -> None:
        self.name = name
        self.plan = plan
        self.finishing = False
        self.expected = Expected(partitions=dict(plan.topics))
        self.requests = 0
        self._client = client
        self._ledger = ledger
        self._created = 0
        self._done = False

    def start(self) -> None:
        """Begin."""
        self._ledger.run(self.name, self._run())

    def finish(self) -> None:
        """Send nothing more."""
        self.finishing = True

    @property
    def busy(self) -> list[str]:
        """Its request without an answer."""
        return [] if self._done else [f"{self.name} waits for an answer"]

    async def _run(self) -> None:
        chance, plan = self._client.chance, self.plan
        while not self.finishing:
            await self._client.sleep(chance.expovariate(1 / plan.pause_s))
            try:
                await self._client.refresh([])
                await getattr(self, f"_{chance.choice(plan.work)}")()
                self.requests += 1
            except PASSING:
                await self._client.sleep(RETRY_S)
        self._done = True

    def _own_topic(self) -> str | None:
        """A topic of this administrator that exists."""
        own = [name for name in self.expected.partitions if name not in self.plan.topics and name not in self.expected.doubtful]
        return self._client.chance.choice(own) if own else None

    def _partition(self) -> TopicPartition:
        existing = [name for name in self.expected.partitions if name not in self.expected.doubtful]
        name = self._client.chance.choice(existing)
        return TopicPartition(name, self._client.chance.randrange(self.expected.partitions[name]))

    @staticmethod
    def _check(request: str, *codes: int) -> None:
        """Refused, unless faults explain these errors."""
        for code in codes:
            if code and code not in _FAILURES[request]:
                raise Refused(f"{request} failed with {ErrorCode(code).name}")

    async def _create(self) -> None:
        chance, expected = self._client.chance, self.expected
        self._created += 1
        name, count = f"{self.name}-{self._created}", chance.choice((1, 3))
        expected.doubtful.add(name)
        topic = CreatableTopic(name=name, num_partitions=count, replication_factor=self.plan.replicas, assignments=[], configs=[])
        request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
        (answer,) = (await self._client.send(self._client.controller_id, request)).topics
        self._check("create", answer.error_code)
        if not answer.error_code:
            expected.partitions[name] = count
            expected.doubtful.discard(name)

    async def _delete(self) -> None:
        name, expected = self._own_topic(), self.expected
        if name is None:
            return
        expected.doubtful.add(name)
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], topic_names=[name], timeout_ms=TIMEOUT_MS)
        (answer,) = (await self._client.send(self._client.controller_id, request)).responses
        self._check("delete", answer.error_code)
        if not answer.error_code:
            expected.deleted.add(name)

    async def _add_partitions(self) -> None:
        name, expected = self._own_topic(), self.expected
        if name is None or expected.partitions[name] > 5:
            return
        expected.doubtful.add(name)
        count = expected.partitions[name] + 1
        topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=TIMEOUT_MS, validate_only=False)
        (answer,) = (await self._client.send(self._client.controller_id, request)).results
        self._check("add_partitions", answer.error_code)
        if not answer.error_code:
            expected.partitions[name] = count
            expected.doubtful.discard(name)

    async def _reassign(self) -> None:
        chance = self._client.chance
        count = min(self.plan.replicas + (chance.random() < 0.3), self.plan.brokers)
        await self._alter(self._partition(), chance.sample(range(1, self.plan.brokers + 1), count))

    async def _cancel(self) -> None:
        await self._alter(self._partition(), None)

    async def _alter(self, partition: TopicPartition, target: list[int] | None) -> None:
        expected = self.expected
        before = expected.targets.pop(partition, None)
        was_doubtful = partition in expected.doubtful
        expected.doubtful.add(partition)
        topic = ReassignableTopic(
            name=partition.topic, partitions=[ReassignablePartition(partition_index=partition.partition, replicas=target)]
        )
        request = AlterPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=[topic])
        response = await self._client.send(self._client.controller_id, request)
        what = "cancel" if target is None else "reassign"
        self._check(what, response.error_code)
        if response.error_code:
            return
        ((answer,),) = (one.partitions for one in response.responses)
        self._check(what, answer.error_code)
        if was_doubtful:
            return
        if not answer.error_code and target is not None:
            expected.targets[partition] = tuple(target)
            expected.doubtful.discard(partition)
        elif answer.error_code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS:
            expected.doubtful.discard(partition)
            if before is not None:
                expected.targets[partition] = before
        elif not answer.error_code:
            expected.doubtful.discard(partition)  # cancelled: the replicas are those of before, or the target if that was reached

    async def _elect(self) -> None:
        topic, index = self._partition()
        partitions = [TopicPartitions(topic=topic, partitions=[index])]
        request = ElectLeadersRequest(topic_partitions=partitions, timeout_ms=TIMEOUT_MS)
        response = await self._client.send(self._client.controller_id, request)
        self._check("elect", response.error_code)
        self._check("elect", *(one.error_code for result in response.replica_election_results for one in result.partition_result))

    async def _configure(self) -> None:
        expected, name = self.expected, self._partition().topic
        was_known = expected.segment_bytes.get(name) != 0
        value = self._client.chance.choice((1024, 20_000, 1_000_000))
        expected.segment_bytes[name] = 0
        config = AlterableConfig(name="segment.bytes", config_operation=SET, value=str(value))
        resource = AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=[config])
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        (answer,) = (await self._client.send(self._client.controller_id, request)).responses
        self._check("configure", answer.error_code)
        if not answer.error_code and was_known:
            expected.segment_bytes[name] = value
