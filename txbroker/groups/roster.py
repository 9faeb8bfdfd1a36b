"""The members of a group: their protocols and votes, static instances, the leader."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from txbroker.groups.group_effects import JoinWaiter, MemberRecord, SyncWaiter
from txbroker.groups.group_results import JoinedMember, Protocol
from txbroker.lazy_dataclass import lazy_dataclass


@lazy_dataclass(slots=True, kw_only=True, eq=False)
class Member:
    """One member. Its session ends at `deadline_ms` (monotonic), unless it waits for our answer (`is_watched`)."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[Protocol, ...]
    deadline_ms: int
    assignment: bytes = b""
    is_new: bool = False  # not yet part of a generation: its wait in JoinGroup is limited too
    awaiting_join: JoinWaiter | None = None
    awaiting_sync: SyncWaiter | None = None

    @classmethod
    def restored(cls, record: MemberRecord, protocol_name: str | None, monotonic_ms: int) -> Member:
        """The member that a record describes; its session starts now."""
        return cls(
            member_id=record.member_id,
            group_instance_id=record.group_instance_id,
            client_id=record.client_id,
            client_host=record.client_host,
            rebalance_timeout_ms=record.rebalance_timeout_ms,
            session_timeout_ms=record.session_timeout_ms,
            protocols=(Protocol(name=protocol_name or "", metadata=record.subscription),),
            deadline_ms=monotonic_ms + record.session_timeout_ms,
            assignment=record.assignment,
        )

    @property
    def is_static(self) -> bool:
        """Whether it has a group.instance.id (KIP-345)."""
        return self.group_instance_id is not None

    @property
    def is_watched(self) -> bool:
        """Whether its deadline counts: a member that waits for our answer does not have to send heartbeats."""
        return self.is_new or (self.awaiting_join is None and self.awaiting_sync is None)

    def metadata(self, protocol_name: str | None) -> bytes:
        """Its subscription for one protocol; empty if it does not support it."""
        return next((p.metadata for p in self.protocols if p.name == protocol_name), b"")


class Roster:
    """The members of one group, in the order in which they joined."""

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self.leader: str | None = None
        self._instances: dict[str, str] = {}  # group.instance.id -> member id
        self._supporters: Counter[str] = Counter()  # protocol name -> number of members that support it
        self.joined_count = 0  # members whose JoinGroup is waiting

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self.members.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self.members

    def __getitem__(self, member_id: str) -> Member:
        return self.members[member_id]

    def get(self, member_id: str) -> Member | None:
        """The member with this id, if any."""
        return self.members.get(member_id)

    def instance(self, group_instance_id: str) -> str | None:
        """The current member id of a static instance."""
        return self._instances.get(group_instance_id)

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of all members."""
        return max((m.rebalance_timeout_ms for m in self), default=0)

    def add(self, member: Member) -> None:
        """Add a member; the first becomes leader."""
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self._instances[member.group_instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self._supporters.update(_names(member.protocols))
        self.joined_count += member.awaiting_join is not None

    def remove(self, member: Member) -> None:
        """Remove a member that waits for no answer; if it was the leader, the first other member becomes leader."""
        del self.members[member.member_id]
        if member.group_instance_id is not None:
            self._instances.pop(member.group_instance_id, None)
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)
        self._withdraw(member.protocols)

    def rename(self, member: Member, member_id: str) -> None:
        """Give a static member a new id; it stays the leader if it was."""
        del self.members[member.member_id]
        if self.leader == member.member_id:
            self.leader = member_id
        member.member_id = member_id
        self.members[member_id] = member
        if member.group_instance_id is not None:
            self._instances[member.group_instance_id] = member_id

    def update(self, member: Member, protocols: tuple[Protocol, ...], rebalance_timeout_ms: int, session_timeout_ms: int) -> None:
        """Set what a member has sent with its last JoinGroup."""
        self._withdraw(member.protocols)
        member.protocols = protocols
        self._supporters.update(_names(protocols))
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def await_join(self, member: Member, waiter: JoinWaiter | None) -> JoinWaiter | None:
        """Set the waiter for the member's JoinGroup answer; returns the previous one."""
        before = member.awaiting_join
        member.awaiting_join = waiter
        self.joined_count += (waiter is not None) - (before is not None)
        return before

    def supports(self, protocols: Iterable[Protocol]) -> bool:
        """Whether at least one of these protocols is supported by every member."""
        return any(self._supporters[p.name] == len(self) for p in protocols)

    def select_protocol(self) -> str:
        """The protocol with the most votes: each member votes for the first in its list that all members support."""
        candidates = {name for name, count in self._supporters.items() if count == len(self)}
        votes = Counter(next(p.name for p in m.protocols if p.name in candidates) for m in self)
        return votes.most_common(1)[0][0]

    def elect_joined_leader(self) -> bool:
        """Make a member that has joined the leader, unless the leader has; False if none has."""
        if self.leader is not None and self[self.leader].awaiting_join is not None:
            return True
        joined = next((m for m in self if m.awaiting_join is not None), None)
        if joined is None:
            return False
        self.leader = joined.member_id
        return True

    def joined(self, protocol_name: str | None) -> tuple[JoinedMember, ...]:
        """All members, for the leader's JoinGroup answer."""
        return tuple(
            JoinedMember(member_id=m.member_id, group_instance_id=m.group_instance_id, metadata=m.metadata(protocol_name)) for m in self
        )

    def records(self, protocol_name: str | None, assignments: dict[str, bytes]) -> tuple[MemberRecord, ...]:
        """All members, for the group's record."""
        return tuple(
            MemberRecord(
                member_id=m.member_id,
                group_instance_id=m.group_instance_id,
                client_id=m.client_id,
                client_host=m.client_host,
                rebalance_timeout_ms=m.rebalance_timeout_ms,
                session_timeout_ms=m.session_timeout_ms,
                subscription=m.metadata(protocol_name),
                assignment=assignments[m.member_id],
            )
            for m in self
        )

    def _withdraw(self, protocols: tuple[Protocol, ...]) -> None:
        for name in _names(protocols):
            self._supporters[name] -= 1
            if not self._supporters[name]:
                del self._supporters[name]


def _names(protocols: tuple[Protocol, ...]) -> set[str]:
    return {p.name for p in protocols}
