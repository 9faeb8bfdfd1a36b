"""Drives a group without a coordinator: answers are collected, writes complete at once or on demand, both clocks are numbers."""

from __future__ import annotations

import itertools
from typing import Any

from txbroker.errors import ErrorCode
from txbroker.groups.group import Group
from txbroker.groups.group_config import GroupConfig
from txbroker.groups.group_effects import AnswerJoin, AnswerSync, Persist, WakeAt
from txbroker.groups.group_results import JoinAnswer, JoinGroup, MemberIdentity, Protocol, SyncAnswer, SyncGroup

SESSION_MS = 10_000
REBALANCE_MS = 30_000
WALL_CLOCK_AHEAD_MS = 1_700_000_000_000
AT_ONCE = GroupConfig(initial_rebalance_delay_ms=0)


def protocols(*names: str, metadata: bytes | None = None) -> tuple[Protocol, ...]:
    return tuple(Protocol(name=n, metadata=n.encode() if metadata is None else metadata) for n in names)


class Driver:
    def __init__(self, config: GroupConfig = AT_ONCE, hold_writes: bool = False) -> None:
        numbers = itertools.count(1)
        self.monotonic_ms = 1_000_000
        self.config = config
        self.unique = lambda: str(next(numbers))
        self.group = Group("g", config, self.unique, self.now_ms)
        self.hold_writes = hold_writes
        self.writes: list[Persist] = []
        self.records: list[Any] = []
        self.wake_ms: int | None = None

    def now_ms(self) -> int:
        """The wall clock: far from the monotonic one, and it ticks as fast."""
        return WALL_CLOCK_AHEAD_MS + self.monotonic_ms

    def settle(self) -> None:
        effects = self.group.effects
        while effects:
            effect = effects.popleft()
            match effect:
                case AnswerJoin(waiter, answer):
                    waiter(answer)
                case AnswerSync(waiter, answer):
                    waiter(answer)
                case WakeAt(at_ms):
                    self.wake_ms = at_ms
                case Persist(record):
                    self.records.append(record)
                    self.writes.append(effect)
                    if not self.hold_writes:
                        self.complete_write()

    def complete_write(self, error: ErrorCode = ErrorCode.NONE) -> None:
        self.group.written(self.writes.pop(0).then, error, self.monotonic_ms)
        self.settle()

    def advance(self, ms: int) -> None:
        """Let time pass, waking the group whenever it wants to be woken."""
        end = self.monotonic_ms + ms
        for _ in range(10_000):
            if self.wake_ms is None or self.wake_ms > end:
                break
            self.monotonic_ms = max(self.monotonic_ms, self.wake_ms)
            self.wake_ms = None
            self.group.tick(self.monotonic_ms)
            self.settle()
        else:
            raise AssertionError("the group wants to be woken without end")
        self.monotonic_ms = end

    def join(self, member_id: str = "", *names: str, **changes: Any) -> list[JoinAnswer]:
        """Send JoinGroup; the answer is in the list once there is one."""
        answers: list[JoinAnswer] = []
        request = {
            "group_id": "g",
            "member_id": member_id,
            "client_id": "c",
            "client_host": "/host",
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "protocol_type": "consumer",
            "protocols": protocols(*(names or ("range",))),
        } | changes
        self.group.join(JoinGroup(**request), answers.append, self.monotonic_ms)
        self.settle()
        return answers

    def sync(self, member_id: str, assignments: dict[str, bytes] | None = None, **changes: Any) -> list[SyncAnswer]:
        """Send SyncGroup of the present generation."""
        answers: list[SyncAnswer] = []
        request = {
            "group_id": "g",
            "generation_id": self.group.generation,
            "member_id": member_id,
            "assignments": assignments or {},
        } | changes
        self.group.sync(SyncGroup(**request), answers.append, self.monotonic_ms)
        self.settle()
        return answers

    def heartbeat(self, member_id: str, generation_id: int | None = None, instance: str | None = None) -> ErrorCode:
        generation = self.group.generation if generation_id is None else generation_id
        error = self.group.heartbeat(member_id, instance, generation, self.monotonic_ms)
        self.settle()
        return error

    def leave(self, *members: str | tuple[str, str]) -> list[ErrorCode]:
        identities = [
            MemberIdentity(member_id=m) if isinstance(m, str) else MemberIdentity(member_id=m[0], group_instance_id=m[1]) for m in members
        ]
        results = self.group.leave(identities, self.monotonic_ms)
        self.settle()
        return [r.error for r in results]

    def commit(self, member_id: str = "", generation_id: int = -1, instance: str | None = None) -> ErrorCode:
        error = self.group.check_commit(member_id, instance, generation_id, self.monotonic_ms)
        self.settle()
        return error

    # Whole groups

    def stable(self, *names: str | None) -> list[str]:
        """A stable group of as many members as names (of static instances; None is a dynamic member); returns their ids, leader first."""
        joins = [self.join(group_instance_id=name, member_id_required=False) for name in names]
        self.advance(self.config.initial_rebalance_delay_ms)
        ids = [answers[0].member_id for answers in joins]
        assert all(answers[0].error == ErrorCode.NONE for answers in joins)
        for member_id in reversed(ids):
            self.sync(member_id, {i: f"for {i}".encode() for i in ids})
        assert self.group.state.value == "Stable"
        return ids

    def completing(self, *names: str | None) -> list[str]:
        """A group whose generation is formed and not assigned yet."""
        ids = self.stable(*names)
        answers = [self.join(i, group_instance_id=name) for i, name in zip(ids, names, strict=True)]
        assert all(a for a in answers)
        assert self.group.state.value == "CompletingRebalance"
        return ids
