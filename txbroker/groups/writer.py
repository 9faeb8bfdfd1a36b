"""Performing what groups decide: answers, wake-ups, and records appended to `__consumer_offsets`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.python.failure import Failure

from txbroker.clock import Clock
from txbroker.errors import BrokerError, ErrorCode
from txbroker.groups.group_effects import AnswerJoin, AnswerSync, Effect, Persist, WakeAt
from txbroker.groups.group_offsets import Write
from txbroker.groups.group_records import group_key, group_value, offset_key, offset_value
from txbroker.groups.group_results import CommittedOffset
from txbroker.groups.group_states import GroupState
from txbroker.groups.offsets_store import OffsetsStore, Pair
from txbroker.groups.shards import Held
from txbroker.groups.timers import Timers, monotonic_ms
from txbroker.names import TopicPartition

log = logging.getLogger("txbroker.groups")

# What a client of a group is told when an append fails, as Kafka translates it.
_APPEND_ERRORS: dict[ErrorCode, ErrorCode] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE)
OFFSET_ERRORS = _APPEND_ERRORS | dict.fromkeys(_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
GROUP_ERRORS = (
    _APPEND_ERRORS
    | dict.fromkeys(_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR)
    | {ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS}
)


class Writer:
    """Performs the effects of groups in the order in which they were decided, and wakes groups."""

    def __init__(self, clock: Clock, now_ms: Callable[[], int], store: OffsetsStore) -> None:
        self._clock = clock
        self._now_ms = now_ms
        self._store = store
        self._timers: Timers[Held] = Timers(clock, self._wake)

    def perform(self, held: Held) -> None:
        """Do what the group wants done. An answer may make its client ask for more at once: that waits for its turn."""
        if held.is_performing:
            return
        held.is_performing = True
        try:
            effects = held.group.effects
            while effects:
                self._do(held, effects.popleft())
        finally:
            held.is_performing = False
        if held.group.state is GroupState.DEAD:
            self._timers.cancel(held)

    def write_offsets(self, held: Held, write: Write, also: list[Pair] | None = None) -> Deferred[ErrorCode]:
        """Append a write that was announced, and settle it. Fires with the error that clients are told; never fails."""
        group_id = held.group.group_id
        pairs = [_offset_pair(group_id, partition, offset) for partition, offset in write.offsets.items()]
        appended = self._append(held, pairs + (also or []), OFFSET_ERRORS)

        def settle(error: ErrorCode) -> ErrorCode:
            held.offsets.settle(write, not error)
            return error

        return appended.addCallback(settle)

    def stop(self) -> None:
        """Wake nobody any more."""
        self._timers.stop()

    def _do(self, held: Held, effect: Effect) -> None:
        match effect:
            case AnswerJoin(waiter, answer):
                waiter(answer)
            case AnswerSync(waiter, answer):
                waiter(answer)
            case WakeAt(at_ms):
                self._timers.set(held, at_ms)
            case Persist():
                self._persist(held, effect)

    def _persist(self, held: Held, effect: Persist) -> None:
        if held.group.state is GroupState.DEAD:
            return
        pair = (group_key(held.group.group_id), group_value(effect.record))

        def written(error: ErrorCode) -> None:
            held.group.written(effect.then, error, monotonic_ms(self._clock))
            self.perform(held)

        self._append(held, [pair], GROUP_ERRORS).addCallback(written)

    def _append(self, held: Held, pairs: list[Pair], told: Mapping[ErrorCode, ErrorCode]) -> Deferred[ErrorCode]:
        """Fires with NONE, or with what clients are told of the failure."""
        appended = maybeDeferred(self._store.append, held.shard.index, pairs, self._now_ms())

        def failed(failure: Failure) -> ErrorCode:
            error = failure.value
            if not isinstance(error, BrokerError):
                log.error("group %s: appending its records failed\n%s", held.group.group_id, failure.getTraceback())
                return ErrorCode.UNKNOWN_SERVER_ERROR
            log.warning("group %s: its records could not be appended: %s: %s", held.group.group_id, error.code.name, error)
            return told.get(error.code, error.code)

        return appended.addCallbacks(lambda _: ErrorCode.NONE, failed)

    def _wake(self, held: Held, due_ms: int) -> None:
        held.group.tick(due_ms)
        self.perform(held)


def _offset_pair(group_id: str, partition: TopicPartition, offset: CommittedOffset | None) -> Pair:
    return offset_key(group_id, partition), None if offset is None else offset_value(offset)
