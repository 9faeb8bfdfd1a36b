"""Batches of idempotent producers that a leader has refused for a reason that passes: a full disk, or too few in-sync replicas.

The next batches of such a producer, which were sent meanwhile, do not follow on what is in the log. OUT_OF_ORDER_SEQUENCE_NUMBER would be
right for them, and harmful: librdkafka then begins a new producer epoch in all partitions, and sends batches again that other brokers may
have, which doubles them (`rd_kafka_handle_idempotent_Produce_error`). They get the error of the first batch; clients then send all of them
again, in order. Apache Kafka answers OUT_OF_ORDER_SEQUENCE_NUMBER here.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from txbroker.errors import BrokerError, ErrorCode

PASSING = frozenset({ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR})
PRODUCERS_MAX = 1_000  # of a partition
# A producer has at most five requests in flight. One that sends no earlier batch after so many errors has dropped the refused one.
FOLLOWING_MAX = 4

_MAGIC_POSITION, _MAGIC = 16, 2
_PRODUCER = struct.Struct(">qhi")  # producer id, epoch, base sequence
_PRODUCER_POSITION = 43
_SEQUENCES = 2**31 - 1  # the largest one


class _Refused(NamedTuple):
    epoch: int
    sequence: int
    code: ErrorCode
    left: int  # so many later batches get the same error


class RefusedSequences:
    """The refused batches of a partition's producers, the last one of each."""

    __slots__ = ("_producers",)

    def __init__(self) -> None:
        self._producers: dict[int, _Refused] = {}

    def check(self, records: memoryview) -> None:
        """Raise the error of the refused batch that this one follows on.

        Before the append: a log that does not know the producer accepts any first sequence (KIP-360), and the refused batch never after it.
        """
        producer_id, epoch, sequence = _producer(records)
        refused = self._producers.get(producer_id)
        if refused is None or refused.epoch != epoch or not refused.left or not _follows(sequence, refused.sequence):
            return
        self._producers[producer_id] = refused._replace(left=refused.left - 1)
        problem = f"producer {producer_id}: sequence {sequence} follows on {refused.sequence}, which was refused; send that one first"
        raise BrokerError(refused.code, problem)

    def refuse(self, records: memoryview, code: ErrorCode) -> None:
        """A batch was refused with an error of `PASSING`, by the leader itself."""
        producer_id, epoch, sequence = _producer(records)
        if producer_id < 0 or sequence < 0:
            return
        before = self._producers.get(producer_id)
        if before is not None and before.epoch == epoch and _follows(sequence, before.sequence):
            return
        if before is None and len(self._producers) >= PRODUCERS_MAX:
            del self._producers[next(iter(self._producers))]
        self._producers[producer_id] = _Refused(epoch, sequence, code, FOLLOWING_MAX)

    def appended(self, records: memoryview) -> None:
        """A batch was appended: its producer has sent what was refused, or has begun another epoch."""
        self._producers.pop(_producer(records)[0], None)


def _producer(records: memoryview) -> tuple[int, int, int]:
    """Producer id, epoch and base sequence of a batch; -1 each if it has none."""
    if len(records) < _PRODUCER_POSITION + _PRODUCER.size or records[_MAGIC_POSITION] != _MAGIC:
        return -1, -1, -1
    return _PRODUCER.unpack_from(records, _PRODUCER_POSITION)


def _follows(sequence: int, other: int) -> bool:
    """Whether a sequence comes after another one, of the same epoch; 0 comes after the largest."""
    return 0 < (sequence - other) & _SEQUENCES < _SEQUENCES >> 1
