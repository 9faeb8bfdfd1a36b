"""Requests of a transaction whose client does not wait for the answer."""

from __future__ import annotations

from twisted.internet.defer import CancelledError, FirstError
from twisted.python.failure import Failure

from tests.api.test_metadata_answers import update
from tests.support.unhandled import no_unhandled_errors
from tests.transactions.coordinator_harness import TransactionHarness
from txbroker.api.transaction_requests import AddPartitionsToTxnHandler
from txbroker.cluster.image import ClusterImage
from txbroker.names import TopicPartition
from txbroker.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)


def test_partitions_are_added_also_if_the_client_disconnects_meanwhile() -> None:
    image = ClusterImage()
    update(image)
    harness = TransactionHarness().loaded()
    producer = harness.initialize()
    harness.log.hold = True
    transaction = AddPartitionsToTxnTransaction(
        transactional_id="t", producer_id=producer.id, producer_epoch=producer.epoch, verify_only=False,
        topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])])  # fmt: skip
    ended: list[object] = []

    def note_end(failure: Failure) -> None:
        assert isinstance(failure.value, FirstError)
        ended.append(failure.value.subFailure.check(CancelledError))

    with no_unhandled_errors():
        adding = AddPartitionsToTxnHandler(harness.coordinator, image).add(AddPartitionsToTxnRequest(transactions=[transaction]))
        adding.addErrback(note_end)
        adding.cancel()
        del adding
    assert ended == [CancelledError]
    harness.log.complete()
    assert harness.coordinator.verify("t", producer, [TopicPartition("t", 0)]) == {TopicPartition("t", 0): True}
