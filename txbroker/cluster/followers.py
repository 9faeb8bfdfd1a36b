"""What a leader knows of the other replicas of a partition, and the in-sync replicas that follow from it.

Kafka's `Replica` and `PartitionState`. Three sets of in-sync replicas (KIP-497):

- committed: what the controller has confirmed. `acks=all` is refused if it is smaller than min.insync.replicas.
- proposed: what this leader has sent to the controller and has no answer to yet, at most one at a time.
- maximal: both together. The high watermark waits for all of its members, so that it is right whatever the controller decides.

A replica whose broker is not alive, or which the controller knows in another incarnation, is never proposed (KIP-841, KIP-903).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from txbroker.lazy_dataclass import lazy_dataclass

UNKNOWN_OFFSET = -1
UNKNOWN_EPOCH = -1  # brokers of Apache Kafka in ZooKeeper mode send no broker epoch


class SessionUse:
    """When a fetch session was used last, monotonic.

    Its requests name only partitions with changes. They are fetches of its other partitions, too, which are not read for that.
    """

    __slots__ = ("at_s",)

    def __init__(self, at_s: float) -> None:
        self.at_s = at_s


class FollowerFetch(NamedTuple):
    """A fetch of a replica, which has every record below `offset`.

    `log_start_offset` and `broker_epoch`: the replica's, -1 if it does not send them. `leader_end`: this leader's log end offset when the
    fetch was read. `at_s`: monotonic. `session`: the fetch session, None without one.
    """

    replica: int
    offset: int
    leader_end: int
    at_s: float
    log_start_offset: int = UNKNOWN_OFFSET
    broker_epoch: int = UNKNOWN_EPOCH
    session: SessionUse | None = None


class IsrProposal(NamedTuple):
    """A new ISR for the controller: the replicas with their broker epochs, and the state that they replace."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]

    @property
    def members(self) -> frozenset[int]:
        """The replicas."""
        return frozenset(replica for replica, _ in self.isr)


@lazy_dataclass(slots=True)
class FollowerState:
    """One other replica. Times are monotonic, in seconds; `caught_up_s`: the last time at which it had all that the leader had."""

    end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    broker_epoch: int = UNKNOWN_EPOCH
    caught_up_s: float = float("-inf")
    fetched_s: float = float("-inf")
    leader_end_then: int = UNKNOWN_OFFSET  # at the last fetch
    session: SessionUse | None = None  # since the last fetch, in this session, it has everything

    @property
    def last_caught_up_s(self) -> float:
        """The last time at which it had everything."""
        return self.caught_up_s if self.session is None else max(self.caught_up_s, self.session.at_s)

    def freeze(self) -> None:
        """It no longer has everything: its last fetch is that of the session."""
        if self.session is not None:
            self.caught_up_s = self.fetched_s = max(self.fetched_s, self.session.at_s)
            self.session = None

    def is_caught_up(self, leader_end: int, now_s: float, lag_max_s: float) -> bool:
        """Whether it has everything, or had so within replica.lag.time.max.ms."""
        return self.end_offset == leader_end or now_s - self.caught_up_s <= lag_max_s


class Followers:
    """The other replicas while this broker leads in one leader epoch."""

    def __init__(
        self,
        broker_id: int,
        *,
        lag_max_s: Callable[[], float],
        is_eligible: Callable[[int, int], bool],
        epoch_start: int,
    ) -> None:
        """`epoch_start`: the first offset of this leader epoch. `is_eligible(replica, broker epoch)`: whether that incarnation is alive.

        `apply` must follow.
        """
        self._broker_id = broker_id
        self._lag_max_s = lag_max_s
        self._is_eligible = is_eligible
        self._epoch_start = epoch_start
        self._states: dict[int, FollowerState] = {}
        self._partition_epoch = UNKNOWN_EPOCH
        self._leader_epoch = UNKNOWN_EPOCH
        self.committed: frozenset[int] = frozenset()
        self.proposed: IsrProposal | None = None

    def apply(self, *, leader_epoch: int, partition_epoch: int, isr: Iterable[int], replicas: Iterable[int], now_s: float) -> None:
        """Take the controller's state. It voids a proposal, whose answer is ignored when it comes (KAFKA-12686)."""
        self._leader_epoch = leader_epoch
        self._partition_epoch = partition_epoch
        self.committed = frozenset(isr)
        self.proposed = None
        others = [replica for replica in dict.fromkeys([*replicas, *isr]) if replica != self._broker_id]
        before, self._states = self._states, {}
        for replica in others:
            state = self._states[replica] = before.get(replica) or FollowerState()
            # A member of the ISR has replica.lag.time.max.ms for its next fetch; any other one has to show that it is caught up.
            state.caught_up_s = state.fetched_s = now_s if replica in self.committed else float("-inf")

    @property
    def maximal(self) -> frozenset[int]:
        """The replicas for which the high watermark waits at least."""
        return self.committed if self.proposed is None else self.committed | self.proposed.members

    def state(self, replica: int) -> FollowerState | None:
        """What is known of a replica."""
        return self._states.get(replica)

    def fetched(self, fetch: FollowerFetch) -> bool:
        """Take what a fetch shows. Returns False for no replica, and for a fetch from before the restart of its broker (KAFKA-15221)."""
        state = self._states.get(fetch.replica)
        if state is None or UNKNOWN_EPOCH < fetch.broker_epoch < state.broker_epoch:
            return False
        if state.session is not fetch.session:
            state.freeze()
        if fetch.offset >= fetch.leader_end:
            state.caught_up_s = max(state.caught_up_s, fetch.at_s)
        elif fetch.offset >= state.leader_end_then != UNKNOWN_OFFSET:
            # It has now what the leader had at the fetch before: then it was caught up, though records keep coming.
            state.caught_up_s = max(state.caught_up_s, state.fetched_s)
        state.session = fetch.session if fetch.offset == fetch.leader_end else None
        state.end_offset = fetch.offset
        if fetch.log_start_offset != UNKNOWN_OFFSET:
            state.log_start_offset = fetch.log_start_offset
        state.broker_epoch = max(state.broker_epoch, fetch.broker_epoch)
        state.fetched_s = fetch.at_s
        state.leader_end_then = fetch.leader_end
        return True

    def appended(self) -> None:
        """The leader's end has moved: no replica has everything."""
        for state in self._states.values():
            state.freeze()

    def high_watermark(self, own_end: int, settled_end: int, now_s: float) -> int:
        """The offset below which every replica that counts has all records; UNKNOWN_OFFSET if one of them has not fetched yet.

        Beside the maximal ISR a replica counts that is caught up and may join: otherwise a partition with a constant load would move the
        high watermark ahead of it again and again, and it would never join. `settled_end`: this replica's.
        """
        maximal, lag_max_s = self.maximal, self._lag_max_s()
        return min(
            [settled_end]
            + [
                state.end_offset
                for replica, state in self._states.items()
                if replica in maximal
                or (state.is_caught_up(own_end, now_s, lag_max_s) and self._is_eligible(replica, state.broker_epoch))
            ]
        )

    def low_watermark(self, own_start: int) -> int:
        """The smallest log start offset of the replicas whose brokers are alive (KIP-107); UNKNOWN_OFFSET if one has not sent it."""
        alive = [state for replica, state in self._states.items() if self._is_eligible(replica, state.broker_epoch)]
        return min([own_start, *(state.log_start_offset for state in alive)])

    def readable(self, offset: int) -> list[tuple[int, FollowerState]]:
        """The replicas from which a consumer may read at `offset`: those of the committed ISR whose logs have it, or end there."""
        return [
            (replica, state)
            for replica, state in self._states.items()
            if replica in self.committed and state.log_start_offset <= offset <= state.end_offset
        ]

    def propose_join(self, replica: int, high_watermark: int) -> IsrProposal | None:
        """The ISR with a replica that has caught up to the high watermark and to this leader epoch; None if it may not join now."""
        state = self._states.get(replica)
        if (
            self.proposed is not None
            or state is None
            or replica in self.committed
            or state.end_offset < max(high_watermark, self._epoch_start)  # KAFKA-7128
            or not self._is_eligible(replica, state.broker_epoch)
        ):
            return None
        return self._propose(self.committed | {replica})

    def propose_leave(self, own_end: int, now_s: float) -> IsrProposal | None:
        """The ISR without the replicas that were not caught up for replica.lag.time.max.ms; None if all are."""
        if self.proposed is not None:
            return None
        lag_max_s = self._lag_max_s()
        lagging = {
            replica
            for replica in self.committed
            if (state := self._states.get(replica)) is not None and not state.is_caught_up(own_end, now_s, lag_max_s)
        }
        return self._propose(self.committed - lagging) if lagging else None

    def propose_only(self, allowed: Collection[int]) -> IsrProposal | None:
        """The ISR without the replicas that are not allowed; None if all are, or a proposal has no answer yet."""
        if self.proposed is not None or self.committed <= {self._broker_id, *allowed}:
            return None
        return self._propose(self.committed & {self._broker_id, *allowed})

    def _propose(self, isr: frozenset[int]) -> IsrProposal:
        epochs = {replica: state.broker_epoch for replica, state in self._states.items()}
        members = tuple((replica, epochs.get(replica, UNKNOWN_EPOCH)) for replica in sorted(isr))
        self.proposed = IsrProposal(self._leader_epoch, self._partition_epoch, members)
        return self.proposed

    def withdraw(self, proposal: IsrProposal) -> bool:
        """The controller has refused a proposal and the committed ISR holds; False if it is not the current one."""
        if proposal is not self.proposed:
            return False
        self.proposed = None
        return True
