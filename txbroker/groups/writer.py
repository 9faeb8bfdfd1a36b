"""Performs the effects of groups: answers, wake-ups, and records that are appended to `__consumer_offsets`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from twisted.internet.defer import Deferred

from txbroker.clock import Clock
from txbroker.coordinators.keyed_deadlines import KeyedDeadlines, monotonic_ms
from txbroker.coordinators.shard_writer import AFTER_APPEND, APPEND_ERRORS, TOO_LARGE, ShardWriter
from txbroker.coordinators.state_log import Pair, StateLog, TransactionalProducer
from txbroker.errors import ErrorCode
from txbroker.groups.group_effects import AnswerJoin, AnswerSync, Effect, Persist, WakeAt
from txbroker.groups.group_offsets import Write
from txbroker.groups.group_records import group_key, group_value, offset_key, offset_value
from txbroker.groups.group_results import CommittedOffset
from txbroker.groups.group_states import GroupState
from txbroker.groups.hosted_groups import HostedGroup, HostedGroups
from txbroker.names import OFFSETS_TOPIC, TopicPartition

# What a client receives when an append fails.
OFFSET_ERRORS = APPEND_ERRORS | dict.fromkeys(TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
GROUP_ERRORS = (
    APPEND_ERRORS
    | dict.fromkeys(TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR)
    | {ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS}
)


class Writer:
    """Performs each group's effects in their order, and wakes groups at their deadlines."""

    def __init__(self, clock: Clock, now_ms: Callable[[], int], state_log: StateLog) -> None:
        self._clock = clock
        self._shard_writer = ShardWriter(OFFSETS_TOPIC, HostedGroups.keys, state_log, now_ms)
        self._deadlines: KeyedDeadlines[HostedGroup] = KeyedDeadlines(clock, self._wake)

    def perform(self, hosted: HostedGroup) -> None:
        """Perform the group's effects, in order. A call during a call returns at once: the outer one performs its effects too."""
        if hosted.is_performing:
            return
        hosted.is_performing = True
        try:
            effects = hosted.group.effects
            while effects:
                self._do(hosted, effects.popleft())
        finally:
            hosted.is_performing = False
        if hosted.group.state is GroupState.DEAD:
            self._deadlines.cancel(hosted)

    def write_offsets(self, hosted: HostedGroup, write: Write, also: list[Pair] | None = None) -> Deferred[ErrorCode]:
        """Append a write that has begun, and settle it. Fires with the error for the client; never fails.

        It may be cancelled, as when a client disconnects: the write goes on, since its records are in the log.
        """
        group_id = hosted.group.group_id
        pairs = [_offset_pair(group_id, partition, offset) for partition, offset in write.offsets.items()]
        answer: Deferred[ErrorCode] = Deferred()

        def settle(error: ErrorCode) -> None:
            hosted.offsets.settle(write, not error)
            answer.callback(error)

        self._append(hosted, pairs + (also or []), OFFSET_ERRORS).addCallback(settle)
        return answer

    def write_pending_offsets(self, hosted: HostedGroup, write: Write, producer: TransactionalProducer) -> Deferred[ErrorCode]:
        """As `write_offsets`, in a transaction. Offsets that are in the log are pending, also if their client receives an error.

        They count only if their transaction is committed, and its marker is in the log behind them.
        """
        group_id, shard = hosted.group.group_id, hosted.shard
        pairs = [_offset_pair(group_id, partition, offset) for partition, offset in write.offsets.items()]
        answer: Deferred[ErrorCode] = Deferred()

        transactions = shard.content.transactions
        transactions.setdefault(producer.id, set()).add(group_id)

        def settle(error: ErrorCode) -> None:
            hosted.offsets.settle(write, not error or error in AFTER_APPEND)
            if not hosted.offsets.has_transaction(producer.id) and producer.id in transactions:
                transactions[producer.id].discard(group_id)
                if not transactions[producer.id]:
                    del transactions[producer.id]
            answer.callback(OFFSET_ERRORS.get(error, error))

        self._shard_writer.append(shard, group_id, pairs, producer).addCallback(settle)
        return answer

    def stop(self) -> None:
        """Cancel all deadlines."""
        self._deadlines.stop()

    def _do(self, hosted: HostedGroup, effect: Effect) -> None:
        match effect:
            case AnswerJoin(waiter, answer):
                waiter(answer)
            case AnswerSync(waiter, answer):
                waiter(answer)
            case WakeAt(at_ms):
                self._deadlines.set(hosted, at_ms)
            case Persist():
                self._persist(hosted, effect)

    def _persist(self, hosted: HostedGroup, effect: Persist) -> None:
        if hosted.group.state is GroupState.DEAD:
            return
        pair = (group_key(hosted.group.group_id), group_value(effect.record))

        def written(error: ErrorCode) -> None:
            hosted.group.written(effect.then, error, monotonic_ms(self._clock))
            self.perform(hosted)

        self._append(hosted, [pair], GROUP_ERRORS).addCallback(written)

    def _append(self, hosted: HostedGroup, pairs: list[Pair], error_of: Mapping[ErrorCode, ErrorCode]) -> Deferred[ErrorCode]:
        """Fires with NONE, or with the error for the client, which `error_of` may translate."""
        appended = self._shard_writer.append(hosted.shard, hosted.group.group_id, pairs)
        return appended.addCallback(lambda error: error_of.get(error, error))

    def _wake(self, hosted: HostedGroup, due_ms: int) -> None:
        hosted.group.tick(due_ms)
        self.perform(hosted)


def _offset_pair(group_id: str, partition: TopicPartition, offset: CommittedOffset | None) -> Pair:
    return offset_key(group_id, partition), None if offset is None else offset_value(offset)
