"""A group coordinator with a simulated clock, and `__consumer_offsets` in memory."""

from __future__ import annotations

import itertools
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from tests.coordinators.memory_log import MemoryLog
from tests.groups.driving import protocols
from txbroker.errors import ErrorCode
from txbroker.groups.coordinator import GroupCoordinator
from txbroker.groups.group_config import GroupConfig
from txbroker.groups.group_records import read
from txbroker.groups.group_results import JoinAnswer, JoinGroup, OffsetCommit, SyncAnswer, SyncGroup
from txbroker.names import TopicPartition

E = ErrorCode
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
SUBSCRIBED_TO_A = b"\x00\x00\x00\x00\x00\x01\x00\x01a"
DAY_MS = 24 * 60 * 60_000


class CoordinatorHarness:
    """A coordinator with a clock and a store that outlive it."""

    def __init__(self, store: MemoryLog | None = None, partitions: int = 1, **settings: Any) -> None:
        self.clock = Clock()
        self.clock.advance(1_000)
        self.wall_clock_ahead_ms = 1_800_000_000_000
        self.store = store or MemoryLog()
        self.partitions = partitions
        self.config = GroupConfig(**({"initial_rebalance_delay_ms": 0} | settings))
        self.numbers = itertools.count(1)
        self.replace()

    def replace(self) -> None:
        """A new coordinator on the same log, as after a restart."""
        self.coordinator = GroupCoordinator(
            self.clock, lambda: self.now_ms, self.store, self.config, lambda: self.partitions, lambda: str(next(self.numbers))
        )

    def loaded(self) -> CoordinatorHarness:
        for index in range(self.partitions):
            self.coordinator.load(index)
        self.turns()
        return self

    def turns(self, count: int = 10) -> None:
        for _ in range(count):
            self.clock.advance(0)

    @property
    def now_ms(self) -> int:
        return self.wall_clock_ahead_ms + round(self.clock.seconds() * 1000)

    def join(self, group_id: str = "g", member_id: str = "", **changes: Any) -> Deferred[JoinAnswer]:
        request = {
            "group_id": group_id, "member_id": member_id, "client_id": "c", "client_host": "/host", "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 30_000, "protocol_type": "consumer",
            "protocols": protocols("range", metadata=SUBSCRIBED_TO_A),
        } | changes
        return self.coordinator.join_group(JoinGroup(**request))

    def sync(self, group_id: str, member_id: str, generation_id: int, assignments: dict[str, bytes]) -> Deferred[SyncAnswer]:
        request = SyncGroup(group_id=group_id, member_id=member_id, generation_id=generation_id, assignments=assignments)
        return self.coordinator.sync_group(request)

    def member(self, group_id: str = "g", **changes: Any) -> str:
        """A group of one member, stable."""
        joining = self.join(group_id, member_id_required=False, **changes)
        self.turns()
        answer = now(joining)
        assert answer.error == E.NONE
        assert now(self.sync(group_id, answer.member_id, answer.generation_id, {answer.member_id: b"all"})).error == E.NONE
        return answer.member_id

    def commit(self, offsets: dict[TopicPartition, Any], group_id: str = "g", member_id: str = "", generation_id: int = -1,
               **more: Any) -> Deferred[dict[TopicPartition, ErrorCode]]:
        values = {p: o if isinstance(o, OffsetCommit) else OffsetCommit(offset=o) for p, o in offsets.items()}
        return self.coordinator.commit_offsets(group_id, member_id, None, generation_id, values, **more)

    def offsets(self, group_id: str = "g") -> dict[TopicPartition, int]:
        error, offsets = self.coordinator.fetch_offsets(group_id, None)
        assert error == E.NONE
        return {p: o.offset for p, o in offsets.items()}

    def state(self, group_id: str = "g") -> str:
        (group,) = self.coordinator.describe_groups([group_id])
        return group.state

    def written(self) -> list[Any]:
        return [read(key, value) for _, pairs in self.store.appends for key, value in pairs]


def now(deferred: Deferred[Any]) -> Any:
    """The result of a Deferred that has fired."""
    results: list[Any] = []
    deferred.addCallback(results.append)
    assert results, "it has not fired"
    return results[0]


def waits(deferred: Deferred[Any]) -> bool:
    return not deferred.called
