"""The partitions of `__consumer_offsets` that this broker coordinates, and the groups in them: which are here, loading, gone."""

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
from txbroker.groups.loader import LoadedPartition, load
from txbroker.groups.offsets_store import OffsetsStore
from txbroker.groups.timers import monotonic_ms
from txbroker.names import OFFSETS_TOPIC, coordinator_partition

log = logging.getLogger("txbroker.groups")


class ShardState(Enum):
    """Where a partition stands with this coordinator."""

    LOADING = auto()
    ACTIVE = auto()
    FAILED = auto()  # its log could not be read; another election, or a restart, tries again


@dataclass(slots=True, eq=False)
class Shard:
    """One partition of `__consumer_offsets` that this broker leads."""

    index: int
    state: ShardState = ShardState.LOADING
    groups: dict[str, Held] = field(default_factory=dict)
    waiting: list[Deferred[None]] = field(default_factory=list)  # for the end of loading
    loading: Deferred[None] | None = None
    topics_deleted: set[str] = field(default_factory=set)  # while it was loading


@dataclass(slots=True, eq=False)
class Held:
    """A group with its offsets, in its shard."""

    shard: Shard
    group: Group
    offsets: GroupOffsets
    is_performing: bool = False

    @property
    def is_unused(self) -> bool:
        """Whether nothing would be lost if the group were forgotten."""
        return self.group.is_unused and self.offsets.is_unused


class Shards:
    """All shards of this broker. `perform` does what a group wants done; `loaded` is told of each shard that becomes active."""

    def __init__(
        self,
        clock: Clock,
        now_ms: Callable[[], int],
        store: OffsetsStore,
        config: GroupConfig,
        partition_count: Callable[[], int],
        unique: Callable[[], str],
        perform: Callable[[Held], None],
        loaded: Callable[[Shard], None],
    ) -> None:
        self._clock = clock
        self._now_ms = now_ms
        self._store = store
        self._config = config
        self._partition_count = partition_count
        self._unique = unique
        self._perform = perform
        self._loaded = loaded
        self._shards: dict[int, Shard] = {}
        self._held: dict[str, Held] = {}  # the groups of all active shards

    def __iter__(self) -> Iterator[Held]:
        """Every group, as of now."""
        return iter(list(self._held.values()))

    def loading(self) -> list[Shard]:
        """The shards that are being read."""
        return [shard for shard in self._shards.values() if shard.state is ShardState.LOADING]

    def partition_of(self, group_id: str) -> int | None:
        """The partition that keeps this group; None while `__consumer_offsets` has no partitions."""
        count = self._partition_count()
        return coordinator_partition(group_id, count) if count > 0 else None

    def find(self, group_id: str) -> Held | None:
        """A group that is here."""
        return self._held.get(group_id)

    def route(self, group_id: str) -> Shard | ErrorCode:
        """The active shard that this group belongs to, whether the group exists or not; or why there is none."""
        index = self.partition_of(group_id)
        shard = None if index is None else self._shards.get(index)
        if shard is None or shard.state is ShardState.FAILED:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if shard.state is ShardState.LOADING else shard

    def create(self, shard: Shard, group_id: str) -> Held:
        """A new group without members."""
        return self._hold(shard, Group(group_id, self._config, self._unique, self._now_ms), GroupOffsets())

    def forget(self, held: Held) -> None:
        """Drop a group that nobody uses any more."""
        held.group.die(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self._perform(held)
        del self._held[held.group.group_id]
        del held.shard.groups[held.group.group_id]

    def load(self, index: int) -> Deferred[None]:
        """Become coordinator of a partition; fires when it is read, or has failed to be."""
        shard = self._shards.get(index)
        if shard is None or shard.state is ShardState.FAILED:
            shard = self._shards[index] = Shard(index)
            self._begin_loading(shard)
        if shard.state is not ShardState.LOADING:
            return succeed(None)
        done: Deferred[None] = Deferred()
        shard.waiting.append(done)
        return done

    def unload(self, index: int) -> None:
        """Resign from a partition; whoever waits is answered NOT_COORDINATOR."""
        shard = self._shards.pop(index, None)
        if shard is None:
            return
        log.log(_level(shard.groups), "%s-%d: no longer coordinator, %d groups go", OFFSETS_TOPIC, index, len(shard.groups))
        for held in list(shard.groups.values()):
            self._held.pop(held.group.group_id, None)
            held.group.die(ErrorCode.NOT_COORDINATOR)
            self._perform(held)
        if shard.loading is not None:
            shard.loading.cancel()
        self._end_waiting(shard)

    def unload_all(self) -> None:
        """Resign from every partition."""
        for index in list(self._shards):
            self.unload(index)

    def _hold(self, shard: Shard, group: Group, offsets: GroupOffsets) -> Held:
        held = Held(shard, group, offsets)
        shard.groups[group.group_id] = self._held[group.group_id] = held
        return held

    def _begin_loading(self, shard: Shard) -> None:
        log.debug("%s-%d: reading groups and offsets", OFFSETS_TOPIC, shard.index)
        loading = Deferred.fromCoroutine(load(self._store, shard.index, self._pause))
        shard.loading = loading.addCallback(self._activate, shard).addErrback(self._load_failed, shard)

    def _pause(self) -> Deferred[None]:
        turn: Deferred[None] = Deferred()
        self._clock.callLater(0, turn.callback, None)
        return turn

    def _activate(self, loaded: LoadedPartition, shard: Shard) -> None:
        due_ms = monotonic_ms(self._clock)
        groups = [self._restored(group_id, record, due_ms) for group_id, record in loaded.groups.items()]
        for group_id, offsets in loaded.offsets.items():
            if group_id not in loaded.groups and not offsets.is_unused:
                groups.append(Group(group_id, self._config, self._unique, self._now_ms))
        for group in groups:
            offsets_here = loaded.offsets.get(group.group_id)
            self._hold(shard, group, GroupOffsets() if offsets_here is None else offsets_here)
        shard.state = ShardState.ACTIVE
        log.log(_level(loaded.record_count), "%s-%d: coordinating %d groups (%d records read, %d passed over)",
                OFFSETS_TOPIC, shard.index, len(shard.groups), loaded.record_count, loaded.skipped_count)
        self._loaded(shard)
        self._end_waiting(shard)

    def _restored(self, group_id: str, record: GroupRecord, due_ms: int) -> Group:
        return Group.restored(group_id, self._config, self._unique, self._now_ms, record, due_ms)

    def _load_failed(self, failure: Failure, shard: Shard) -> None:
        if self._shards.get(shard.index) is not shard:
            return  # unloaded meanwhile
        shard.state = ShardState.FAILED
        log.error("%s-%d: cannot be read, so its groups have no coordinator: %s\n%s",
                  OFFSETS_TOPIC, shard.index, failure.getErrorMessage(), failure.getTraceback())
        self._end_waiting(shard)

    def _end_waiting(self, shard: Shard) -> None:
        waiting, shard.waiting = shard.waiting, []
        for done in waiting:
            done.callback(None)


def _level(something: object) -> int:
    """What is said of each of fifty partitions is worth a line only where there is something in it."""
    return logging.INFO if something else logging.DEBUG
