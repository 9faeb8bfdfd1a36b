"""The requests of a transactional producer over a raw connection, one by one: what no client library would send, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kafka.protocol.admin import DescribeProducersRequest
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest, OffsetFetchRequest
from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest
from kafka.protocol.producer import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)
from kafka.record.default_records import DefaultRecordBatchBuilder

from tests.support.raw import RawConnection
from tests.support.records import BASE_TIMESTAMP
from tests.support.waiting import until

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
CONCURRENT_TRANSACTIONS = 51
NOT_COORDINATOR_YET = (14, 15, 16)  # loading, not available, not here
NOT_YET = (3, 6, 19)  # the broker does not lead the new partition yet, or the batch cannot be verified yet


class TransactionalProducer(NamedTuple):
    """A transactional id with its producer id and epoch."""

    transactional_id: str
    id: int
    epoch: int


def initialize(connection: RawConnection, transactional_id: str, timeout_ms: int = 60_000) -> TransactionalProducer:
    """InitProducerId, until the coordinator is there and the transaction of an earlier producer has ended."""
    def ask() -> Any:
        found = connection.call(FindCoordinatorRequest(key=transactional_id, key_type=CoordinatorType.TRANSACTION), 2)
        if found.error_code:
            return None
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms, producer_id=-1,
                                        producer_epoch=-1)  # fmt: skip
        given = connection.call(request, 4)
        assert given.error_code in (0, CONCURRENT_TRANSACTIONS, *NOT_COORDINATOR_YET), given
        return given if given.error_code == 0 else None

    given = until(ask, "the producer is initialized")
    return TransactionalProducer(transactional_id, given.producer_id, given.producer_epoch)


def add_partitions(connection: RawConnection, producer: TransactionalProducer, topic: str, *partitions: int) -> int:
    """AddPartitionsToTxn, until the transaction before has ended; the first error code."""
    topics = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=list(partitions or (0,)))
    request = AddPartitionsToTxnRequest(v3_and_below_transactional_id=producer.transactional_id, v3_and_below_producer_id=producer.id,
                                        v3_and_below_producer_epoch=producer.epoch, v3_and_below_topics=[topics])  # fmt: skip

    def ask() -> Any:
        answer = connection.call(request, 3).results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
        return None if answer == CONCURRENT_TRANSACTIONS else answer + 1

    code: int = until(ask, "the partitions are added") - 1
    return code


def batch(producer: TransactionalProducer, sequence: int, *values: bytes) -> bytes:
    """A transactional record batch."""
    builder = DefaultRecordBatchBuilder(2, 0, True, producer.id, producer.epoch, sequence, 1 << 30)
    for offset, value in enumerate(values):
        builder.append(offset, BASE_TIMESTAMP, b"k", value, [])
    return bytes(builder.build())


def produce(
    connection: RawConnection, producer: TransactionalProducer, topic: str, sequence: int, *values: bytes, partition: int = 0,
    version: int = 9,
) -> int:  # fmt: skip
    """Produce one transactional batch, until it can be verified; the error code."""
    topics = ProduceRequest.TopicProduceData

    def ask() -> Any:
        data = topics.PartitionProduceData(index=partition, records=batch(producer, sequence, *values))
        request = ProduceRequest(transactional_id=producer.transactional_id, acks=-1, timeout_ms=30_000,
                                 topic_data=[topics(name=topic, partition_data=[data])])  # fmt: skip
        code = connection.call(request, version).responses[0].partition_responses[0].error_code
        return None if code in NOT_YET else code + 1

    code: int = until(ask, "the batch is verified") - 1
    return code


def write(connection: RawConnection, producer: TransactionalProducer, topic: str, sequence: int, *values: bytes) -> None:
    """Add partition 0 to the transaction and produce one batch."""
    codes = add_partitions(connection, producer, topic), produce(connection, producer, topic, sequence, *values)
    assert codes == (0, 0), codes


def end(connection: RawConnection, producer: TransactionalProducer, *, commit: bool) -> int:
    """EndTxn; the error code."""
    request = EndTxnRequest(transactional_id=producer.transactional_id, producer_id=producer.id, producer_epoch=producer.epoch,
                            committed=commit)  # fmt: skip
    code: int = connection.call(request, 3).error_code
    return code


def commit_offsets(
    connection: RawConnection, producer: TransactionalProducer, group: str, topic: str, offsets: Mapping[int, int], *,
    generation: int = -1, member: str = "", instance: str | None = None, add: bool = True,
) -> dict[int, int]:  # fmt: skip
    """AddOffsetsToTxn and TxnOffsetCommit, until both are served; error codes by partition."""
    def added() -> bool:
        request = AddOffsetsToTxnRequest(transactional_id=producer.transactional_id, producer_id=producer.id, producer_epoch=producer.epoch,
                                         group_id=group)  # fmt: skip
        code = connection.call(request, 3).error_code
        assert code in (0, CONCURRENT_TRANSACTIONS, *NOT_COORDINATOR_YET), code
        return bool(code == 0)

    if add:
        until(added, "the group's partition is added")
    topics = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    partitions = [
        topics.TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_leader_epoch=-1,
                                               committed_metadata="")
        for index, offset in offsets.items()
    ]  # fmt: skip

    def ask() -> Any:
        request = TxnOffsetCommitRequest(
            transactional_id=producer.transactional_id, group_id=group, producer_id=producer.id, producer_epoch=producer.epoch,
            generation_id=generation, member_id=member, group_instance_id=instance,
            topics=[topics(name=topic, partitions=partitions)])  # fmt: skip
        (answer,) = connection.call(request, 3).topics
        codes = {p.partition_index: p.error_code for p in answer.partitions}
        return None if set(codes.values()) & set(NOT_COORDINATOR_YET) else codes

    codes: dict[int, int] = until(ask, "the offsets are committed")
    return codes


def committed(connection: RawConnection, group: str, topic: str, partition: int = 0, *, stable: bool = False) -> tuple[int, int]:
    """The error code and the committed offset of a partition."""
    topics = OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=[partition])
    answer = connection.call(OffsetFetchRequest(group_id=group, topics=[topics], require_stable=stable), 7)
    if answer.error_code:
        return answer.error_code, -1
    (found,) = answer.topics[0].partitions
    return found.error_code, found.committed_offset


class Isolated(NamedTuple):
    """A fetched partition: its last stable offset, its aborted transactions (producer id, first offset), and base offsets."""

    last_stable_offset: int
    high_watermark: int
    aborted: list[tuple[int, int]]
    data: bytes


def fetch(connection: RawConnection, topic: str, offset: int = 0, *, isolation: int = READ_COMMITTED) -> Isolated:
    """Fetch partition 0."""
    topics = FetchRequest.FetchTopic
    part = topics.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, session_epoch=-1, forgotten_topics_data=[],
                           isolation_level=isolation, topics=[topics(topic=topic, partitions=[part])])  # fmt: skip
    found = connection.call(request, 11).responses[0].partitions[0]
    assert found.error_code == 0
    aborted = [(t.producer_id, t.first_offset) for t in found.aborted_transactions or ()]
    return Isolated(found.last_stable_offset, found.high_watermark, aborted, bytes(found.records or b""))


def latest(connection: RawConnection, topic: str, *, isolation: int = READ_COMMITTED, partition: int = 0) -> int:
    """ListOffsets for the end of a partition."""
    topics = ListOffsetsRequest.ListOffsetsTopic
    part = topics.ListOffsetsPartition(partition_index=partition, timestamp=-1, current_leader_epoch=-1)
    request = ListOffsetsRequest(isolation_level=isolation, topics=[topics(name=topic, partitions=[part])])
    offset: int = connection.call(request, 5).topics[0].partitions[0].offset
    return offset


def producers(connection: RawConnection, topic: str) -> dict[int, Any]:
    """DescribeProducers of partition 0: the states by producer id."""
    wanted = DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[0])
    (found,) = connection.call(DescribeProducersRequest(topics=[wanted]), 0).topics[0].partitions
    assert found.error_code == 0
    return {state.producer_id: state for state in found.active_producers}


def mark(
    connection: RawConnection, producer_id: int, epoch: int, topic: str, partitions: Sequence[int] = (0,), *, commit: bool = False,
    coordinator_epoch: int = 0,
) -> list[int]:  # fmt: skip
    """WriteTxnMarkers as an administrator sends it; the error codes."""
    markers = WriteTxnMarkersRequest.WritableTxnMarker
    topics = [markers.WritableTxnMarkerTopic(name=topic, partition_indexes=list(partitions))]
    marker = markers(producer_id=producer_id, producer_epoch=epoch, transaction_result=commit, topics=topics,
                     coordinator_epoch=coordinator_epoch)  # fmt: skip
    (answer,) = connection.call(WriteTxnMarkersRequest(markers=[marker]), 1).markers
    return [p.error_code for t in answer.topics for p in t.partitions]
