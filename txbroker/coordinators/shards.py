"""The partitions of an internal topic that this broker leads, each with its part of a coordinator's state: loading, active or failed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sized
from dataclasses import field
from enum import Enum, auto
from typing import Generic, Protocol, TypeVar

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from txbroker.clock import Clock
from txbroker.coordinators.load_times import LoadTimes
from txbroker.coordinators.replay import Replay, replay_partition
from txbroker.coordinators.state_log import StateLog
from txbroker.errors import ErrorCode
from txbroker.lazy_dataclass import lazy_dataclass
from txbroker.names import amount, coordinator_partition

log = logging.getLogger("txbroker.coordinators")

NO_EPOCH = -1

C = TypeVar("C", bound=Sized)
R = TypeVar("R", bound=Replay)


class LoadState(Enum):
    """The state of a partition."""

    LOADING = auto()
    ACTIVE = auto()
    FAILED = auto()  # its log could not be read; the next election or restart tries again


@lazy_dataclass(slots=True, eq=False)
class Shard(Generic[C]):
    """One partition that this broker leads. `append_error`: why its last append failed; NONE if it did not."""

    index: int
    epoch: int  # the leader epoch, which is the epoch of this coordinator
    content: C
    state: LoadState = LoadState.LOADING
    waiting: list[Deferred[None]] = field(default_factory=list)  # fired when loading ends
    loading: Deferred[None] | None = None
    append_error: ErrorCode = ErrorCode.NONE


class ShardOwner(Protocol[C, R]):
    """The coordinator whose state it is. `keys`: what has a place in one partition, such as `group`."""

    topic: str
    keys: str

    def new_content(self) -> C:
        """The content of a partition before it is loaded."""

    def new_replay(self) -> R:
        """What reads a partition's records."""

    def activate(self, shard: Shard[C], replayed: R) -> None:
        """Fill the shard's content. It becomes active."""

    def activated(self, shard: Shard[C]) -> None:
        """The shard is active; requests that waited follow."""

    def deactivate(self, shard: Shard[C]) -> None:
        """This broker no longer leads the partition: answer what waits, and drop the content. It may not have been loaded."""


class Shards(Generic[C, R]):
    """All partitions of the topic that this broker leads."""

    def __init__(self, clock: Clock, state_log: StateLog, partition_count: Callable[[], int], owner: ShardOwner[C, R]) -> None:
        """`partition_count` returns the number of partitions of the topic, 0 while it does not exist."""
        self._clock = clock
        self._state_log = state_log
        self._partition_count = partition_count
        self._owner = owner
        self._shards: dict[int, Shard[C]] = {}
        self.load_times = LoadTimes(clock)

    def loading(self) -> list[Shard[C]]:
        """The partitions that are loading."""
        return [shard for shard in self._shards.values() if shard.state is LoadState.LOADING]

    def is_current(self, shard: Shard[C]) -> bool:
        """Whether this broker still leads the partition, without having resigned since the shard was loaded."""
        return self._shards.get(shard.index) is shard

    def partition_of(self, key: str) -> int | None:
        """The partition that stores this key; None while the topic does not exist."""
        count = self._partition_count()
        return coordinator_partition(key, count) if count > 0 else None

    def route(self, key: str) -> Shard[C] | ErrorCode:
        """The active partition of this key, or the error to answer."""
        index = self.partition_of(key)
        return ErrorCode.NOT_COORDINATOR if index is None else self.active(index)

    def active(self, index: int) -> Shard[C] | ErrorCode:
        """The partition if it is active, or the error to answer."""
        shard = self._shards.get(index)
        if shard is None or shard.state is LoadState.FAILED:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if shard.state is LoadState.LOADING else shard

    def load(self, index: int, epoch: int) -> Deferred[None]:
        """Lead a partition; fires when it has been read, or reading has failed. In a new epoch without a resignation it stays as it is."""
        shard = self._shards.get(index)
        if shard is None or shard.state is LoadState.FAILED:
            shard = self._shards[index] = Shard(index, epoch, self._owner.new_content())
            self._begin_loading(shard)
        shard.epoch = max(shard.epoch, epoch)
        if shard.state is not LoadState.LOADING:
            return succeed(None)
        done: Deferred[None] = Deferred()
        shard.waiting.append(done)
        return done

    def unload(self, index: int) -> None:
        """Resign from a partition."""
        shard = self._shards.pop(index, None)
        if shard is None:
            return
        unloaded = amount(len(shard.content), self._owner.keys)
        log.log(_level(shard.content), "%s-%d: no longer coordinator; unloaded %s", self._owner.topic, index, unloaded)
        self._owner.deactivate(shard)
        if shard.loading is not None:
            shard.loading.cancel()
        _end_waiting(shard)

    def unload_all(self) -> None:
        """Resign from every partition."""
        for index in list(self._shards):
            self.unload(index)

    def _begin_loading(self, shard: Shard[C]) -> None:
        log.debug("%s-%d: reading the coordinator's state", self._owner.topic, shard.index)
        replay = self._owner.new_replay()
        begun_s = self._clock.seconds()
        loading = Deferred.fromCoroutine(replay_partition(self._state_log, shard.index, replay, self._pause))

        def loaded(_: None) -> None:
            self._activate(shard, replay)
            self.load_times.add(begun_s)

        shard.loading = loading.addCallback(loaded).addErrback(self._load_failed, shard)

    def _pause(self) -> Deferred[None]:
        turn: Deferred[None] = Deferred()
        self._clock.callLater(0, turn.callback, None)
        return turn

    def _activate(self, shard: Shard[C], replay: R) -> None:
        self._owner.activate(shard, replay)
        shard.state = LoadState.ACTIVE
        log.log(_level(replay.record_count), "%s-%d: coordinator of %s (%s read, %d skipped)", self._owner.topic, shard.index,
                amount(len(shard.content), self._owner.keys), amount(replay.record_count, "record"), replay.skipped_count)
        self._owner.activated(shard)
        _end_waiting(shard)

    def _load_failed(self, failure: Failure, shard: Shard[C]) -> None:
        if not self.is_current(shard):
            return  # it has been unloaded
        shard.state = LoadState.FAILED
        log.error("%s-%d: cannot be read, its %ss are not available until the next election or restart: %s\n%s",
                  self._owner.topic, shard.index, self._owner.keys, failure.getErrorMessage(), failure.getTraceback())
        _end_waiting(shard)


def _end_waiting(shard: Shard[C]) -> None:
    waiting, shard.waiting = shard.waiting, []
    for done in waiting:
        done.callback(None)


def _level(something: object) -> int:
    """INFO for a partition that has something in it: there are fifty, and most are empty."""
    return logging.INFO if something else logging.DEBUG
