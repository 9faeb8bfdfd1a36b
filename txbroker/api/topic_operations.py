"""Operations on the logs of a topic that travel as alterations of its configuration, and what is told of its cleaning.

A client of any language can alter a configuration, so that nobody needs a protocol of ours: `txbroker.compact` = `now` or `roll` (close the
active segments first) and `txbroker.expire` = `now`, set by IncrementalAlterConfigs or AlterConfigs. Nothing is stored; the answer comes
when it is done on all partitions that this broker leads. When a client does not wait that long it goes on, and who asks again joins it.
The key `txbroker.cleaner` in DescribeConfigs, named and not among all keys, is the state of each partition as JSON, and
`txbroker.cleaner.3` that of one: what is told of thousands fits no configuration's value.
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
from txbroker.names import TopicPartition

log = logging.getLogger("txbroker.api.authorized_operations")

COMPACT = "txbroker.compact"
EXPIRE = "txbroker.expire"
CLEANER = "txbroker.cleaner"

VALUE_LENGTH_MAX = 32_767  # of a string in the older versions of DescribeConfigs

VALUES: Mapping[str, Sequence[str]] = {COMPACT: ("now", "roll"), EXPIRE: ("now",)}


class Caretaker(Protocol):
    """Who compacts and expires the logs of this broker."""

    def check_cleanable(self, topic_partition: TopicPartition) -> None:
        """BrokerError, in a sentence, when `clean_now` would be refused."""

    def clean_now(self, topic_partition: TopicPartition, *, roll: bool) -> Deferred[None]:
        """Compact all that may be; joins a pass that goes on. `roll`: close the active segment first. BrokerError."""

    def expire_now(self, topic_partition: TopicPartition) -> Deferred[None]:
        """Let go what has expired. BrokerError."""

    def status(self, topic_partition: TopicPartition) -> Mapping[str, Any]:
        """How its cleaning stands: what JSON can say."""


class Wanted(NamedTuple):
    """One operation, `key` with `value`."""

    key: str
    value: str


def wanted_operation(entity: Entity, changes: Sequence[Change]) -> Wanted | None:
    """The operation that an alteration of this entity asks for; None where it is one of configurations.

    INVALID_REQUEST when it stands beside other keys or belongs to something else than a topic, INVALID_CONFIG for a value that it has not.
    """
    named = [change for change in changes if change.name in VALUES or change.name.startswith(CLEANER)]
    if not named:
        return None
    key, operation, value = named[0]
    if key not in VALUES:
        raise BrokerError(ErrorCode.INVALID_CONFIG, f"{CLEANER} cannot be set: it tells how a topic's cleaning stands")
    if entity.type != TOPIC_TYPE:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"{key} is an operation on a topic: name a topic, not a broker")
    if len(changes) > 1:
        others = "an operation and no configuration: ask for it alone, without other keys of the topic"
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"{key} is {others}")
    if operation != Operation.SET:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"{key} is an operation: it can be set, and nothing else")
    if value not in VALUES[key]:
        raise BrokerError(ErrorCode.INVALID_CONFIG, f"{key} is {str(value)[:200]!r}; it must be {' or '.join(VALUES[key])}")
    assert value is not None
    return Wanted(key, value)


class TopicOperations:
    """Performs operations on all partitions of a topic that are led here."""

    def __init__(
        self, image: ClusterImage, replicas: Replicas, caretaker: Caretaker, reread: Callable[[str], Deferred[None]]
    ) -> None:
        """`reread`: has the logs of a topic know its configuration of now. Who alters that, and then asks, means the new one."""
        self._reread = reread
        self._image = image
        self._replicas = replicas
        self._caretaker = caretaker

    async def perform(self, topic: str, wanted: Wanted, *, validate_only: bool) -> None:
        """Done when this returns, or it would be taken when `validate_only`; BrokerError, which names the partition.

        When this is cancelled, with its client's connection, it is done nevertheless.
        """
        error = await _outcome(topic, Deferred.fromCoroutine(self._perform(topic, wanted, validate_only)))
        if error is not None:
            raise error

    async def _perform(self, topic: str, wanted: Wanted, validate_only: bool) -> None:
        await self._reread(topic)
        partitions = [partition.topic_partition for partition in self._led(topic)]
        if wanted.key == COMPACT:
            for partition in partitions:
                self._caretaker.check_cleanable(partition)
        if validate_only:
            return
        begin = self._begin(wanted)
        waiters = [(partition, _outcome(str(partition), begin(partition))) for partition in partitions]
        errors = [(partition, error) for partition, waiter in waiters if (error := await waiter) is not None]
        if errors:
            partition, error = errors[0]
            others = f" (and {len(errors) - 1} more of {len(partitions)} partitions)" if len(errors) > 1 else ""
            raise BrokerError(error.code, f"{partition}: {error.message or error.code.name}{others}")

    def told(self, topic: str, named: Collection[str]) -> list[ConfigEntry]:
        """What these keys tell of the topic's cleaning, as far as they do.

        CLEANER: an object with the state of each partition that is led here by its number; with a dot and a number: the state of this one.
        Partitions whose disk has failed are left out.
        """
        wanted = {name for name in named if name == CLEANER or name.startswith(f"{CLEANER}.")}
        if not wanted:
            return []
        partitions = {str(partition.topic_partition.partition): partition for partition in self._led(topic, leave_offline=True)}
        numbers = partitions.keys() if CLEANER in wanted else [name.removeprefix(f"{CLEANER}.") for name in wanted]
        states = {number: state for number in numbers if number in partitions and (state := self._state(partitions[number])) is not None}
        entries = [_entry(CLEANER, states)] if CLEANER in wanted else []
        return entries + [_entry(name, states[number]) for number in states if (name := f"{CLEANER}.{number}") in wanted]

    def _state(self, partition: Partition) -> Mapping[str, Any] | None:
        try:
            return self._caretaker.status(partition.topic_partition)
        except BrokerError:
            return None

    def _begin(self, wanted: Wanted) -> Callable[[TopicPartition], Deferred[None]]:
        if wanted.key == EXPIRE:
            return self._caretaker.expire_now
        return lambda partition: self._caretaker.clean_now(partition, roll=wanted.value == "roll")

    def _led(self, topic: str, *, leave_offline: bool = False) -> list[Partition]:
        """In their order; KAFKA_STORAGE_ERROR when the directory of one is offline, unless these are left out."""
        found = self._image.topic(topic)
        led = []
        for number in sorted(found.partitions) if found is not None else ():
            try:
                partition = self._replicas.get(topic, number)
            except BrokerError as error:
                if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER or (leave_offline and error.code is ErrorCode.KAFKA_STORAGE_ERROR):
                    continue  # on another broker, or nowhere
                raise
            if partition.is_leader:
                led.append(partition)
        return led


def _entry(name: str, state: Mapping[str, Any]) -> ConfigEntry:
    text = json.dumps(state)
    if len(text) > VALUE_LENGTH_MAX:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"{name} is too long to be told at once: name partitions, as {CLEANER}.0")
    about = "How the cleaning of the topic's partitions stands, as JSON; it cannot be set."
    return ConfigEntry(name, text, Source.DEFAULT_CONFIG, True, False, Type.STRING, (), about)


def _outcome(what: str, work: Deferred[None]) -> Deferred[BrokerError | None]:
    """Fires with what became of `work`; when it is cancelled, the work goes on."""
    waiter: Deferred[BrokerError | None] = Deferred()

    def tell(result: object) -> None:
        error: BrokerError | None = None
        if isinstance(result, Failure):
            if isinstance(result.value, BrokerError):
                error = result.value
            else:
                log.error("an operation on %s failed: a bug: %s", what, result.getTraceback())
                error = BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR)
        if not waiter.called:
            waiter.callback(error)

    work.addBoth(tell)
    return waiter
