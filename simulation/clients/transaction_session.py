"""The requests of a transactional producer, each repeated until it is answered, as Kafka's clients do.

With transactions v1 the producer adds partitions to its transaction; with v2 (KIP-890) the leaders do, and EndTxn raises the epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simulation.clients.cluster_client import PASSING, TRANSACTION, ClusterClient
from simulation.clients.contents import record
from simulation.ledger import Ledger
from txbroker.errors import ErrorCode
from txbroker.names import TopicPartition
from txbroker.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from txbroker.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from txbroker.wire.messages.end_txn import EndTxnRequest
from txbroker.wire.messages.init_producer_id import InitProducerIdRequest
from txbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from txbroker.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from txbroker.wire.records import build
from txbroker.wire.schema import Request

RETRY_S = 0.1

_COORDINATOR_MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
_RETRIABLE = frozenset({
    *_COORDINATOR_MOVED, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION,
})  # fmt: skip
_FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING})


class Fenced(Exception):
    """Another producer has the transactional id, or the transaction was open for too long."""


class Abortable(Exception):
    """The transaction must be aborted; then the producer goes on."""


class TransactionSession:
    """One producer, from its InitProducerId on. `problem`: what it waits for, empty while it waits for nothing."""

    def __init__(self, name: str, client: ClusterClient, ledger: Ledger, transactional_id: str, version: int, timeout_ms: int) -> None:
        self.problem = ""
        self.version = version
        self._name = name
        self._client = client
        self._ledger = ledger
        self._id = transactional_id
        self._producer_id = -1
        self._epoch = -1
        self._timeout_ms = timeout_ms
        self._failed = False  # the transaction can only be aborted
        self._sequences: dict[TopicPartition, int] = {}
        self._coordinators: dict[tuple[str, int], int] = {}

    async def initialize(self) -> None:
        """InitProducerId; the second time with the present producer, whose epoch is raised (KIP-360). Fenced."""
        request = InitProducerIdRequest(
            transactional_id=self._id, transaction_timeout_ms=self._timeout_ms, producer_id=self._producer_id, producer_epoch=self._epoch
        )
        response = await self._coordinated(self._id, TRANSACTION, lambda: request, 5, lambda answer: answer.error_code)
        self._take(response.producer_id, response.producer_epoch)

    def _take(self, producer_id: int, epoch: int) -> None:
        self._producer_id, self._epoch = producer_id, epoch
        self._sequences.clear()
        self._failed = False

    async def add_partitions(self, partitions: list[TopicPartition]) -> None:
        """AddPartitionsToTxn. Fenced."""
        indexes: dict[str, list[int]] = {}
        for topic, index in partitions:
            indexes.setdefault(topic, []).append(index)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=of) for name, of in indexes.items()],
        )

        def code(answer: Any) -> int:
            codes = [one.partition_error_code for topic in answer.results_by_topic_v3_and_below for one in topic.results_by_partition]
            return next((one for one in codes if one and one != ErrorCode.OPERATION_NOT_ATTEMPTED), 0)

        await self._coordinated(self._id, TRANSACTION, lambda: request, 3, code)

    async def produce(self, partition: TopicPartition, values: list[bytes], *, once: bool = False) -> int | None:
        """Send a batch until it is acknowledged: its base offset, -1 if that is not known. Fenced, Abortable.

        `once`: None without an answer.
        """
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + len(values)
        timestamp = self._ledger.now_ms()
        records = build(
            [record(i, timestamp, value) for i, value in enumerate(values)],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            transactional=True,
        )
        data = TopicProduceData(name=partition.topic, partition_data=[PartitionProduceData(index=partition.partition, records=records)])
        request = ProduceRequest(transactional_id=self._id, acks=-1, timeout_ms=1500, topic_data=[data])
        while True:
            try:
                leader, _ = await self._client.leader(partition)
                response = await self._client.send(leader, request, version_max=12 if self.version == 2 else 11)
            except PASSING as error:
                self.problem = f"produce to {partition}: {error}"
            else:
                ((answer,),) = (topic.partition_responses for topic in response.responses)
                if answer.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    self.problem = ""
                    return -1 if answer.error_code else answer.base_offset
                self._check(f"produce to {partition}", answer.error_code)
            if once:
                return None
            self._client.forget_leader(partition)
            await self._client.sleep(RETRY_S * (0.5 + self._client.chance.random()))

    async def commit_offset(self, group: str, partition: TopicPartition, offset: int) -> None:
        """TxnOffsetCommit, with v1 after AddOffsetsToTxn. Fenced, Abortable."""
        if self.version == 1:
            adding = AddOffsetsToTxnRequest(
                transactional_id=self._id, producer_id=self._producer_id, producer_epoch=self._epoch, group_id=group
            )
            await self._coordinated(self._id, TRANSACTION, lambda: adding, 4, lambda answer: answer.error_code)
        one = TxnOffsetCommitRequestPartition(partition_index=partition.partition, committed_offset=offset, committed_metadata="")
        request = TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=group,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            topics=[TxnOffsetCommitRequestTopic(name=partition.topic, partitions=[one])],
        )
        version = 5 if self.version == 2 else 4
        await self._coordinated(group, 0, lambda: request, version, lambda answer: answer.topics[0].partitions[0].error_code)

    async def end(self, *, commit: bool) -> None:
        """EndTxn. Fenced.

        With v2 a producer whose transaction was aborted, by its timeout or by another producer, may also be fenced by INVALID_TXN_STATE: an
        abort raises the epoch as an end by the producer itself does.
        """
        request = EndTxnRequest(transactional_id=self._id, producer_id=self._producer_id, producer_epoch=self._epoch, committed=commit)
        version = 5 if self.version == 2 else 4

        def code(answer: Any) -> int:
            fenced = answer.error_code == ErrorCode.INVALID_TXN_STATE and commit and self.version == 2
            return ErrorCode.PRODUCER_FENCED if fenced else int(answer.error_code)

        response = await self._coordinated(self._id, TRANSACTION, lambda: request, version, code)
        if response.producer_id >= 0:
            if (response.producer_id, response.producer_epoch) == (self._producer_id, self._epoch):
                self._ledger.transactions.refused(self._name, f"EndTxn v5 has not raised the epoch {self._epoch}")
            self._take(response.producer_id, response.producer_epoch)
        elif self._failed:  # with v1: what became of the batch is not known, so that its sequence must not be used again
            await self.initialize()

    async def _coordinated(
        self, key: str, kind: int, request: Callable[[], Request], version_max: int, code_of: Callable[[Any], int]
    ) -> Any:
        while True:
            made = request()
            what = f"{type(made).__name__} of {self._id} with epoch {self._epoch}"
            try:
                coordinator = self._coordinators.get((key, kind))
                if coordinator is None:
                    coordinator = self._coordinators[key, kind] = await self._client.coordinator(key, kind)
                response = await self._client.send(coordinator, made, version_max=version_max)
            except PASSING as error:
                self.problem = f"{what}: {error}"
                self._coordinators.pop((key, kind), None)
            else:
                code = code_of(response)
                if not code:
                    self.problem = ""
                    return response
                self._check(what, code)
                if code in _COORDINATOR_MOVED:
                    self._coordinators.pop((key, kind), None)
            await self._client.sleep(RETRY_S * (0.5 + self._client.chance.random()))

    def _check(self, what: str, code: int) -> None:
        """Return if the request may be repeated. Fenced, Abortable."""
        self.problem = f"{what}: {ErrorCode(code).name}"
        if code == ErrorCode.TRANSACTION_ABORTABLE:
            self._failed = True
            raise Abortable(self.problem)
        if code in _FENCED:
            raise Fenced(self.problem)
        if code not in _RETRIABLE:
            self._ledger.transactions.refused(self._name, self.problem)
            raise Fenced(self.problem)
