"""Batches of idempotent producers that this broker has refused for a reason that passes.

It does not lead the partition yet, its disk is full, or there are too few in-sync replicas. The next batches of such a producer, which were
sent meanwhile, may arrive when the reason has passed. A log that does not know the producer accepts any first sequence (KIP-360), and then
never the refused one: the producer stops. A log that knows the producer answers OUT_OF_ORDER_SEQUENCE_NUMBER, which is harmful, too:
librdkafka then begins a new producer epoch in all partitions, and sends batches again that other brokers may have, which doubles them
(`rd_kafka_handle_idempotent_Produce_error`). So these batches get the error of the refused one; clients then send all of them again, in
order. Apache Kafka accepts or refuses them as its log does.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from txbroker.errors import BrokerError, ErrorCode
from txbroker.log.producers import NO_SEQUENCE, ProducerStates
from txbroker.names import TOPIC_NAME_LENGTH_MAX, TopicPartition

PASSING = frozenset({
    ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
})  # fmt: skip
BATCHES_MAX = 10_000  # of a broker; each has some 300 bytes, and up to as much for the name of an unknown topic
# A producer that has not sent a refused batch again after this time, the default of clients' delivery.timeout.ms, has dropped it.
KEPT_S = 120.0
# A producer has at most five requests in flight. One that sends no earlier batch after so many errors has dropped the refused one.
FOLLOWING_MAX = 4

# The default of clients' request.timeout.ms: a client waits no longer for the answer of the previous leader.
PREVIOUS_LEADER_S = 30.0

_MAGIC_POSITION, _MAGIC = 16, 2
_PRODUCER = struct.Struct(">qhi")  # producer id, epoch, base sequence
_PRODUCER_POSITION = 43
_SEQUENCES = 2**31 - 1  # the largest one


class _Refused(NamedTuple):
    epoch: int
    sequence: int
    code: ErrorCode
    left: int  # so many later batches get the same error
    refused_at_s: float


class RefusedSequences:
    """The refused batches, the first one of each producer and partition. A topic that this broker does not know yet is named by its id.

    `batches`: by topic, partition and producer id, the oldest first. Appends call `check` only if there are any.
    """

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self.batches: dict[tuple[str | bytes, int, int], _Refused] = {}
        self._monotonic_s = monotonic_s

    def check(self, topic_partition: TopicPartition, topic_id: bytes, producers: ProducerStates, records: memoryview) -> None:
        """Raise the error of the refused batch that this one follows on, unless the log has that one now. To be called before an append."""
        producer_id, epoch, sequence = _producer(records)
        self._forget_old()
        topic, partition = topic_partition
        for named in (topic, topic_id):
            key = named, partition, producer_id
            refused = self.batches.get(key)
            if refused is None or refused.epoch > epoch:
                continue
            if refused.epoch < epoch or _has(producers, producer_id, refused):
                del self.batches[key]
            elif refused.left and _follows(sequence, refused.sequence):
                self.batches[key] = refused._replace(left=refused.left - 1)
                problem = f"sequence {sequence} follows on {refused.sequence}, which was refused; send that one first"
                raise BrokerError(refused.code, f"producer {producer_id}: {problem}")

    def refuse(
        self, topic: str | bytes, partition: int, records: memoryview, code: ErrorCode, producers: ProducerStates | None = None
    ) -> None:
        """A batch was refused with an error of `PASSING`. `producers`: of the partition's log, if there is one here."""
        producer_id, epoch, sequence = _producer(records)
        if producer_id < 0 or sequence < 0 or len(topic) > TOPIC_NAME_LENGTH_MAX:
            return
        self._forget_old()
        key = topic, partition, producer_id
        before = self.batches.get(key)
        if before is not None:
            has_gone_on = producers is not None and _has(producers, producer_id, before)
            if before.epoch == epoch and _follows(sequence, before.sequence) and not has_gone_on:
                return
            del self.batches[key]  # the new one is the newest
        elif len(self.batches) >= BATCHES_MAX:
            del self.batches[next(iter(self.batches))]
        self.batches[key] = _Refused(epoch, sequence, code, FOLLOWING_MAX, self._monotonic_s())

    def _forget_old(self) -> None:
        oldest_s = self._monotonic_s() - KEPT_S
        while self.batches:
            key = next(iter(self.batches))
            if self.batches[key].refused_at_s >= oldest_s:
                return
            del self.batches[key]


def check_first_batch(producers: ProducerStates, records: memoryview) -> None:
    """NOT_LEADER_OR_FOLLOWER for a batch of an unknown producer whose sequence is not 0.

    To be called in the first `PREVIOUS_LEADER_S` of a leader epoch. The producer's first batches may wait at the previous leader, which has
    not replicated them, and will be sent again: clients send the next batch to the new leader meanwhile. Apache Kafka accepts
    that batch, and then never the first ones. The next batch of a producer that has expired in this log has no earlier ones.
    """
    producer_id, epoch, sequence = _producer(records)
    is_unknown = producer_id >= 0 and sequence > 0 and producers.get(producer_id) is None
    if is_unknown and not producers.follows_expired(producer_id, epoch, sequence):
        problem = f"producer {producer_id} begins with sequence {sequence}; earlier ones may wait at the previous leader: send them first"
        raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, problem)


def _producer(records: memoryview) -> tuple[int, int, int]:
    """Producer id, epoch and base sequence of a batch; -1 each if it has none."""
    if len(records) < _PRODUCER_POSITION + _PRODUCER.size or records[_MAGIC_POSITION] != _MAGIC:
        return -1, -1, -1
    return _PRODUCER.unpack_from(records, _PRODUCER_POSITION)


def _has(producers: ProducerStates, producer_id: int, refused: _Refused) -> bool:
    """Whether the log has the refused batch, which may have come from another leader, or a newer epoch of its producer."""
    state = producers.get(producer_id)
    if state is None or state.epoch < refused.epoch:
        return False
    return state.epoch > refused.epoch or (state.last_sequence != NO_SEQUENCE and not _follows(refused.sequence, state.last_sequence))


def _follows(sequence: int, other: int) -> bool:
    """Whether a sequence comes after another one, of the same epoch; 0 comes after the largest."""
    return 0 < (sequence - other) & _SEQUENCES < _SEQUENCES >> 1
