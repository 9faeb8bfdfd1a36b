"""The transactions of a producer, by their coordinator (KIP-98): with transactions v2 (KIP-890) where the cluster has finalized them.

In v1 the producer adds partitions to a transaction before it writes to them, and keeps its epoch. In v2 the leaders add them, and each end
of a transaction raises the epoch, in which sequence numbers begin at 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from txbroker.client.blocking_connection import BlockingConnection
from txbroker.client.client_machine import ClientSettings
from txbroker.client.coordinator_connection import RETRY_FOR_S, CoordinatorConnection, KeyType
from txbroker.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, AddPartitionsToTxnTopic
from txbroker.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from txbroker.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

# As Kafka's clients after CONCURRENT_TRANSACTIONS: the transaction before is being completed.
RETRY_S = 0.02
FEATURE, V2_LEVEL = "transaction.version", 2
# The newest versions of v1. Later ones are those of v2.
PRODUCE_V1, ADD_V1, END_V1 = 11, 3, 4
_INITIALIZE_VERSION = 5  # later ones are for two-phase commit


class ProducerTransactions:
    """Connects with `initialize`. ClientError from every method; RequestFailed has the coordinator's code, for example PRODUCER_FENCED."""

    def __init__(self, addresses: Sequence[tuple[str, int]], transactional_id: str, settings: ClientSettings) -> None:
        self.transactional_id = transactional_id
        self.producer_id = self.epoch = -1
        self._has_v2 = False
        self._coordinator = CoordinatorConnection(addresses, KeyType.TRANSACTIONAL_ID, transactional_id, settings, RETRY_S)

    @property
    def produce_version_max(self) -> int | None:
        """The newest version of Produce for these transactions; None: any."""
        return None if self._has_v2 else PRODUCE_V1

    def close(self) -> None:
        """Close the connection."""
        self._coordinator.close()

    def initialize(self, timeout_ms: int) -> None:
        """Fence earlier producers with this transactional id. `timeout_ms`: transaction.timeout.ms."""
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=timeout_ms)

        def ask(coordinator: BlockingConnection) -> tuple[int, InitProducerIdResponse]:
            answer: InitProducerIdResponse = coordinator.call(request, version_max=_INITIALIZE_VERSION)
            self._has_v2 = coordinator.machine.features.get(FEATURE, 0) >= V2_LEVEL
            return answer.error_code, answer

        given = self._coordinator.ask(ask, f"transactional id {self.transactional_id} cannot be used")
        self.producer_id, self.epoch = given.producer_id, given.producer_epoch

    def begin(self, topic: str, partitions: Iterable[int]) -> None:
        """Begin a transaction that writes to these partitions."""
        if self._has_v2:
            return
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
        )

        def ask(coordinator: BlockingConnection) -> tuple[int, None]:
            answer: AddPartitionsToTxnResponse = coordinator.call(request, version_max=ADD_V1)
            results = [result for each in answer.results_by_topic_v3_and_below for result in each.results_by_partition]
            return next((result.partition_error_code for result in results if result.partition_error_code), 0), None

        self._coordinator.ask(ask, f"the partitions of {topic} were not added to a transaction of {self.transactional_id}")

    def end(self, *, commit: bool, retry_for_s: float = RETRY_FOR_S) -> None:
        """Commit or abort the open transaction. With v2 the producer has another epoch afterwards, and maybe another id."""
        request = EndTxnRequest(
            transactional_id=self.transactional_id, producer_id=self.producer_id, producer_epoch=self.epoch, committed=commit
        )

        def ask(coordinator: BlockingConnection) -> tuple[int, EndTxnResponse]:
            answer: EndTxnResponse = coordinator.call(request, version_max=None if self._has_v2 else END_V1)
            return answer.error_code, answer

        what = f"a transaction of {self.transactional_id} was not {'committed' if commit else 'aborted'}"
        answer = self._coordinator.ask(ask, what, retry_for_s)
        if self._has_v2:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
