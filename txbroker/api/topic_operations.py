"""Compaction and retention of a topic on request, and the status of its cleaning, as configuration keys.

Kafka's protocol has no API for these. Every client can alter and describe configurations, so three keys of a topic stand for them:

    key                 in                                     value
    txbroker.compact    IncrementalAlterConfigs, AlterConfigs  "now"; "roll" closes the active segments first
    txbroker.expire     the same                               "now"
    txbroker.cleaner    DescribeConfigs, only if it is named   the cleaning status of each partition as JSON; txbroker.cleaner.3 is that of
                                                               partition 3, because the status of thousands exceeds the limit of a value

Nothing is stored. The response is sent when all partitions that this broker leads have finished. An operation continues when its client
disconnects; the same request later joins it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from txbroker.cluster.image import ClusterImage
from txbroker.cluster.node_paths import TOPIC_TYPE, Entity
from txbroker.cluster.partition import Partition
from txbroker.cluster.replicas import Replicas
from txbroker.config.alter import Change, Operation
from txbroker.config.describe import ConfigEntry
from txbroker.config.keys import Type
from txbroker.config.resolve import Source
from txbroker.errors import BrokerError, ErrorCode
from txbroker.names import TopicPartition, amount

log = logging.getLogger("txbroker.api.operations")

COMPACT = "txbroker.compact"
EXPIRE = "txbroker.expire"
CLEANER = "txbroker.cleaner"

VALUE_LENGTH_MAX = 32_767  # bytes of a string in older versions of DescribeConfigs

VALUES: Mapping[str, Sequence[str]] = {COMPACT: ("now", "roll"), EXPIRE: ("now",)}


class LogMaintenance(Protocol):
    """Compacts and expires the logs of this broker on request (`maintenance/on_demand_maintenance.py`)."""

    def check_cleanable(self, topic_partition: TopicPartition) -> None:
        """BrokerError if `clean_now` would be refused."""

    def clean_now(self, topic_partition: TopicPartition, *, roll: bool) -> Deferred[None]:
        """Compact everything that can be compacted; joins a running pass. `roll`: close the active segment first. BrokerError."""

    def expire_now(self, topic_partition: TopicPartition) -> Deferred[None]:
        """Delete the expired records. BrokerError."""

    def status(self, topic_partition: TopicPartition) -> Mapping[str, Any]:
        """The cleaning status, as values that JSON can represent."""


class TopicOperation(NamedTuple):
    """One operation, as `key` and `value`."""

    key: str
    value: str


def parse_operation(entity: Entity, changes: Sequence[Change]) -> TopicOperation | None:
    """The operation that these changes of an entity request; None if they change configurations.

    INVALID_REQUEST for an operation together with other keys, or not on a topic; INVALID_CONFIG for an unknown value.
    """
    named = [change for change in changes if change.name in VALUES or change.name.startswith(CLEANER)]
    if not named:
        return None
    key, operation, value = named[0]
    if key not in VALUES:
        raise BrokerError(ErrorCode.INVALID_CONFIG, f"{CLEANER} cannot be set; describe it to get the cleaning status of a topic")
    if entity.type != TOPIC_TYPE:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"{key} is an operation on a topic; alter a topic, not a broker")
    if len(changes) > 1:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"{key} is an operation, not a configuration; set it alone, without other keys")
    if operation != Operation.SET:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"{key} is an operation; it can only be set, not deleted, appended or subtracted")
    if value not in VALUES[key]:
        raise BrokerError(ErrorCode.INVALID_CONFIG, f"{key} is {str(value)[:200]!r}; it must be {' or '.join(VALUES[key])}")
    assert value is not None
    return TopicOperation(key, value)


class TopicOperations:
    """Performs operations on all partitions of a topic that this broker leads."""

    def __init__(
        self, image: ClusterImage, replicas: Replicas, maintenance: LogMaintenance, reread: Callable[[str], Deferred[None]]
    ) -> None:
        """`reread` applies the current configuration of a topic to its logs, so that an operation uses what was altered just before."""
        self._reread = reread
        self._image = image
        self._replicas = replicas
        self._maintenance = maintenance

    async def perform(self, topic: str, operation: TopicOperation, *, validate_only: bool) -> None:
        """Perform the operation, or only check it; BrokerError, which names the partition.

        The operation continues if this is cancelled, because the client's connection is lost.
        """
        error = await _outcome(topic, Deferred.fromCoroutine(self._perform(topic, operation, validate_only)))
        if error is not None:
            raise error

    async def _perform(self, topic: str, operation: TopicOperation, validate_only: bool) -> None:
        await self._reread(topic)
        partitions = [partition.topic_partition for partition in self._leading(topic)]
        if operation.key == COMPACT:
            for partition in partitions:
                self._maintenance.check_cleanable(partition)
        if validate_only:
            return
        begin = self._begin(operation)
        waiters = [(partition, _outcome(str(partition), begin(partition))) for partition in partitions]
        errors = [(partition, error) for partition, waiter in waiters if (error := await waiter) is not None]
        if errors:
            partition, error = errors[0]
            others = f" (and {len(errors) - 1} more of {amount(len(partitions), 'partition')})" if len(errors) > 1 else ""
            raise BrokerError(error.code, f"{partition}: {error.message or error.code.name}{others}")

    def cleaner_entries(self, topic: str, named: Collection[str]) -> list[ConfigEntry]:
        """The entries for those of the named keys that are CLEANER keys.

        CLEANER: an object with the status of each partition that this broker leads, by number; with a dot and a number: the status of
        this partition. Partitions in failed log directories are left out.
        """
        wanted = {name for name in named if name == CLEANER or name.startswith(f"{CLEANER}.")}
        if not wanted:
            return []
        partitions = {str(partition.topic_partition.partition): partition for partition in self._leading(topic, leave_offline=True)}
        numbers = partitions.keys() if CLEANER in wanted else [name.removeprefix(f"{CLEANER}.") for name in wanted]
        states = {number: state for number in numbers if number in partitions and (state := self._state(partitions[number])) is not None}
        entries = [_entry(CLEANER, states)] if CLEANER in wanted else []
        return entries + [_entry(name, states[number]) for number in states if (name := f"{CLEANER}.{number}") in wanted]

    def _state(self, partition: Partition) -> Mapping[str, Any] | None:
        try:
            return self._maintenance.status(partition.topic_partition)
        except BrokerError:
            return None

    def _begin(self, operation: TopicOperation) -> Callable[[TopicPartition], Deferred[None]]:
        if operation.key == EXPIRE:
            return self._maintenance.expire_now
        return lambda partition: self._maintenance.clean_now(partition, roll=operation.value == "roll")

    def _leading(self, topic: str, *, leave_offline: bool = False) -> list[Partition]:
        """The partitions that this broker leads, in order; KAFKA_STORAGE_ERROR for an offline one, unless these are left out."""
        found = self._image.topic(topic)
        led = []
        for number in sorted(found.partitions) if found is not None else ():
            try:
                partition = self._replicas.get(topic, number)
            except BrokerError as error:
                if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER or (leave_offline and error.code is ErrorCode.KAFKA_STORAGE_ERROR):
                    continue  # led by another broker, or by none
                raise
            if partition.is_leader:
                led.append(partition)
        return led


def _entry(name: str, state: Mapping[str, Any]) -> ConfigEntry:
    text = json.dumps(state)
    if len(text) > VALUE_LENGTH_MAX:
        message = f"{name} is too long for a configuration value; describe single partitions, such as {CLEANER}.0"
        raise BrokerError(ErrorCode.INVALID_REQUEST, message)
    about = "The cleaning status of the topic's partitions, as JSON; it cannot be set."
    return ConfigEntry(name, text, Source.DEFAULT_CONFIG, True, False, Type.STRING, (), about)


def _outcome(what: str, work: Deferred[None]) -> Deferred[BrokerError | None]:
    """Fires with the error of `work`, or None; if it is cancelled, the work continues."""
    waiter: Deferred[BrokerError | None] = Deferred()

    def finished(result: object) -> None:
        error: BrokerError | None = None
        if isinstance(result, Failure):
            if isinstance(result.value, BrokerError):
                error = result.value
            else:
                log.error("internal error in an operation on %s: %s", what, result.getTraceback())
                error = BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR)
        if not waiter.called:
            waiter.callback(error)

    work.addBoth(finished)
    return waiter
