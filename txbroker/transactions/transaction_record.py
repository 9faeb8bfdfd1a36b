"""What `__transaction_state` stores of a transactional id, in Kafka's format.

    key   = version int16 (0) | TransactionLogKey
    value = version int16 | TransactionLogValue: 0, or 1 for an id whose client uses transactions v2 (KIP-890); no value: a tombstone
"""

from __future__ import annotations

import struct

from txbroker.errors import ProtocolError
from txbroker.lazy_dataclass import lazy_dataclass
from txbroker.names import TopicPartition
from txbroker.transactions.transaction_states import TransactionState
from txbroker.wire.codec import decode, encode_bytes
from txbroker.wire.messages.transaction_log_key import TransactionLogKey
from txbroker.wire.messages.transaction_log_value import PartitionsSchema, TransactionLogValue
from txbroker.wire.schema import Message

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_TIME_MS = -1

_VERSION = struct.Struct(">h")
_KEY_VERSION = 0
_STATES = frozenset(TransactionState) - {TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE}


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class TransactionRecord:
    """The state of one transactional id. Dates are in milliseconds since 1970.

    `producer_epoch`: NO_EPOCH before the first initialization. `next_producer_id`: the id that replaces an exhausted one when the
    transaction is complete; `previous_producer_id`: the one that was replaced. `partitions`: of the open or prepared transaction.
    `version`: the client's transaction version (0: unknown or v1, 2: KIP-890).
    """

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    update_ms: int
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIME_MS
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    version: int = 0


def transaction_key(transactional_id: str) -> bytes:
    """The key of a transactional id."""
    return _framed(_KEY_VERSION, TransactionLogKey(transactional_id=transactional_id))


def transaction_value(record: TransactionRecord) -> bytes:
    """The value of a transactional id. Kafka before 4.0 reads version 0 only, which has no field of transactions v2."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(record.partitions):
        topics.setdefault(topic, []).append(partition)
    partitions = [PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in topics.items()]
    previous_id = record.previous_producer_id
    if record.version and previous_id == NO_PRODUCER_ID:
        previous_id = record.producer_id  # as Kafka writes it if none was replaced
    value = TransactionLogValue(
        producer_id=record.producer_id,
        previous_producer_id=previous_id,
        next_producer_id=record.next_producer_id,
        producer_epoch=record.producer_epoch,
        transaction_timeout_ms=record.timeout_ms,
        transaction_status=record.state,
        # Kafka writes no list for an id that has no transaction yet.
        transaction_partitions=None if record.state is TransactionState.EMPTY else partitions,
        transaction_last_update_timestamp_ms=record.update_ms,
        transaction_start_timestamp_ms=record.start_ms,
        client_transaction_version=record.version,
    )
    return _framed(1 if record.version else 0, value)


def read_key(key: bytes | None) -> str | None:
    """The transactional id; None for a key of an unknown version. ProtocolError for a malformed one."""
    if key is None:
        raise ProtocolError("a record of __transaction_state has no key")
    version, body = _unframed(key)
    return decode(TransactionLogKey, version, body).transactional_id if version == _KEY_VERSION else None


def read_value(data: bytes) -> TransactionRecord:
    """The state in a value. ProtocolError for a malformed or impossible one."""
    version, body = _unframed(data)
    if version not in TransactionLogValue.versions:
        raise ProtocolError(f"unknown version {version} of a transaction's value")
    value = decode(TransactionLogValue, version, body)
    if value.transaction_status not in _STATES:
        raise ProtocolError(f"a transaction is in the impossible state {value.transaction_status}")
    return TransactionRecord(
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=TransactionState(value.transaction_status),
        update_ms=value.transaction_last_update_timestamp_ms,
        partitions=frozenset(
            TopicPartition(topic.topic, partition) for topic in value.transaction_partitions or () for partition in topic.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        previous_producer_id=NO_PRODUCER_ID if value.previous_producer_id == value.producer_id else value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        version=value.client_transaction_version,
    )


def _framed(version: int, message: Message) -> bytes:
    return _VERSION.pack(version) + encode_bytes(message, version)


def _unframed(data: bytes) -> tuple[int, memoryview]:
    if len(data) < _VERSION.size:
        raise ProtocolError("a record of __transaction_state ends within its version")
    return _VERSION.unpack_from(data)[0], memoryview(data)[_VERSION.size :]
