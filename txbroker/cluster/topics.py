"""Creation, enlargement and deletion of topics: validates requests and writes the tree. The controller, which watches it, does the rest."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from functools import partial
from random import Random

from twisted.internet.defer import Deferred

from txbroker.cluster import node_paths
from txbroker.cluster.config_store import encoded_config, read_config
from txbroker.cluster.node_data import ReplicaAssignment, TopicAssignment, decode_topic
from txbroker.cluster.placement import place
from txbroker.cluster.tree.interface import BadVersion, Create, EventType, NodeExists, NoNode, Set, Tree, WatchEvent
from txbroker.cluster.tree.operations import for_admin, together, written
from txbroker.errors import BrokerError, ErrorCode
from txbroker.lazy_dataclass import lazy_dataclass
from txbroker.names import INTERNAL_TOPICS, NULL_TOPIC_ID, amount, check_topic_name, collision_key, new_topic_id

FROM_DEFAULT = -1
PARTITIONS_MAX = 10_000  # created by one request: KRaft's ReplicationControlManager has the same limit

Assignments = Sequence[tuple[int, Sequence[int]]]  # partition and its brokers
Admit = Callable[[int], None]  # called with the number of partitions that are about to be written; BrokerError if they must not be


def _always(count: int) -> None:
    pass


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to be created: partition count and replication factor (FROM_DEFAULT: the broker's defaults), or assignments, not both."""

    name: str
    partition_count: int = FROM_DEFAULT
    replication_factor: int = FROM_DEFAULT
    assignments: Assignments = ()
    configs: Mapping[str, str | None] = field(default_factory=dict)


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class CreatedTopic:
    """A created topic, or with validate_only the topic that would be created (`topic_id` is the null id)."""

    name: str
    topic_id: bytes
    partition_count: int
    replication_factor: int
    configs: Mapping[str, str]


class TopicAdmin:
    """The part of CreateTopics, CreatePartitions and DeleteTopics that reads and writes the tree. All failures are BrokerErrors."""

    def __init__(
        self,
        tree: Tree,
        *,
        brokers: Callable[[], Mapping[int, str | None]],
        validate_configs: Callable[[Mapping[str, str | None]], None],
        partition_count: int,
        replication_factor: int,
        random: Random,
        random_bytes: Callable[[int], bytes],
        suspected: Callable[[], Collection[int]] = tuple,
    ) -> None:
        """`brokers`: live brokers and their racks; those that are `suspected` to be gone get replicas only if there are too few others.

        `partition_count`, `replication_factor`: num.partitions, default.replication.factor."""
        self._tree = tree
        self._brokers = brokers
        self._validate_configs = validate_configs
        self._partition_count = partition_count
        self._replication_factor = replication_factor
        self._random = random
        self._random_bytes = random_bytes
        self._suspected = suspected
        self._deleting: set[str] = set()
        self._deleted: Callable[[str], None] = lambda name: None

    def create(self, topic: NewTopic, *, validate_only: bool = False, admit: Admit = _always) -> Deferred[CreatedTopic]:
        """Write the topic and its configuration; with `validate_only` only return what would be written.

        INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_REQUEST, INVALID_CONFIG, INVALID_PARTITIONS, POLICY_VIOLATION,
        INVALID_REPLICATION_FACTOR, INVALID_REPLICATION_ASSIGNMENT.
        """
        return for_admin(self._create(topic, validate_only, admit))

    def delete(self, name: str) -> Deferred[None]:
        """Request the deletion of a topic durably; idempotent. UNKNOWN_TOPIC_OR_PARTITION."""
        return for_admin(self._delete(name))

    def description(self, name: str) -> Deferred[NewTopic]:
        """What would create a topic as it is: its replicas and its configuration. UNKNOWN_TOPIC_OR_PARTITION."""
        return for_admin(self._description(name))

    def is_deleting(self, name: str) -> bool:
        """Whether a deletion requested here is still in progress; the name can be used again only when it is complete."""
        return name in self._deleting

    def on_deleted(self, callback: Callable[[str], None]) -> None:
        """Call back for each deletion that was requested here and is complete."""
        self._deleted = callback

    def renew(self) -> Deferred[None]:
        """Watch the deletions in progress in the next session of the tree."""
        return Deferred.fromCoroutine(self._watch_deletions())

    def create_partitions(
        self,
        name: str,
        count: int,
        assignments: Sequence[Sequence[int]] | None = None,
        *,
        validate_only: bool = False,
        admit: Admit = _always,
    ) -> Deferred[None]:
        """Enlarge a topic to `count` partitions. `assignments`: the replicas of each new partition; None: the broker chooses.

        UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION (it is being deleted), REASSIGNMENT_IN_PROGRESS, INVALID_PARTITIONS,
        INVALID_REQUEST (an internal topic),
        POLICY_VIOLATION, INVALID_REPLICATION_ASSIGNMENT, INVALID_REPLICATION_FACTOR.
        """
        return for_admin(self._create_partitions(name, count, assignments, validate_only, admit))

    async def _create(self, topic: NewTopic, validate_only: bool, admit: Admit) -> CreatedTopic:
        check_topic_name(topic.name)
        await self._check_is_new(topic.name)
        placed = self._placement(topic)
        self._validate_configs(topic.configs)
        configs = {name: value for name, value in topic.configs.items() if value is not None}
        config_data = encoded_config(configs)
        await self._check_no_collision(topic.name)
        topic_id = NULL_TOPIC_ID if validate_only else new_topic_id(self._random_bytes)
        if not validate_only:
            admit(len(placed))
            await self._write_new(topic.name, config_data, _assignment(topic_id, placed))
        return CreatedTopic(
            name=topic.name,
            topic_id=topic_id,
            partition_count=len(placed),
            replication_factor=len(placed[0]),
            configs=configs,
        )

    async def _check_is_new(self, name: str) -> None:
        deletion, topic = await together([self._tree.exists(node_paths.deletion(name)), self._tree.exists(node_paths.topic(name))])
        if deletion is not None:
            raise BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' is marked for deletion.")
        if topic is not None:
            raise BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")

    async def _check_no_collision(self, name: str) -> None:
        key = collision_key(name)
        if "_" not in key:
            return
        others = [other for other in await self._tree.children(node_paths.TOPICS) if collision_key(other) == key and other != name]
        if others:
            message = f"Topic '{name}' collides with existing topics: {', '.join(others)}."
            raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)

    def _placement(self, topic: NewTopic) -> Mapping[int, tuple[int, ...]]:
        by_numbers = topic.partition_count != FROM_DEFAULT or topic.replication_factor != FROM_DEFAULT
        if topic.assignments:
            if by_numbers:
                message = "Specify either the number of partitions and the replication factor, or the assignments, not both."
                raise BrokerError(ErrorCode.INVALID_REQUEST, message)
            _check_count(len(topic.assignments))
            return self._checked(topic.assignments, first_partition=0)
        count = self._partition_count if topic.partition_count == FROM_DEFAULT else topic.partition_count
        factor = self._replication_factor if topic.replication_factor == FROM_DEFAULT else topic.replication_factor
        _check_count(count)
        return place(self._brokers_for(factor), count, factor, self._random)

    def _brokers_for(self, replication_factor: int) -> Mapping[int, str | None]:
        brokers, suspected = self._brokers(), self._suspected()
        trusted = {broker_id: rack for broker_id, rack in brokers.items() if broker_id not in suspected}
        return trusted if len(trusted) >= replication_factor else brokers

    def _checked(
        self, assignments: Assignments, *, first_partition: int, replication_factor: int | None = None
    ) -> dict[int, tuple[int, ...]]:
        """Explicit assignments in partition order; INVALID_REPLICATION_ASSIGNMENT when they are inconsistent."""
        placed = {partition: tuple(replicas) for partition, replicas in sorted(assignments, key=lambda item: item[0])}
        brokers = self._brokers()
        factor = len(next(iter(placed.values()))) if replication_factor is None else replication_factor
        problem = None
        if sorted(partition for partition, _ in assignments) != list(range(first_partition, first_partition + len(assignments))):
            problem = "Partitions must be numbered without gaps, each once."
        elif any(len(set(replicas)) != len(replicas) for replicas in placed.values()):
            problem = "A broker is assigned to a partition twice."
        elif not factor or any(len(replicas) != factor for replicas in placed.values()):
            problem = "All partitions must have the same number of replicas, at least one."
        elif unknown := sorted({replica for replicas in placed.values() for replica in replicas} - brokers.keys()):
            problem = f"Brokers {unknown} are not available."
        if problem is not None:
            raise BrokerError(ErrorCode.INVALID_REPLICATION_ASSIGNMENT, problem)
        return placed

    async def _write_new(self, name: str, config_data: bytes, assignment: TopicAssignment) -> None:
        config_path = node_paths.topic_entity(name).path
        left_behind = False
        while True:
            config = Set(config_path, config_data) if left_behind else Create(config_path, config_data)
            try:
                write = self._tree.multi([config, Create(node_paths.topic(name), assignment.encode())])
                await written(write, self._tree, partial(self._has, name, assignment))
            except (NodeExists, NoNode) as error:
                if error.path == config_path:
                    # A configuration without a topic is possible: Kafka writes the configuration first and may stop before it writes the
                    # topic. It may also be created or removed concurrently.
                    left_behind = isinstance(error, NodeExists)
                    continue
                raise BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.") from error
            return

    async def _has(self, name: str, assignment: TopicAssignment) -> bool:
        """Whether the topic has this id, and these partitions with the replicas that the assignment has, perhaps among others."""
        try:
            found = decode_topic((await self._tree.get(node_paths.topic(name)))[0])
        except NoNode:
            return False
        return found.topic_id == assignment.topic_id and found.partitions.items() >= assignment.partitions.items()

    async def _description(self, name: str) -> NewTopic:
        try:
            found = decode_topic((await self._tree.get(node_paths.topic(name)))[0])
        except NoNode as error:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist.") from error
        assignments = [(partition, assignment.replicas) for partition, assignment in found.partitions.items()]
        return NewTopic(name=name, assignments=assignments, configs=(await read_config(self._tree, node_paths.topic_entity(name)))[0])

    async def _is_going(self, name: str) -> bool:
        """Whether the topic is being deleted, or does not exist any more."""
        if await self._tree.exists(node_paths.deletion(name)) is not None:
            return True
        return await self._tree.exists(node_paths.topic(name)) is None

    async def _delete(self, name: str) -> None:
        if await self._tree.exists(node_paths.topic(name)) is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist.")
        with suppress(NodeExists):  # deletion already requested
            await written(self._tree.create(node_paths.deletion(name)), self._tree, partial(self._is_going, name))
        # The last step of the deletion removes the node, after the image has dropped the topic.
        with suppress(NoNode):
            await self._tree.get(node_paths.deletion(name), watch=self._deletion_changed)
            self._deleting.add(name)

    async def _watch_deletions(self) -> None:
        for name in sorted(self._deleting):
            path = node_paths.deletion(name)
            if await self._tree.exists(path, watch=self._deletion_changed) is None:
                self._deletion_changed(WatchEvent(EventType.DELETED, path))

    def _deletion_changed(self, event: WatchEvent) -> None:
        name = event.path.removeprefix(node_paths.deletion(""))
        if event.type is EventType.DELETED:
            self._deleting.discard(name)
            self._deleted(name)

    async def _create_partitions(
        self, name: str, count: int, assignments: Sequence[Sequence[int]] | None, validate_only: bool, admit: Admit
    ) -> None:
        if name in INTERNAL_TOPICS:
            message = f"Topic '{name}' must keep its partitions: their number says where the state of a group or transactional id is."
            raise BrokerError(ErrorCode.INVALID_REQUEST, message)
        while True:
            try:
                data, stat = await self._tree.get(node_paths.topic(name))
            except NoNode as error:
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist.") from error
            if await self._tree.exists(node_paths.deletion(name)) is not None:
                raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' is being deleted.")
            before = decode_topic(data)
            added = self._added_partitions(before, count, assignments)
            if validate_only:
                return
            admit(len(added))
            admit = _always  # of a repetition
            after = before.with_partitions({partition: ReplicaAssignment(replicas) for partition, replicas in added.items()})
            try:
                write = self._tree.set(node_paths.topic(name), after.encode(), stat.version)
                await written(write, self._tree, partial(self._has, name, after))
            except (BadVersion, NoNode):
                continue
            return

    def _added_partitions(
        self, before: TopicAssignment, count: int, assignments: Sequence[Sequence[int]] | None
    ) -> Mapping[int, tuple[int, ...]]:
        if any(assignment.is_reassigning for assignment in before.partitions.values()):
            raise BrokerError(ErrorCode.REASSIGNMENT_IN_PROGRESS, "Partitions of the topic are being reassigned.")
        present = len(before.partitions)
        if count <= present:
            message = f"The topic has {amount(present, 'partition')}; it cannot be changed to {count}."
            raise BrokerError(ErrorCode.INVALID_PARTITIONS, message)
        _check_count(count - present)
        first = before.partitions[0].replicas
        if assignments is None:
            return place(self._brokers(), count - present, len(first), self._random, first_partition=present, after_leader=first[0])
        if len(assignments) != count - present:
            message = f"The request adds {amount(count - present, 'partition')}, but has {amount(len(assignments), 'assignment')}."
            raise BrokerError(ErrorCode.INVALID_REPLICATION_ASSIGNMENT, message)
        return self._checked(list(enumerate(assignments, present)), first_partition=present, replication_factor=len(first))


def _assignment(topic_id: bytes, placed: Mapping[int, tuple[int, ...]]) -> TopicAssignment:
    return TopicAssignment(topic_id, {partition: ReplicaAssignment(replicas) for partition, replicas in placed.items()})


def _check_count(count: int) -> None:
    if count > PARTITIONS_MAX:
        message = f"{amount(count, 'new partition')} exceed the limit of one request ({PARTITIONS_MAX:,})."
        raise BrokerError(ErrorCode.POLICY_VIOLATION, message)
