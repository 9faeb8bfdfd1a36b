"""The batches of a produce request whose transaction the coordinator has to confirm first (KIP-890)."""

from __future__ import annotations

from typing import NamedTuple

from twisted.internet.defer import Deferred, succeed

from txbroker.cluster.partition import Partition
from txbroker.errors import BrokerError, ErrorCode
from txbroker.transactions.verification import Claim, Operation, TransactionVerifier
from txbroker.wire.batch import HEADER_SIZE, read_header, read_producer

ABORTABLE_VERSION = 11  # of Produce: clients know TRANSACTION_ABORTABLE
ADDING_VERSION = 12  # transactions v2
UNVERIFIED_BYTES_MAX = 64 << 20  # of all batches that wait for transaction coordinators

# The coordinator of a transaction cannot be reached, or is busy. Clients that do not expect these errors of a produce request send it again
# after NOT_ENOUGH_REPLICAS.
_NOT_VERIFIED_YET = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.OPERATION_NOT_ATTEMPTED,
}


class Unverified(Exception):
    """Nothing was appended: the coordinator of the transaction has to be asked first."""

    def __init__(self, partition: Partition, claim: Claim) -> None:
        self.partition = partition
        self.claim = claim


class Verified(NamedTuple):
    """A batch that has waited for a coordinator. `records`: a copy, unless there is an `error`, which says why they are not appended."""

    records: memoryview
    error: BrokerError | None


class ProduceVerification:
    """Of one broker. It bounds the bytes of the batches that wait."""

    def __init__(self, verifier: TransactionVerifier) -> None:
        self._verifier = verifier
        self._waiting_bytes = 0

    def check(self, partition: Partition, records: memoryview, transactional_id: str | None, version: int) -> None:
        """Unverified if the coordinator has to be asked about a transactional batch; BrokerError. `version`: of Produce."""
        if transactional_id is None:
            problem = "a transactional record batch in a produce request without a transactional id"
            raise BrokerError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, problem)
        if len(records) >= HEADER_SIZE and partition.log.producers.has_open_transaction(*read_producer(records)):
            return  # nearly always: the rest of the header is read once, by the append
        header = read_header(records)
        if header.producer_id < 0:
            raise BrokerError(ErrorCode.INVALID_RECORD, "a transactional record batch has no producer id")
        operation = Operation.ADD if version >= ADDING_VERSION else Operation.VERIFY
        claim = Claim(transactional_id, header.producer_id, header.producer_epoch, header.base_sequence, operation)
        if partition.is_leader and self._verifier.is_needed(partition, claim):  # any other broker refuses the append
            raise Unverified(partition, claim)

    def verify(self, unverified: Unverified, records: memoryview, version: int) -> Deferred[Verified]:
        """Ask the coordinator. Fires when the batch may be appended, in the same turn, or with the error; never fails."""
        size = len(records)
        if self._waiting_bytes + size > UNVERIFIED_BYTES_MAX:
            full = BrokerError(ErrorCode.NOT_ENOUGH_REPLICAS, f"{self._waiting_bytes} bytes wait for transaction coordinators")
            return succeed(Verified(records, full))
        self._waiting_bytes += size
        copy = memoryview(bytearray(records))  # they are a view of the frame

        def answered(code: ErrorCode) -> Verified:
            self._waiting_bytes -= size
            return Verified(copy, _not_verified(code, version) if code else None)

        return self._verifier.verify(unverified.partition, unverified.claim).addCallback(answered)


def _not_verified(code: ErrorCode, version: int) -> BrokerError:
    """The error of a batch whose transaction is not verified."""
    if code in _NOT_VERIFIED_YET:
        problem = f"cannot verify yet that the partition belongs to the transaction: {code.name}"
        return BrokerError(ErrorCode.NOT_ENOUGH_REPLICAS, problem)
    if code == ErrorCode.TRANSACTION_ABORTABLE:
        code = code if version >= ABORTABLE_VERSION else ErrorCode.INVALID_TXN_STATE
        return BrokerError(code, "the partition was not added to the transaction")
    return BrokerError(code)
