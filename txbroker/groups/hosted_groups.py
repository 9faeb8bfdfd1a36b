"""The groups in the partitions of `__consumer_offsets` that this broker leads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field

from twisted.internet.defer import Deferred

from txbroker.clock import Clock
from txbroker.coordinators.keyed_deadlines import monotonic_ms
from txbroker.coordinators.load_times import LoadTimes
from txbroker.coordinators.shards import NO_EPOCH, Shard, Shards
from txbroker.coordinators.state_log import StateLog
from txbroker.errors import ErrorCode
from txbroker.groups.group import Group
from txbroker.groups.group_config import GroupConfig
from txbroker.groups.group_effects import GroupRecord
from txbroker.groups.group_offsets import GroupOffsets
from txbroker.groups.group_replay import GroupReplay
from txbroker.lazy_dataclass import lazy_dataclass
from txbroker.names import OFFSETS_TOPIC


@lazy_dataclass(slots=True, eq=False)
class GroupsOfPartition:
    """The groups of one partition of `__consumer_offsets`."""

    groups: dict[str, HostedGroup] = field(default_factory=dict)
    topics_deleted: set[str] = field(default_factory=set)  # while loading
    transactions: dict[int, set[str]] = field(default_factory=dict)  # producer id -> groups with offsets in its open transaction

    def __len__(self) -> int:
        return len(self.groups)


@lazy_dataclass(slots=True, eq=False)
class HostedGroup:
    """A group with its offsets and its partition."""

    shard: Shard[GroupsOfPartition]
    group: Group
    offsets: GroupOffsets
    is_performing: bool = False

    @property
    def is_unused(self) -> bool:
        """Whether the group has neither members nor offsets, so that it can be dropped."""
        return self.group.is_unused and self.offsets.is_unused


class HostedGroups:
    """All groups of active partitions. `perform` runs a group's effects; `loaded` is called when a partition becomes active."""

    topic = OFFSETS_TOPIC
    keys = "group"

    def __init__(
        self,
        clock: Clock,
        now_ms: Callable[[], int],
        state_log: StateLog,
        config: GroupConfig,
        partition_count: Callable[[], int],
        unique: Callable[[], str],
        perform: Callable[[HostedGroup], None],
        loaded: Callable[[GroupsOfPartition], None],
    ) -> None:
        self._clock = clock
        self._now_ms = now_ms
        self._config = config
        self._unique = unique
        self._perform = perform
        self._loaded = loaded
        self._shards: Shards[GroupsOfPartition, GroupReplay] = Shards(clock, state_log, partition_count, self)
        self._hosted: dict[str, HostedGroup] = {}

    def __iter__(self) -> Iterator[HostedGroup]:
        """Every group, as of now."""
        return iter(list(self._hosted.values()))

    @property
    def load_times(self) -> LoadTimes:
        """How long partitions took to load."""
        return self._shards.load_times

    def loading(self) -> list[Shard[GroupsOfPartition]]:
        """The partitions that are loading."""
        return self._shards.loading()

    def partition_of(self, group_id: str) -> int | None:
        """The partition that stores this group; None while `__consumer_offsets` does not exist."""
        return self._shards.partition_of(group_id)

    def find(self, group_id: str) -> HostedGroup | None:
        """A group of an active partition, if it exists."""
        return self._hosted.get(group_id)

    def route(self, group_id: str) -> Shard[GroupsOfPartition] | ErrorCode:
        """The active partition of this group, whether the group exists or not; or the error to answer."""
        return self._shards.route(group_id)

    def active(self, index: int) -> Shard[GroupsOfPartition] | ErrorCode:
        """A partition if it is active, or the error to answer."""
        return self._shards.active(index)

    def create(self, shard: Shard[GroupsOfPartition], group_id: str) -> HostedGroup:
        """Add a group without members."""
        return self._hold(shard, self._new_group(group_id), GroupOffsets())

    def forget(self, hosted: HostedGroup) -> None:
        """Drop an unused group."""
        hosted.group.die(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self._perform(hosted)
        del self._hosted[hosted.group.group_id]
        del hosted.shard.content.groups[hosted.group.group_id]

    def load(self, index: int) -> Deferred[None]:
        """Become coordinator of a partition; fires when it has been read, or reading has failed."""
        return self._shards.load(index, NO_EPOCH)

    def unload(self, index: int) -> None:
        """Resign from a partition; waiting requests are answered with NOT_COORDINATOR."""
        self._shards.unload(index)

    def unload_all(self) -> None:
        """Resign from every partition."""
        self._shards.unload_all()

    # ShardOwner

    def new_content(self) -> GroupsOfPartition:
        """No groups."""
        return GroupsOfPartition()

    def new_replay(self) -> GroupReplay:
        """What reads groups and offsets."""
        return GroupReplay()

    def activate(self, shard: Shard[GroupsOfPartition], replayed: GroupReplay) -> None:
        """Restore the groups with a new session timeout for each member."""
        due_ms = monotonic_ms(self._clock)
        groups = [self._restored(group_id, record, due_ms) for group_id, record in replayed.groups.items()]
        for group_id, offsets in replayed.offsets.items():
            if group_id not in replayed.groups and not offsets.is_unused:
                groups.append(self._new_group(group_id))
        for group in groups:
            offsets_here = replayed.offsets.get(group.group_id)
            self._hold(shard, group, GroupOffsets() if offsets_here is None else offsets_here)
        shard.content.transactions = replayed.transactions

    def activated(self, shard: Shard[GroupsOfPartition]) -> None:
        """Requests for its groups are served."""
        self._loaded(shard.content)

    def deactivate(self, shard: Shard[GroupsOfPartition]) -> None:
        """End every group of the partition."""
        for hosted in list(shard.content.groups.values()):
            self._hosted.pop(hosted.group.group_id, None)
            hosted.group.die(ErrorCode.NOT_COORDINATOR)
            self._perform(hosted)

    def _hold(self, shard: Shard[GroupsOfPartition], group: Group, offsets: GroupOffsets) -> HostedGroup:
        hosted = HostedGroup(shard, group, offsets)
        shard.content.groups[group.group_id] = self._hosted[group.group_id] = hosted
        return hosted

    def _new_group(self, group_id: str) -> Group:
        return Group(group_id, self._config, self._unique, self._now_ms)

    def _restored(self, group_id: str, record: GroupRecord, due_ms: int) -> Group:
        return Group.restored(group_id, self._config, self._unique, self._now_ms, record, due_ms)
