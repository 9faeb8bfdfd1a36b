"""Appends a coordinator's records to the partition that stores them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.python.failure import Failure

from txbroker.coordinators.shards import Shard
from txbroker.coordinators.state_log import Pair, StateLog, TransactionalProducer
from txbroker.errors import BrokerError, ErrorCode

log = logging.getLogger("txbroker.coordinators")

# The error that a client receives when an append fails with another one, as in Kafka's GroupMetadataManager and TransactionStateManager.
APPEND_ERRORS: dict[ErrorCode, ErrorCode] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
# Failures after which the records are in the log.
AFTER_APPEND = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
# Failures that concern one producer.
_OF_PRODUCER = (ErrorCode.INVALID_PRODUCER_EPOCH,)
TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE)


class ShardWriter:
    """Appends to the log of `topic`, whose records are those of its `keys`, such as `group`."""

    def __init__(self, topic: str, keys: str, state_log: StateLog, now_ms: Callable[[], int]) -> None:
        self._topic = topic
        self._keys = keys
        self._state_log = state_log
        self._now_ms = now_ms

    def append(
        self, shard: Shard[Any], key: str, pairs: list[Pair], producer: TransactionalProducer | None = None
    ) -> Deferred[ErrorCode]:
        """Append the records of one key. Fires with NONE when all in-sync replicas have them, or with the error; never fails."""
        appended = maybeDeferred(self._state_log.append, shard.index, pairs, self._now_ms(), producer)

        def failed(failure: Failure) -> ErrorCode:
            error = failure.value
            if not isinstance(error, BrokerError):
                log.error("%s %s: internal error while appending its records\n%s", self._keys, key, failure.getTraceback())
                return ErrorCode.UNKNOWN_SERVER_ERROR
            if error.code in TOO_LARGE:
                log.warning("%s %s: cannot append its records: %s", self._keys, key, error.described)
            elif error.code not in _OF_PRODUCER and shard.append_error is not error.code:  # clients retry all the time
                shard.append_error = error.code
                log.warning("%s-%d: cannot append the records of its %ss: %s", self._topic, shard.index, self._keys, error.described)
            return error.code

        def succeeded(_: None) -> ErrorCode:
            if shard.append_error:
                shard.append_error = ErrorCode.NONE
                log.info("%s-%d: records of its %ss can be appended again", self._topic, shard.index, self._keys)
            return ErrorCode.NONE

        return appended.addCallbacks(succeeded, failed)
