"""The partitions of `__consumer_offsets` that this broker leads, with the groups in them: loading, active or failed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from txbroker.clock import Clock
from txbroker.errors import ErrorCode
from txbroker.groups.group import Group
from txbroker.groups.group_config import GroupConfig
from txbroker.groups.group_effects import GroupRecord
from txbroker.groups.group_offsets import GroupOffsets
from txbroker.groups.keyed_deadlines import monotonic_ms
from txbroker.groups.loader import LoadedPartition, load
from txbroker.groups.offsets_store import OffsetsStore
from txbroker.names import OFFSETS_TOPIC, amount, coordinator_partition

log = logging.getLogger("txbroker.groups")


class LoadState(Enum):
    """The state of a partition."""

    LOADING = auto()
    ACTIVE = auto()
    FAILED = auto()  # its log could not be read; the next election or restart tries again


@dataclass(slots=True, eq=False)
class CoordinatorPartition:
    """One partition of `__consumer_offsets` that this broker leads. `append_error`: why its last append failed; NONE if it did not."""

    index: int
    state: LoadState = LoadState.LOADING
    groups: dict[str, HostedGroup] = field(default_factory=dict)
    waiting: list[Deferred[None]] = field(default_factory=list)  # fired when loading ends
    loading: Deferred[None] | None = None
    topics_deleted: set[str] = field(default_factory=set)  # while loading
    append_error: ErrorCode = ErrorCode.NONE


@dataclass(slots=True, eq=False)
class HostedGroup:
    """A group with its offsets and its partition."""

    partition: CoordinatorPartition
    group: Group
    offsets: GroupOffsets
    is_performing: bool = False

    @property
    def is_unused(self) -> bool:
        """Whether the group has neither members nor offsets, so that it can be dropped."""
        return self.group.is_unused and self.offsets.is_unused


class CoordinatorPartitions:
    """All partitions that this broker leads. `perform` runs a group's effects; `loaded` is called when a partition becomes active."""

    def __init__(
        self,
        clock: Clock,
        now_ms: Callable[[], int],
        store: OffsetsStore,
        config: GroupConfig,
        partition_count: Callable[[], int],
        unique: Callable[[], str],
        perform: Callable[[HostedGroup], None],
        loaded: Callable[[CoordinatorPartition], None],
    ) -> None:
        self._clock = clock
        self._now_ms = now_ms
        self._store = store
        self._config = config
        self._partition_count = partition_count
        self._unique = unique
        self._perform = perform
        self._loaded = loaded
        self._partitions: dict[int, CoordinatorPartition] = {}
        self._hosted: dict[str, HostedGroup] = {}  # the groups of all active partitions

    def __iter__(self) -> Iterator[HostedGroup]:
        """Every group, as of now."""
        return iter(list(self._hosted.values()))

    def loading(self) -> list[CoordinatorPartition]:
        """The partitions that are loading."""
        return [partition for partition in self._partitions.values() if partition.state is LoadState.LOADING]

    def partition_of(self, group_id: str) -> int | None:
        """The partition that stores this group; None while `__consumer_offsets` does not exist."""
        count = self._partition_count()
        return coordinator_partition(group_id, count) if count > 0 else None

    def find(self, group_id: str) -> HostedGroup | None:
        """A group of an active partition, if it exists."""
        return self._hosted.get(group_id)

    def route(self, group_id: str) -> CoordinatorPartition | ErrorCode:
        """The active partition of this group, whether the group exists or not; or the error to answer."""
        index = self.partition_of(group_id)
        partition = None if index is None else self._partitions.get(index)
        if partition is None or partition.state is LoadState.FAILED:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if partition.state is LoadState.LOADING else partition

    def create(self, partition: CoordinatorPartition, group_id: str) -> HostedGroup:
        """Add a group without members."""
        return self._hold(partition, Group(group_id, self._config, self._unique, self._now_ms), GroupOffsets())

    def forget(self, hosted: HostedGroup) -> None:
        """Drop an unused group."""
        hosted.group.die(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self._perform(hosted)
        del self._hosted[hosted.group.group_id]
        del hosted.partition.groups[hosted.group.group_id]

    def load(self, index: int) -> Deferred[None]:
        """Become coordinator of a partition; fires when it has been read, or reading has failed."""
        partition = self._partitions.get(index)
        if partition is None or partition.state is LoadState.FAILED:
            partition = self._partitions[index] = CoordinatorPartition(index)
            self._begin_loading(partition)
        if partition.state is not LoadState.LOADING:
            return succeed(None)
        done: Deferred[None] = Deferred()
        partition.waiting.append(done)
        return done

    def unload(self, index: int) -> None:
        """Resign from a partition; waiting requests are answered with NOT_COORDINATOR."""
        partition = self._partitions.pop(index, None)
        if partition is None:
            return
        unloaded = amount(len(partition.groups), "group")
        log.log(_level(partition.groups), "%s-%d: no longer coordinator; unloaded %s", OFFSETS_TOPIC, index, unloaded)
        for hosted in list(partition.groups.values()):
            self._hosted.pop(hosted.group.group_id, None)
            hosted.group.die(ErrorCode.NOT_COORDINATOR)
            self._perform(hosted)
        if partition.loading is not None:
            partition.loading.cancel()
        self._end_waiting(partition)

    def unload_all(self) -> None:
        """Resign from every partition."""
        for index in list(self._partitions):
            self.unload(index)

    def _hold(self, partition: CoordinatorPartition, group: Group, offsets: GroupOffsets) -> HostedGroup:
        hosted = HostedGroup(partition, group, offsets)
        partition.groups[group.group_id] = self._hosted[group.group_id] = hosted
        return hosted

    def _begin_loading(self, partition: CoordinatorPartition) -> None:
        log.debug("%s-%d: reading groups and offsets", OFFSETS_TOPIC, partition.index)
        loading = Deferred.fromCoroutine(load(self._store, partition.index, self._pause))
        partition.loading = loading.addCallback(self._activate, partition).addErrback(self._load_failed, partition)

    def _pause(self) -> Deferred[None]:
        turn: Deferred[None] = Deferred()
        self._clock.callLater(0, turn.callback, None)
        return turn

    def _activate(self, loaded: LoadedPartition, partition: CoordinatorPartition) -> None:
        due_ms = monotonic_ms(self._clock)
        groups = [self._restored(group_id, record, due_ms) for group_id, record in loaded.groups.items()]
        for group_id, offsets in loaded.offsets.items():
            if group_id not in loaded.groups and not offsets.is_unused:
                groups.append(Group(group_id, self._config, self._unique, self._now_ms))
        for group in groups:
            offsets_here = loaded.offsets.get(group.group_id)
            self._hold(partition, group, GroupOffsets() if offsets_here is None else offsets_here)
        partition.state = LoadState.ACTIVE
        log.log(_level(loaded.record_count), "%s-%d: coordinator of %s (%s read, %d skipped)", OFFSETS_TOPIC, partition.index,
                amount(len(partition.groups), "group"), amount(loaded.record_count, "record"), loaded.skipped_count)
        self._loaded(partition)
        self._end_waiting(partition)

    def _restored(self, group_id: str, record: GroupRecord, due_ms: int) -> Group:
        return Group.restored(group_id, self._config, self._unique, self._now_ms, record, due_ms)

    def _load_failed(self, failure: Failure, partition: CoordinatorPartition) -> None:
        if self._partitions.get(partition.index) is not partition:
            return  # it has been unloaded
        partition.state = LoadState.FAILED
        log.error("%s-%d: cannot be read, its groups are not available until the next election or restart: %s\n%s",
                  OFFSETS_TOPIC, partition.index, failure.getErrorMessage(), failure.getTraceback())
        self._end_waiting(partition)

    def _end_waiting(self, partition: CoordinatorPartition) -> None:
        waiting, partition.waiting = partition.waiting, []
        for done in waiting:
            done.callback(None)


def _level(something: object) -> int:
    """INFO for a partition that has something in it: there are fifty, and most are empty."""
    return logging.INFO if something else logging.DEBUG
