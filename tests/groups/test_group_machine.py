"""The group under any sequence of requests, times and failing writes: what must hold after each step."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.groups.driving import Driver, protocols
from tests.support.examples import examples
from txbroker.errors import ErrorCode
from txbroker.groups.group import Group
from txbroker.groups.group_config import GroupConfig
from txbroker.groups.group_results import JoinAnswer, SyncAnswer
from txbroker.groups.group_states import GroupState

INSTANCES = st.sampled_from([None, None, None, "i", "j"])
PROTOCOLS = st.sampled_from([("range",), ("range", "rr"), ("rr", "range"), ("rr",)])
TIMEOUTS = st.sampled_from([0, 30_000, 30_000, 60_000])
TIMES = st.sampled_from([0, 1, 100, 2_999, 3_000, 5_000, 10_000, 300_000])
WRITE_ERRORS = st.sampled_from([ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NOT_COORDINATOR, ErrorCode.REBALANCE_IN_PROGRESS])


class GroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        config = GroupConfig(initial_rebalance_delay_ms=3_000, size_max=4, pending_members_max=3)
        self.driver = Driver(config, hold_writes=True)
        self.joins: list[list[JoinAnswer]] = []
        self.syncs: list[list[SyncAnswer]] = []
        self.ids: list[str] = ["unknown"]
        self.generation = 0
        self.leaders: dict[int, set[str]] = defaultdict(set)

    def an_id(self, data: Any) -> str:
        return data.draw(st.sampled_from(self.ids[-6:]))

    def check_answers(self) -> None:
        assert all(len(answers) <= 1 for answers in self.joins + self.syncs)
        for answers in self.joins:
            if answers:
                answer = answers[0]
                if answer.member_id and answer.member_id not in self.ids:
                    self.ids.append(answer.member_id)
                if answer.error == ErrorCode.NONE and answer.members and not answer.skip_assignment:
                    assert answer.leader == answer.member_id
                    self.leaders[answer.generation_id].add(answer.member_id)

    # What clients may do

    @rule(
        data=st.data(), names=PROTOCOLS, instance=INSTANCES, known=st.booleans(), required=st.booleans(), skip=st.booleans(),
        timeout=TIMEOUTS, kind=st.sampled_from(["consumer"] * 9 + ["connect"]),
    )
    def join(self, data: Any, names: Any, instance: Any, known: bool, required: bool, skip: bool, timeout: int, kind: str) -> None:
        member_id = self.an_id(data) if known else ""
        if known and member_id in self.driver.group.roster and data.draw(st.booleans()):
            instance = self.driver.group.roster[member_id].group_instance_id
        self.joins.append(
            self.driver.join(
                member_id, protocols=protocols(*names), group_instance_id=instance, member_id_required=required,
                can_skip_assignment=skip, rebalance_timeout_ms=timeout, protocol_type=kind,
            )
        )

    @rule(data=st.data(), behind=st.sampled_from([0, 0, 0, 1]))
    def sync(self, data: Any, behind: int) -> None:
        group = self.driver.group
        generation = group.generation - behind
        everything = {m: f"{generation}".encode() for m in group.roster.members}
        self.syncs.append(self.driver.sync(self.an_id(data), everything, generation_id=generation))

    @rule()
    def everyone_syncs(self) -> None:
        for member_id in list(self.driver.group.roster.members):
            everything = {m: f"{self.driver.group.generation}".encode() for m in self.driver.group.roster.members}
            self.syncs.append(self.driver.sync(member_id, everything))

    @rule()
    def everyone_joins_again(self) -> None:
        for member in list(self.driver.group.roster):
            self.joins.append(
                self.driver.join(
                    member.member_id, protocols=member.protocols, group_instance_id=member.group_instance_id,
                    rebalance_timeout_ms=member.rebalance_timeout_ms,
                )
            )

    @rule()
    def the_group_settles(self) -> None:
        """Every client does what it should, and writes succeed."""
        if self.driver.group.state is GroupState.PREPARING_REBALANCE:
            self.everyone_joins_again()
            self.driver.advance(3_000)
        self.everyone_syncs()
        while self.driver.writes:
            self.driver.complete_write()

    @rule(data=st.data())
    def heartbeat(self, data: Any) -> None:
        member_id = self.an_id(data)
        error = self.driver.heartbeat(member_id)
        if member_id not in self.driver.group.roster:
            assert error == ErrorCode.UNKNOWN_MEMBER_ID
        elif self.driver.group.state is GroupState.PREPARING_REBALANCE:
            assert error == ErrorCode.REBALANCE_IN_PROGRESS
        else:
            assert error == ErrorCode.NONE

    @rule(data=st.data(), instance=INSTANCES)
    def leave(self, data: Any, instance: str | None) -> None:
        self.driver.leave(self.an_id(data) if instance is None else ("", instance))

    @rule(data=st.data(), behind=st.sampled_from([0, 1]))
    def commit(self, data: Any, behind: int) -> None:
        member_id = self.an_id(data)
        error = self.driver.commit(member_id, self.driver.group.generation - behind)
        if not error and self.driver.group.roster.members:
            assert member_id in self.driver.group.roster and not behind

    # What else happens

    @rule(ms=TIMES)
    def time_passes(self, ms: int) -> None:
        self.driver.advance(ms)

    @rule(error=WRITE_ERRORS)
    def a_write_ends(self, error: ErrorCode) -> None:
        if self.driver.writes:
            self.driver.complete_write(error)

    @rule()
    def restart(self) -> None:
        """Another coordinator takes over from the last record, if that is what the group is like now."""
        group, records = self.driver.group, self.driver.records
        if self.driver.writes or not records or group.state not in (GroupState.EMPTY, GroupState.STABLE):
            return
        self.end_group()
        if records[-1].generation == group.generation:
            driver = self.driver
            driver.group = Group.restored("g", driver.config, driver.unique, driver.now_ms, records[-1], driver.monotonic_ms)
        else:
            self.driver.group = Group("g", self.driver.config, self.driver.unique, self.driver.now_ms)
            self.generation = 0
        self.driver.wake_ms = None
        self.driver.settle()

    def end_group(self) -> None:
        self.driver.group.die(ErrorCode.NOT_COORDINATOR)
        self.driver.settle()
        assert all(len(answers) == 1 for answers in self.joins + self.syncs)
        self.leaders.clear()

    def teardown(self) -> None:
        self.end_group()

    # What must hold

    @invariant()
    def every_request_has_one_answer_or_waits(self) -> None:
        self.check_answers()
        members = list(self.driver.group.roster)
        waiting = sum(m.awaiting_join is not None for m in members), sum(m.awaiting_sync is not None for m in members)
        assert waiting == (sum(not a for a in self.joins), sum(not a for a in self.syncs))
        assert self.driver.group.roster.joined_count == waiting[0]

    @invariant()
    def generations_grow_and_have_one_leader(self) -> None:
        group = self.driver.group
        assert group.generation >= self.generation
        self.generation = group.generation
        assert (group.roster.leader in group.roster.members) == bool(group.roster.members)
        for generation, leaders in self.leaders.items():
            # A static leader that came back has another id, under which it may become leader again.
            assert len({m if m.startswith("c-") else m[0] for m in leaders}) == 1, (generation, leaders)

    @invariant()
    def states_and_members_agree(self) -> None:
        group = self.driver.group
        if group.state is GroupState.EMPTY:
            assert not group.roster.members and group.protocol_name is None
        if group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            assert group.roster.members
            assert all(m.metadata(group.protocol_name) for m in group.roster)
        if group.state is not GroupState.COMPLETING_REBALANCE:
            assert all(m.awaiting_sync is None for m in group.roster)
        assert len(group.roster) <= self.driver.config.size_max or group.state is GroupState.PREPARING_REBALANCE
        assert all(m.member_id == key for key, m in group.roster.members.items())
        instances = {m.group_instance_id: m.member_id for m in group.roster if m.is_static}
        assert len(instances) == sum(m.is_static for m in group.roster)
        assert all(group.roster.instance(i or "") == m for i, m in instances.items())

    @invariant()
    def nobody_is_without_a_timer(self) -> None:
        group = self.driver.group
        deadlines = [m.deadline_ms for m in group.roster if m.is_watched] + list(group.pending.values())
        if group.state is GroupState.PREPARING_REBALANCE:
            assert group._rebalance is not None
            deadlines.append(group._rebalance.deadline_ms)
        if group.state is GroupState.COMPLETING_REBALANCE and group._unsynced:
            assert group._sync_deadline_ms is not None
            deadlines.append(group._sync_deadline_ms)
        if deadlines:
            assert self.driver.wake_ms is not None
            assert self.driver.wake_ms <= min(deadlines)
        if group.state in (GroupState.EMPTY, GroupState.PREPARING_REBALANCE):
            assert not group._unsynced and group._sync_deadline_ms is None
        # Only a write keeps a synced generation from being stable, and writes end by themselves.
        if group.state is GroupState.COMPLETING_REBALANCE and not group._unsynced:
            assert self.driver.writes

    @invariant()
    def a_generation_has_one_assignment(self) -> None:
        group = self.driver.group
        if group.state is GroupState.STABLE:
            assert len({m.assignment for m in group.roster}) == 1


GroupMachine.TestCase.settings = settings(max_examples=examples(50), stateful_step_count=50)
TestGroupMachine = GroupMachine.TestCase
