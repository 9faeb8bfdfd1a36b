"""Members of a group: they join, synchronize, send heartbeats, commit offsets, leave, and are sometimes silent until they expire.

The leader assigns each partition to one member. With `cooperative` members keep their partitions while they join, and the leader does not
give a partition away before its owner has returned it (KIP-429). What they were given and have committed is in `group_ledger.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from simulation.clients.cluster_client import PASSING, ClusterClient, NotAvailable, check
from simulation.clients.group_errors import COMMIT, COORDINATOR_MOVED
from simulation.histories import Outcome
from simulation.ledger import Ledger
from txbroker.errors import ErrorCode
from txbroker.names import TopicPartition
from txbroker.wire.messages.heartbeat import HeartbeatRequest
from txbroker.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from txbroker.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from txbroker.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from txbroker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from txbroker.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

RETRY_S = 0.2
PROTOCOL_TYPE = "simulation"
# The member is known no longer: it joins as a new one.
_UNKNOWN = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID})
_REJOIN = _UNKNOWN | {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION}


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """What the members of one group do. `leaves`, `silent`: how likely they leave, or say nothing any more, after a heartbeat.

    `away_s`: the mean time until they come back. `static`: they have instance ids.
    """

    group: str
    partitions: tuple[TopicPartition, ...]
    members: int
    cooperative: bool
    static: bool
    session_timeout_ms: int
    rebalance_timeout_ms: int
    pause_s: float
    leaves: float
    silent: float
    away_s: float


class Rejoin(Exception):
    """The member has to join again."""


class Members:
    """All members of one group; their `busy` says why the group has not settled."""

    def __init__(self, plan: GroupPlan) -> None:
        self.plan = plan
        self.all: list[Member] = []

    def problem(self) -> str:
        """Why the group is not settled yet; empty if it is: one generation, each partition assigned, each member has committed in it."""
        generations = {member.name: member.generation for member in self.all}
        if len(set(generations.values())) != 1 or None in generations.values():
            return f"the members of {self.plan.group} are in the generations {generations}"
        assigned = [partition for member in self.all for partition in member.owned]
        if sorted(assigned) != sorted(self.plan.partitions):
            return f"of the partitions of {self.plan.group} only {sorted(assigned)} are assigned"
        idle = [member.name for member in self.all if member.owned and not member.has_committed]
        return f"{idle[0]} cannot commit" if idle else ""


class Member:
    """Works to the end of the run. `generation` and `owned` while it is in the group; after `finish` it stays there."""

    def __init__(self, name: str, client: ClusterClient, members: Members, ledger: Ledger) -> None:
        self.name = name
        self.plan = members.plan
        self.finishing = False
        self.generation: int | None = None
        self.owned: frozenset[TopicPartition] = frozenset()
        self.has_committed = False  # in this generation
        self._members = members
        self._client = client
        self._ledger = ledger
        self._id = ""
        self._coordinator = -1
        self._positions: dict[TopicPartition, int] = {}
        self._uncertain = 0  # requests without a result
        self._problem = ""
        members.all.append(self)

    def start(self) -> None:
        """Begin."""
        self._ledger.run(self.name, self._run())

    def finish(self) -> None:
        """Leave no more."""
        self.finishing = True

    @property
    def busy(self) -> list[str]:
        """Why its group has not settled yet."""
        problem = self._members.problem()
        return [f"{problem}; last problem of {self.name}: {self._problem or 'none'}"] if problem else []

    @property
    def _instance(self) -> str | None:
        return self.name if self.plan.static else None

    async def _run(self) -> None:
        chance, plan = self._client.chance, self.plan
        while True:
            try:
                if self._coordinator < 0:
                    self._coordinator = await self._client.coordinator(plan.group)
                if self.generation is None:
                    await self._join()
                await self._client.sleep(chance.expovariate(1 / plan.pause_s))
                if not self.finishing and chance.random() < plan.leaves + plan.silent:
                    await self._be_away(leaves=chance.random() * (plan.leaves + plan.silent) < plan.leaves)
                    continue
                if not self.owned or chance.random() < 0.6:  # else a commit comes first, as from another thread
                    await self._heartbeat()
                if self.owned and chance.random() < 0.7:
                    await self._commit()
            except Rejoin as error:
                self._problem = str(error)
                self._lost()
            except PASSING as error:
                self._problem = str(error)
                self._coordinator = -1
                self._uncertain += 1
                self._lost()
                await self._client.sleep(RETRY_S)

    def _lost(self) -> None:
        """Join again before anything else: what became of a commit may not be known, and its generation must end."""
        self.generation = None
        if not self.plan.cooperative:
            self.owned = frozenset()

    def _forget(self) -> None:
        self._id, self.owned = "", frozenset()

    def _check(self, what: str, code: int) -> None:
        """Return if there is no error. Rejoin, NotAvailable, Refused."""
        problem = f"{what}: {ErrorCode(code).name}"
        if code in _UNKNOWN:
            self._forget()
        if code in _REJOIN:
            raise Rejoin(problem)
        check(what, code, COMMIT if what == "OffsetCommit" else COORDINATOR_MOVED)

    async def _be_away(self, *, leaves: bool) -> None:
        if leaves and not self.plan.static:
            identity = MemberIdentity(member_id=self._id, group_instance_id=self._instance)
            await self._client.send(self._coordinator, LeaveGroupRequest(group_id=self.plan.group, members=[identity]), version_max=5)
        self._forget()
        self.generation = None
        await self._client.sleep(self._client.chance.expovariate(1 / self.plan.away_s))

    # Rebalances

    async def _join(self) -> None:
        plan = self.plan
        group = plan.group
        acting = self._ledger.acting_coordinator(group, self._coordinator)
        before = self._ledger.groups.generation(group)
        joined: JoinGroupResponse = await self._client.send(
            self._coordinator,
            JoinGroupRequest(
                group_id=group,
                session_timeout_ms=plan.session_timeout_ms,
                rebalance_timeout_ms=plan.rebalance_timeout_ms,
                member_id=self._id,
                group_instance_id=self._instance,
                protocol_type=PROTOCOL_TYPE,
                protocols=[JoinGroupRequestProtocol(name="one", metadata=self._metadata())],
            ),
            version_max=7,
            timeout_s=plan.rebalance_timeout_ms / 1000 + 5.0,
        )
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._id = joined.member_id
            raise Rejoin("a member id is required")
        self._check("JoinGroup", joined.error_code)
        self._id = joined.member_id
        leads = joined.leader == joined.member_id
        response = await self._client.send(
            self._coordinator,
            SyncGroupRequest(
                group_id=group,
                generation_id=joined.generation_id,
                member_id=self._id,
                group_instance_id=self._instance,
                assignments=self._assign(joined) if leads else [],
            ),
            version_max=5,
            timeout_s=plan.rebalance_timeout_ms / 1000 + 5.0,
        )
        self._check("SyncGroup", response.error_code)
        assigned = frozenset(_decode(response.assignment))
        still_acts = acting is not None and acting == self._ledger.acting_coordinator(group, self._coordinator)
        self._ledger.groups.synced(group, joined.generation_id, self._instance or self._id, assigned, before if still_acts else 0)
        returned, self.owned = self.owned - assigned, assigned
        self.generation, self.has_committed = joined.generation_id, False
        if returned:
            raise Rejoin(f"partitions are returned: {sorted(returned)}")
        await self._fetch()

    def _metadata(self) -> bytes:
        """What it owns. After a commit whose outcome is not known it differs, so that a new generation fences a late one."""
        return json.dumps([sorted(self.owned), self._uncertain]).encode()

    def _assign(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        members = sorted(member.member_id for member in joined.members)
        owners = {partition: member.member_id for member in joined.members for partition in _owned(member.metadata)}
        assigned: dict[str, list[TopicPartition]] = {member: [] for member in members}
        for index, partition in enumerate(self.plan.partitions):
            target = members[index % len(members)]
            if not self.plan.cooperative or owners.get(partition, target) == target:
                assigned[target].append(partition)
        return [SyncGroupRequestAssignment(member_id=member, assignment=_encode(has)) for member, has in assigned.items()]

    async def _heartbeat(self) -> None:
        generation = self.generation
        assert generation is not None
        request = HeartbeatRequest(group_id=self.plan.group, generation_id=generation, member_id=self._id, group_instance_id=self._instance)
        response = await self._client.send(self._coordinator, request, version_max=4)
        self._check("Heartbeat", response.error_code)

    # Offsets

    async def _commit(self) -> None:
        group, ledger, generation = self.plan.group, self._ledger, self.generation
        assert generation is not None
        began, outcome = ledger.history.now(), Outcome.UNKNOWN
        acting, newest = ledger.acting_coordinator(group, self._coordinator), ledger.groups.generation(group)
        offsets = {partition: self._positions[partition] + 1 for partition in sorted(self.owned)}
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for partition, offset in offsets.items():
            ledger.groups.trying(group, partition, offset)
            one = OffsetCommitRequestPartition(partition_index=partition.partition, committed_offset=offset, committed_metadata="")
            topics.setdefault(partition.topic, []).append(one)
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=self._id,
            group_instance_id=self._instance,
            topics=[OffsetCommitRequestTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
        )
        try:
            response = await self._client.send(self._coordinator, request, version_max=8)
            for topic in response.topics:
                for answer in topic.partitions:
                    self._check("OffsetCommit", answer.error_code)
            outcome = Outcome.OK
        finally:
            for partition, offset in offsets.items():
                ledger.history.committed(f"{self.name} for {partition}", group, partition, offset, began, outcome)
        if acting is not None and acting == ledger.acting_coordinator(group, self._coordinator):
            ledger.groups.accepted(group, generation, newest, self.name)
        self._positions.update(offsets)
        self.has_committed = True
        for partition, offset in offsets.items():
            ledger.groups.committed(group, partition, offset)

    async def _fetch(self) -> None:
        """The committed offsets of the assigned partitions."""
        group, ledger = self.plan.group, self._ledger
        began, acting = ledger.history.now(), ledger.acting_coordinator(group, self._coordinator)
        before = {partition: ledger.groups.known(group, partition) for partition in self.owned}
        asked = [OffsetFetchRequestTopics(name=topic, partition_indexes=[index]) for topic, index in sorted(self.owned)]
        response = await self._client.send(
            self._coordinator, OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=asked)]), version_max=8
        )
        (answer,) = response.groups
        self._check("OffsetFetch", answer.error_code)
        found: dict[TopicPartition, Any] = {
            TopicPartition(topic.name, partition.partition_index): partition for topic in answer.topics for partition in topic.partitions
        }
        for partition in found.values():
            self._check("OffsetFetch", partition.error_code)
        if acting is None or acting != ledger.acting_coordinator(group, self._coordinator):
            raise NotAvailable("the coordinator may be replaced")
        self._positions = {partition: one.committed_offset for partition, one in found.items()}
        for partition, offset in self._positions.items():
            ledger.history.fetched(f"{self.name} for {partition}", group, partition, offset, began)
            ledger.groups.fetched(group, partition, offset, before[partition], self.name)


def _encode(partitions: Iterable[TopicPartition]) -> bytes:
    return json.dumps(sorted(partitions)).encode()


def _owned(metadata: bytes) -> Sequence[TopicPartition]:
    return [TopicPartition(*one) for one in json.loads(bytes(metadata))[0]]


def _decode(data: bytes) -> Sequence[TopicPartition]:
    return [TopicPartition(*one) for one in json.loads(bytes(data) or b"[]")]
