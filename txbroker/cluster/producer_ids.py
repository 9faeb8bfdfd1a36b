"""Producer ids: unique in the cluster, assigned by each broker from blocks of its own (KIP-98)."""

from __future__ import annotations

import logging
from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from txbroker.cluster import node_paths
from txbroker.cluster.node_data import ProducerIdBlock, decode_producer_id_block
from txbroker.cluster.tree.interface import BadVersion, ConnectionLost, NoSpaceInStore, Refused, SessionExpired, Tree
from txbroker.errors import BrokerError, ErrorCode
from txbroker.names import amount

log = logging.getLogger("txbroker.cluster")

BLOCK_SIZE = 1000  # Kafka's ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE
PRODUCER_ID_MAX = 2**63 - 1


def allocate_block(tree: Tree, broker_id: int) -> Deferred[ProducerIdBlock]:
    """Allocate the next block for a broker, durably, before any of its ids is used: the controller's part of AllocateProducerIds."""
    return Deferred.fromCoroutine(_allocate_block(tree, broker_id))


async def _allocate_block(tree: Tree, broker_id: int) -> ProducerIdBlock:
    while True:
        data, stat = await tree.get(node_paths.PRODUCER_ID_BLOCK)
        start = 0 if data is None else decode_producer_id_block(data).end + 1
        if start > PRODUCER_ID_MAX - BLOCK_SIZE:
            raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids have been used.")
        block = ProducerIdBlock(broker_id, start, start + BLOCK_SIZE - 1)
        try:
            await tree.set(node_paths.PRODUCER_ID_BLOCK, block.encode(), stat.version)
        except BadVersion:
            continue  # another broker has allocated this block
        return block


class ProducerIds:
    """Assigns ids block by block; `allocate` requests a block from the controller."""

    def __init__(self, allocate: Callable[[], Deferred[ProducerIdBlock]]) -> None:
        self._allocate = allocate
        self._next = 0
        self._end = -1
        self._waiting: list[Deferred[int]] = []
        self._allocating = False

    def next_id(self) -> Deferred[int]:
        """A new id. When no block can be allocated now: KAFKA_STORAGE_ERROR if the disk is full,
        UNKNOWN_SERVER_ERROR if ZooKeeper refuses it, else COORDINATOR_LOAD_IN_PROGRESS.
        """
        result: Deferred[int] = Deferred()
        self._waiting.append(result)
        self._serve()
        return result

    def _serve(self) -> None:
        while self._waiting and self._next <= self._end:
            producer_id, self._next = self._next, self._next + 1
            self._waiting.pop(0).callback(producer_id)
        if self._waiting and not self._allocating:
            self._allocating = True
            self._allocate().addCallbacks(self._take, self._refuse)

    def _take(self, block: ProducerIdBlock) -> None:
        self._allocating = False
        self._next, self._end = block.start, block.end
        self._serve()

    def _refuse(self, failure: Failure) -> None:
        self._allocating = False
        waiting, self._waiting = self._waiting, []
        problem = f"{type(failure.value).__name__}: {failure.getErrorMessage()}"
        code, level = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, logging.ERROR
        if failure.check(NoSpaceInStore):  # which the tree has logged
            code, level = ErrorCode.KAFKA_STORAGE_ERROR, logging.DEBUG
        elif failure.check(Refused):  # as Kafka: producers do not repeat it
            code, problem = ErrorCode.UNKNOWN_SERVER_ERROR, failure.getErrorMessage()
        elif failure.check(ConnectionLost, SessionExpired):
            level = logging.WARNING
        log.log(level, "failed to allocate a block of producer ids for %s: %s", amount(len(waiting), "producer"), problem)
        for result in waiting:
            result.errback(BrokerError(code, f"No block of producer ids could be allocated: {problem}"))
