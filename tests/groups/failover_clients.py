"""Clients of `broker_group.py` that check the responses: committers of offsets, and members of groups."""

from __future__ import annotations

from random import Random
from typing import Any, TypeVar

from twisted.internet.defer import Deferred

from tests.groups.broker_group import SESSION_MS, BrokerGroup, Lost, Process, partition_of
from tests.groups.model_controller import DATA, ModelController
from txbroker.errors import ErrorCode
from txbroker.names import OFFSETS_TOPIC
from txbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from txbroker.wire.messages.heartbeat import HeartbeatRequest
from txbroker.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from txbroker.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from txbroker.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from txbroker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from txbroker.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from txbroker.wire.schema import Request

E = ErrorCode
T = TypeVar("T")
REBALANCE_MS = 30_000
WRONG_BROKER = {E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE}
WAIT = {E.COORDINATOR_LOAD_IN_PROGRESS, E.REQUEST_TIMED_OUT}


class Broken(AssertionError):
    """A promise to a client was not kept."""


class SharedState:
    """The brokers and their controller, and whether the clients are to stop."""

    def __init__(self, group: BrokerGroup, controller: ModelController) -> None:
        self.group = group
        self.controller = controller
        self.ended = False
        self.generations: dict[str, int] = {}  # of each group, the last one that was assigned
        self.removed: set[str] = set()  # the members that a coordinator has removed, for a reason

    def acts(self, process: Process, group_id: str) -> bool:
        """Whether this broker is the coordinator in the controller's leader epoch, of which others may not have heard, and has loaded."""
        index = partition_of(group_id, len(self.controller.states))
        replica = process.replicas.find(OFFSETS_TOPIC, index)
        if replica is None or not replica.is_leader or replica.leader_epoch != self.controller.states[index].leader_epoch:
            return False
        return all(shard.index != index for shard in process.coordinator._hosted.loading())


class Client:
    """A client of one group."""

    def __init__(self, shared: SharedState, group_id: str, name: str, seed: int) -> None:
        self.shared = shared
        self.group_id = group_id
        self.name = name
        self.random = Random(f"{seed} {name}")
        self.coordinator: int | None = None
        self.acted = False  # the last response came from the broker that was the coordinator then

    def start(self) -> None:
        Deferred.fromCoroutine(self._run()).addErrback(lambda failure: self.shared.group.failed(f"{self.name}: {failure.getTraceback()}"))

    async def _run(self) -> None:
        while not self.shared.ended:
            try:
                await self.work()
            except Lost:
                self.coordinator = None
            await self.shared.group.sleep(self.random.choice((0.01, 0.1, 0.3)))

    async def work(self) -> None:
        """One step."""
        raise NotImplementedError

    async def call(self, request: Request) -> Any:
        """The coordinator's response; Lost."""
        broker_id = self.coordinator
        if broker_id is None:
            broker_id = self.coordinator = await self._find()
        self.acted = False
        return await self.shared.group.call(broker_id, request, self._answered)

    def _answered(self, process: Process) -> None:
        self.acted = self.shared.acts(process, self.group_id)

    async def _find(self) -> int:
        asked = self.random.choice(sorted(self.shared.group.processes) or [0])
        response = await self.shared.group.call(asked, FindCoordinatorRequest(coordinator_keys=[self.group_id]))
        found = response.coordinators[0]
        if found.error_code:
            raise Lost(E(found.error_code).name)
        return int(found.node_id)

    def retries(self, code: int) -> bool:
        """Whether the request has to be repeated, perhaps at another broker."""
        if code in WRONG_BROKER:
            self.coordinator = None
        return code in WRONG_BROKER | WAIT


class Committer(Client):
    """Commits larger and larger offsets, without members, and reads them back."""

    def __init__(self, shared: SharedState, group_id: str, seed: int) -> None:
        super().__init__(shared, group_id, f"committer of {group_id}", seed)
        self.asked = self.least = -1

    async def work(self) -> None:
        if self.random.random() < 0.5:
            await self.commit()
        else:
            await self.fetch()

    async def commit(self) -> bool:
        """Whether the next offset is committed."""
        self.asked = value = self.asked + self.random.randint(1, 3)
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=value, committed_metadata="")
        topic = OffsetCommitRequestTopic(name=DATA, partitions=[partition])
        request = OffsetCommitRequest(group_id=self.group_id, generation_id_or_member_epoch=-1, member_id="", topics=[topic])
        code = (await self.call(request)).topics[0].partitions[0].error_code
        if code == E.NONE:
            self.least = value
        elif not self.retries(code) and code != E.UNKNOWN_TOPIC_OR_PARTITION:  # its metadata may not be there yet
            raise Broken(f"{self.name}: {E(code).name}")
        return code == E.NONE

    async def fetch(self) -> int | None:
        """The committed offset, if there is an answer."""
        least = self.least
        wanted = OffsetFetchRequestGroup(group_id=self.group_id, topics=[OffsetFetchRequestTopics(name=DATA, partition_indexes=[0])])
        group = (await self.call(OffsetFetchRequest(groups=[wanted]))).groups[0]
        if group.error_code:
            if not self.retries(group.error_code):
                raise Broken(f"{self.name}: {E(group.error_code).name}")
            return None
        found = int(group.topics[0].partitions[0].committed_offset)
        if self.acted and not least <= found <= self.asked:
            raise Broken(f"{self.name}: broker {self.coordinator} has offset {found}; {least} was there, {self.asked} is the last")
        if self.acted:
            self.least = found
        return found


class Member(Client):
    """A member of a group: joins, assigns if it leads, sends heartbeats, and leaves now and then."""

    def __init__(self, shared: SharedState, group_id: str, name: str, seed: int) -> None:
        super().__init__(shared, group_id, name, seed)
        self.forget()
        self.leaves = True

    def forget(self) -> None:
        """Begin again as a new member."""
        self.member_id = ""
        self.generation = -1
        self.synced = False
        self.assigned = False  # it is in an assignment that the coordinator has acknowledged

    async def work(self) -> None:
        if not self.synced:
            code = await (self._join() if self.generation < 0 else self._sync())
        elif self.leaves and self.random.random() < 0.01:
            leaving = LeaveGroupRequest(group_id=self.group_id, members=[MemberIdentity(member_id=self.member_id)])
            code = (await self.call(leaving)).error_code
            if not code:
                self.forget()
                return
        else:
            await self.shared.group.sleep(1.0)
            beat = HeartbeatRequest(group_id=self.group_id, generation_id=self.generation, member_id=self.member_id)
            code = (await self.call(beat)).error_code
        self._judge(code)

    def _judge(self, code: int) -> None:
        if code in (E.REBALANCE_IN_PROGRESS, E.ILLEGAL_GENERATION):
            self.generation, self.synced = -1, False
        elif code == E.UNKNOWN_MEMBER_ID:
            if self.acted and self.assigned and self.member_id not in self.shared.removed:
                raise Broken(f"{self.name}: broker {self.coordinator} does not know {self.member_id}, which no broker has removed")
            self.forget()
        elif self.retries(code):
            self.generation, self.synced = (-1, False) if not self.synced else (self.generation, True)
        elif code not in (E.NONE, E.MEMBER_ID_REQUIRED):
            raise Broken(f"{self.name}: {E(code).name}")

    async def _join(self) -> int:
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\x00\x00\x00\x00\x00\x01\x00\x04data\xff\xff\xff\xff")],
        )
        response = await self.call(request)
        if response.error_code == E.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        elif not response.error_code:
            self.member_id, self.generation = response.member_id, response.generation_id
            self.members = [member.member_id for member in response.members]
            assigned = self.shared.generations.get(self.group_id, 0)
            if self.acted and self.generation < assigned:
                raise Broken(f"{self.name}: generation {self.generation} after {assigned}, which was assigned")
        return int(response.error_code)

    async def _sync(self) -> int:
        assignments = [SyncGroupRequestAssignment(member_id=m, assignment=m.encode()) for m in self.members]
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=assignments,
        )
        response = await self.call(request)
        if not response.error_code:
            if response.assignment != self.member_id.encode():
                raise Broken(f"{self.name}: {response.assignment!r} is not the assignment of {self.member_id}")
            self.synced = self.assigned = True
            self.shared.generations[self.group_id] = max(self.shared.generations.get(self.group_id, 0), self.generation)
        return int(response.error_code)
