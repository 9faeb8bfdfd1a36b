"""The partitions on this broker (the state of Kafka's `ReplicaManager`, without its request handling).

Only LeaderAndIsr requests, StopReplica requests and failed log directories change the set of partitions and their roles.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Protocol

from txbroker.cluster.controller.request_batch import NO_EPOCH
from txbroker.cluster.image import ClusterImage
from txbroker.cluster.local_replica import NO_LEADERSHIP, Leadership
from txbroker.cluster.partition import Observer as PartitionObserver
from txbroker.cluster.partition import Partition, Replication
from txbroker.cluster.refused_sequences import RefusedSequences
from txbroker.cluster.topic_counts import TopicCounts
from txbroker.errors import BrokerError, ErrorCode, StorageError
from txbroker.log.directories import LogDirectories
from txbroker.log.log import Log
from txbroker.names import NULL_TOPIC_ID, TopicPartition, amount
from txbroker.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from txbroker.wire.messages.stop_replica import StopReplicaPartitionError, StopReplicaRequest, StopReplicaResponse

log = logging.getLogger("txbroker.cluster.replicas")


class ReplicasObserver(PartitionObserver, Protocol):
    """Receives the role changes of partitions."""

    def leading(self, partition: Partition) -> None:
        """This broker became leader, or leader again in a new epoch."""

    def resigned(self, topic_partition: TopicPartition) -> None:
        """This broker no longer leads the partition."""

    def following(self, partition: Partition) -> None:
        """The partition follows another broker, perhaps none at the moment, in a new leader epoch."""

    def stopped(self, topic_partition: TopicPartition) -> None:
        """The replica is not to be copied any more: it is stopped, or its directory is offline."""


class Replicas:
    """Partitions by name; changed on the reactor's thread only."""

    def __init__(
        self,
        broker_id: int,
        directories: LogDirectories,
        image: ClusterImage,
        observer: ReplicasObserver,
        monotonic_s: Callable[[], float],
        lag_max_s: Callable[[], float],
    ) -> None:
        """`lag_max_s`: replica.lag.time.max.ms."""
        self.broker_id = broker_id
        # A broker's epoch is checked by the controller, which knows it.
        self._replication = Replication(monotonic_s, lag_max_s, lambda replica, _: replica in image.brokers)
        self.refused = RefusedSequences(monotonic_s)
        self.controller_epoch = 0
        self._directories = directories
        self._image = image
        self._observer = observer
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._offline: set[tuple[str, int]] = set()
        self.refused_roles: dict[TopicPartition, str] = {}
        """Why replicas here, whose directories are online, have not the role that the controller gave them."""
        self._counts: dict[str, TopicCounts] = {}
        self._counted: dict[str, set[int]] = {}  # the partitions of each topic that has counters
        self._counts_of_gone = TopicCounts()
        self._topic_names: dict[bytes, str] = {}  # of the topics with partitions here, by id
        self._topic_ids: dict[str, bytes] = {}
        self._warned_of_epochs = False
        self._undeleted: set[TopicPartition] = set()  # replicas of others for whose deletion there was no space
        self.isr_shrinks = 0
        self.isr_expands = 0

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self._partitions.values()))

    def __len__(self) -> int:
        return len(self._partitions)

    @property
    def offline_count(self) -> int:
        """The number of replicas in failed log directories."""
        return len(self._offline)

    def counts(self) -> tuple[dict[str, TopicCounts], TopicCounts]:
        """The counters of each topic here, and their sum, which includes deleted topics."""
        for partition in self._partitions.values():
            partition.count_messages()
        together = TopicCounts()
        together.add(self._counts_of_gone)
        for counts in self._counts.values():
            together.add(counts)
        return dict(self._counts), together

    def is_offline(self, topic: str, partition: int) -> bool:
        """Whether the log directory of a replica has failed."""
        return (topic, partition) in self._offline

    def find(self, topic: str, partition: int) -> Partition | None:
        """The partition, if it exists here and its log directory is online."""
        return self._partitions.get((topic, partition))

    def get(self, topic: str, partition: int) -> Partition:
        """The partition; KAFKA_STORAGE_ERROR, NOT_LEADER_OR_FOLLOWER or UNKNOWN_TOPIC_OR_PARTITION when it is unavailable here."""
        found = self._partitions.get((topic, partition))
        if found is not None:
            return found
        if (topic, partition) in self._offline:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log directory of {topic}-{partition} is offline")
        if self._image.partition(topic, partition) is not None:
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {self.broker_id} has no replica of {topic}-{partition}")
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def topic_name(self, topic_id: bytes) -> str | None:
        """The topic of this id. For partitions here it is known from LeaderAndIsr, before UpdateMetadata brings it into the image."""
        name = self._topic_names.get(topic_id)
        if name is None:
            topic = self._image.topic_by_id(topic_id)
            name = None if topic is None else topic.name
        return name

    def get_by_id(self, topic_id: bytes, partition: int) -> Partition:
        """As `get`. UNKNOWN_TOPIC_ID; INCONSISTENT_TOPIC_ID if the log here belongs to an earlier topic of the same name."""
        name = self._topic_names.get(topic_id) or self.topic_name(topic_id)
        if name is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_ID)
        found = self._partitions.get((name, partition)) or self.get(name, partition)
        if found.log.topic_id not in (topic_id, NULL_TOPIC_ID):
            raise BrokerError(ErrorCode.INCONSISTENT_TOPIC_ID, f"the log of {name}-{partition} belongs to an earlier topic of this name")
        return found

    # The controller's requests

    def leader_and_isr(self, request: LeaderAndIsrRequest, now_ms: int) -> LeaderAndIsrResponse:
        """Apply leader and follower roles: create or open logs. STALE_CONTROLLER_EPOCH for the whole request."""
        self.check_controller(request.controller_epoch)
        answers = []
        for topic in request.topic_states:
            errors = []
            for state in topic.partition_states:
                topic_partition = TopicPartition(topic.topic_name, state.partition_index)
                take_role = partial(self._take_role_or_note, topic_partition, topic.topic_id, state, now_ms)
                code = _outcome(take_role, f"{topic_partition}: failed to become leader or follower")
                errors.append(LeaderAndIsrPartitionError(partition_index=state.partition_index, error_code=code))
            answers.append(LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=errors))
        return LeaderAndIsrResponse(error_code=ErrorCode.NONE, topics=answers)

    def stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        """Stop replicas, and delete those of deleted topics."""
        self.check_controller(request.controller_epoch)
        errors = []
        for topic in request.topic_states:
            for state in topic.partition_states:
                topic_partition = TopicPartition(topic.topic_name, state.partition_index)
                stop = partial(self._stop, topic_partition, state.leader_epoch, state.delete_partition)
                code = _outcome(stop, f"{topic_partition}: failed to stop the replica")
                errors.append(
                    StopReplicaPartitionError(topic_name=topic.topic_name, partition_index=state.partition_index, error_code=code)
                )
        return StopReplicaResponse(error_code=ErrorCode.NONE, partition_errors=errors)

    def delete_unassigned(self) -> bool:
        """Delete replicas that only other brokers have by now. Whether one is left, whose directory has no space for its new name.

        The controller that has removed them (a reassignment was cancelled, for example) was replaced before it reached this broker, and
        the next one does not know of them; or the disk was full at its StopReplica. Kafka's controllers on ZooKeeper leave them.
        """
        left = False
        for partition in list(self._partitions.values()):
            name = partition.topic_partition
            topic, known = self._image.topic(name.topic), self._image.partition(*name)
            if topic is None or known is None or topic.topic_id != partition.log.topic_id or known.leader_epoch < partition.leader_epoch:
                continue
            if self.broker_id not in (known.leader, *known.replicas, *known.isr):
                left |= self._delete_unassigned(name, known.leader_epoch, known.replicas)
        return left

    def _delete_unassigned(self, name: TopicPartition, leader_epoch: int, replicas: Sequence[int]) -> bool:
        """Only the first attempt is logged. Whether the replica is left."""
        is_first = name not in self._undeleted
        if is_first:
            log.info("deleting the replica of %s on this broker: the partition is assigned to brokers %s", name, list(replicas))
        level = logging.WARNING if is_first else logging.DEBUG
        code = _outcome(partial(self._stop, name, leader_epoch, True), f"{name}: failed to delete the replica", level)
        is_left = code == ErrorCode.KAFKA_STORAGE_ERROR and name in self._partitions
        (self._undeleted.add if is_left else self._undeleted.discard)(name)
        return is_left

    def check_controller(self, epoch: int) -> None:
        """Remember the newest controller epoch; STALE_CONTROLLER_EPOCH for an older one."""
        if epoch < self.controller_epoch:
            raise BrokerError(ErrorCode.STALE_CONTROLLER_EPOCH, f"controller epoch {epoch} is older than {self.controller_epoch}")
        self.controller_epoch = epoch

    def _take_role_or_note(self, key: TopicPartition, topic_id: bytes, state: LeaderAndIsrPartitionState, now_ms: int) -> None:
        try:
            self._take_role(key, topic_id, state, now_ms)
        except Exception as error:
            code = error.code if isinstance(error, BrokerError) else ErrorCode.UNKNOWN_SERVER_ERROR
            if code not in _KEPT_ROLE and key not in self._offline:
                self.refused_roles[key] = str(error)
            raise
        self.refused_roles.pop(key, None)

    def refusals(self) -> list[str]:
        """A sentence for each reason of refused roles."""
        by_reason: dict[str, list[TopicPartition]] = {}
        for topic_partition, reason in self.refused_roles.items():
            by_reason.setdefault(reason, []).append(topic_partition)
        return [
            f"{amount(len(those), 'partition')} such as {those[0]} cannot be served here: {reason}" for reason, those in by_reason.items()
        ]

    def _take_role(self, key: TopicPartition, topic_id: bytes, state: LeaderAndIsrPartitionState, now_ms: int) -> None:
        if key in self._offline:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "its log directory is offline")
        if self.broker_id not in state.replicas:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"its replicas {state.replicas} do not include this broker")
        known = self._partitions.get(key)
        if known is not None and topic_id != NULL_TOPIC_ID:
            known.assign_topic_id(topic_id)
        before = NO_LEADERSHIP if known is None else known.state
        if state.leader_epoch < before.leader_epoch:
            raise BrokerError(ErrorCode.STALE_CONTROLLER_EPOCH, f"leader epoch {state.leader_epoch} is older than {before.leader_epoch}")
        if state.leader_epoch == before.leader_epoch and state.partition_epoch <= before.partition_epoch:
            return  # a repeated request: controllers send them after their election
        partition = known or self._open(key, topic_id, state.is_new, now_ms)
        if known is None:
            self._compare_epochs(partition, state.leader_epoch)
        self._partitions[key] = partition
        if topic_id != NULL_TOPIC_ID:
            self._topic_names[topic_id], self._topic_ids[key.topic] = key.topic, topic_id
        try:
            self._change_role(partition, state)
        except BrokerError:
            if known is None:
                self._partitions.pop(key, None)  # without a role it is not served; its log stays for the next request
            raise

    def _compare_epochs(self, partition: Partition, leader_epoch: int) -> None:
        """Warn, once, that a log has a newer leader epoch than the metadata."""
        latest = partition.log.leader_epochs.latest
        if latest > leader_epoch and not self._warned_of_epochs:
            self._warned_of_epochs = True
            log.warning(
                "%s has leader epoch %d in its log, and the metadata has %d: another broker has written to these logs since, "
                "or an old copy of the metadata was restored; `txbroker import --force` takes over logs that Apache Kafka has written",
                partition.topic_partition,
                latest,
                leader_epoch,
            )

    def _change_role(self, partition: Partition, state: LeaderAndIsrPartitionState) -> None:
        leadership = Leadership(state.leader, state.leader_epoch, tuple(state.isr), tuple(state.replicas), state.partition_epoch)
        if state.leader == self.broker_id:
            if partition.is_leader:
                self.isr_shrinks += len(state.isr) < len(partition.state.isr)
                self.isr_expands += len(state.isr) > len(partition.state.isr)
            if partition.lead(leadership):
                self._observer.leading(partition)
        else:
            led = partition.is_leader
            changed = partition.follow(leadership)
            if led:
                self._observer.resigned(partition.topic_partition)
            if changed:
                self._observer.following(partition)

    def _open(self, topic_partition: TopicPartition, topic_id: bytes, is_new: bool, now_ms: int) -> Partition:
        found = self._directories.get(topic_partition)
        if found is None:
            found = self._directories.create(topic_partition, topic_id, is_new=is_new, now_ms=now_ms)
        high_watermark = self._directories.checkpoints.high_watermark(topic_partition)
        counts = self._counts.setdefault(topic_partition.topic, TopicCounts())
        self._counted.setdefault(topic_partition.topic, set()).add(topic_partition.partition)
        partition = Partition(
            self.broker_id,
            found,
            self._observer,
            self._directories.flush,
            self._replication,
            high_watermark=high_watermark,
            counts=counts,
            refused=self.refused,
        )
        if topic_id != NULL_TOPIC_ID:
            partition.assign_topic_id(topic_id)
        return partition

    def _stop(self, topic_partition: TopicPartition, leader_epoch: int, delete: bool) -> None:
        key = topic_partition
        self.refused_roles.pop(key, None)
        if key in self._offline:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, "its log directory is offline")
        partition = self._partitions.get(key)
        if partition is not None:
            if NO_EPOCH < leader_epoch < partition.leader_epoch:
                raise BrokerError(ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch {leader_epoch} is older than {partition.leader_epoch}")
            led = partition.is_leader
            partition.follow(partition.state._replace(leader=-1))
            if led:
                self._observer.resigned(topic_partition)
            self._observer.stopped(topic_partition)
        if delete:
            self._directories.delete(topic_partition)  # without space it stays, for the next request
            self._partitions.pop(key, None)
            self._forget_partition(*topic_partition)
            if partition is not None:
                self._observer.moved(partition)

    def _forget_partition(self, topic: str, partition: int) -> None:
        """Drop the topic's id and counters with its last partition; the sum of all topics keeps the counters."""
        counted = self._counted.get(topic)
        if counted is not None:
            counted.discard(partition)
            if not counted:
                del self._counted[topic]
                self._counts_of_gone.add(self._counts.pop(topic))
                self._topic_names.pop(self._topic_ids.pop(topic, NULL_TOPIC_ID), None)

    def check_followers(self) -> None:
        """Find the followers that lag (replica.lag.time.max.ms)."""
        for partition in self:
            partition.check_followers()

    def brokers_changed(self) -> None:
        """The live brokers in the image have changed."""
        for partition in self:
            partition.brokers_changed()

    # Other events

    def storage_failed(self, partition: Partition, error: StorageError) -> None:
        """A read or write of the partition's log failed: take its directory offline, which calls `directory_failed`."""
        self._directories.fail(partition.log, error)

    def truncated(self, partition: Partition) -> None:
        """Records from the log's end on are other records from now on: none of them has been cleaned or synced."""
        self._directories.cleaning.lower(partition.topic_partition, partition.log.log_end_offset)
        self._directories.checkpoints.write_recovery_points()

    def directory_failed(self, directory: str, partitions: Sequence[TopicPartition]) -> None:
        """Take the partitions of a failed directory offline: requests for them receive KAFKA_STORAGE_ERROR."""
        log.error("log directory %s is offline, with %s", directory, amount(len(partitions), "partition"))
        for topic_partition in partitions:
            partition = self._partitions.pop(topic_partition, None)
            self._offline.add(topic_partition)
            self.refused_roles.pop(topic_partition, None)
            if partition is None:
                continue
            led = partition.is_leader
            partition.resign()
            if led:
                self._observer.resigned(topic_partition)
            self._observer.stopped(topic_partition)
            self._observer.moved(partition)

    def log_moved(self, topic_partition: TopicPartition, moved: Log) -> None:
        """Replace the log of a partition that was moved to another directory."""
        partition = self._partitions.get(topic_partition)
        if partition is not None:
            partition.take_log(moved)

    def high_watermark(self, topic_partition: TopicPartition) -> int:
        """The high watermark of a partition; 0 while it has no role here."""
        partition = self._partitions.get(topic_partition)
        return 0 if partition is None else partition.high_watermark

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """For the replication-offset-checkpoint files."""
        return {p.topic_partition: p.high_watermark for p in self._partitions.values()}


# The broker has this role, or a newer one, or none is meant for it.
_KEPT_ROLE = (ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _outcome(change: Callable[[], None], failed: str, level: int = logging.WARNING) -> ErrorCode:
    """The error code of one partition. A defect in one does not leave the others of the request without their roles. `level`: of errors."""
    try:
        change()
    except BrokerError as error:
        log.log(level, "%s: %s", failed, error)
        return error.code
    except Exception:
        log.exception("internal error: %s", failed)
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.NONE
