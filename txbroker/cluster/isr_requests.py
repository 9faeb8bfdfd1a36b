"""Sends the ISR changes of leaders to the controller (Kafka's AlterPartitionManager, KIP-497).

One request is in flight at a time; what is proposed meanwhile goes into the next one, so that a broker whose followers all stop sends a
request, not thousands. A request that fails is repeated with what is still proposed then: a newer state from the controller voids a
proposal, and its answer is ignored.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.python.failure import Failure

from txbroker.clock import Clock
from txbroker.cluster.followers import UNKNOWN_EPOCH, IsrProposal
from txbroker.cluster.partition import Partition
from txbroker.errors import ErrorCode, error_name
from txbroker.names import TopicPartition, amount
from txbroker.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    PartitionDataResult,
    TopicData,
)

RETRY_S = 0.05  # Kafka's pause
DEFECT_RETRY_S = 1.0
PARTITIONS_MAX = 10_000  # of one request

# A newer state than the proposal's exists, or is being made: the request that brings it ends the proposal.
_SUPERSEDED = frozenset({
    ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.NEW_LEADER_ELECTED, ErrorCode.OPERATION_NOT_ATTEMPTED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID,
})  # fmt: skip
_REFUSED = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.INVALID_REQUEST})

log = logging.getLogger("txbroker.cluster.isr")

Send = Callable[[AlterPartitionRequest], Deferred[AlterPartitionResponse]]


class IsrRequests:
    """The proposals of this broker's partitions. `broker_epoch`: of this broker's registration, -1 before it."""

    _send: Send

    def __init__(self, broker_id: int, clock: Clock) -> None:
        """`begin` must follow before the first proposal."""
        self.broker_epoch = UNKNOWN_EPOCH
        self._broker_id = broker_id
        self._clock = clock
        self._waiting: dict[TopicPartition, tuple[Partition, IsrProposal]] = {}
        self._in_flight = False
        self._stopped = False
        self._failing = False  # the last request failed, which has been logged

    def begin(self, broker_epoch: int, send: Send) -> None:
        """This broker is registered. `send` reaches the controller; its Deferred fails while there is none."""
        self.broker_epoch = broker_epoch
        self._send = send

    def propose(self, partition: Partition, proposal: IsrProposal) -> None:
        """Send a proposal, with others of the same turn."""
        self._waiting[partition.topic_partition] = partition, proposal
        if not self._in_flight:
            self._in_flight = True
            self._clock.callLater(0, self._next)

    def stop(self) -> None:
        """Send no further request."""
        self._stopped = True
        self._waiting.clear()

    def _next(self) -> None:
        """Send what waits and is still proposed."""
        sent: dict[TopicPartition, tuple[Partition, IsrProposal]] = {}
        while self._waiting and len(sent) < PARTITIONS_MAX:
            name = next(iter(self._waiting))
            partition, proposal = self._waiting.pop(name)
            if partition.has_proposed(proposal):
                sent[name] = partition, proposal
        if not sent or self._stopped:
            self._in_flight = False
            return
        answer = maybeDeferred(lambda: self._send(self._request(sent)))
        answer.addCallbacks(lambda response: self._answered(sent, response), lambda failure: self._failed(sent, failure))
        answer.addErrback(lambda failure: self._defect(sent, failure))

    def _request(self, sent: dict[TopicPartition, tuple[Partition, IsrProposal]]) -> AlterPartitionRequest:
        topics: dict[str, TopicData] = {}
        for (name, index), (partition, proposal) in sent.items():
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = TopicData(topic_name=name, topic_id=partition.log.topic_id, partitions=[])
            topic.partitions.append(
                PartitionData(
                    partition_index=index,
                    leader_epoch=proposal.leader_epoch,
                    new_isr_with_epochs=[BrokerState(broker_id=replica, broker_epoch=epoch) for replica, epoch in proposal.isr],
                    partition_epoch=proposal.partition_epoch,
                )
            )
        return AlterPartitionRequest(broker_id=self._broker_id, broker_epoch=self.broker_epoch, topics=list(topics.values()))

    def _answered(self, sent: dict[TopicPartition, tuple[Partition, IsrProposal]], response: AlterPartitionResponse) -> None:
        if response.error_code:
            self._retry(sent, error_name(response.error_code))
            return
        ids = {partition.log.topic_id: name.topic for name, (partition, _) in sent.items()}
        unanswered = dict(sent)
        for topic in response.topics:
            topic_name = topic.topic_name or ids.get(topic.topic_id, "")
            for result in topic.partitions:
                found = unanswered.pop(TopicPartition(topic_name, result.partition_index), None)
                if found is not None and not self._apply(*found, result):
                    unanswered[found[0].topic_partition] = found
        if unanswered:
            self._retry(unanswered, "no answer for some partitions")
        else:
            self._failing = False
            self._next()

    def _apply(self, partition: Partition, proposal: IsrProposal, result: PartitionDataResult) -> bool:
        """Apply one answer; False if the proposal is to be sent again."""
        if result.error_code == ErrorCode.NONE:
            log.info("%s: the ISR is %s", partition.topic_partition, ",".join(map(str, result.isr)))
            partition.isr_confirmed(proposal, tuple(result.isr), result.partition_epoch)
            return True
        if result.error_code in _SUPERSEDED:
            return True
        if result.error_code in _REFUSED:
            code = error_name(result.error_code)
            log.warning("%s: the controller refuses the ISR %s (%s)", partition.topic_partition, sorted(proposal.members), code)
            partition.isr_refused(proposal)
            return True
        return False

    def _failed(self, sent: dict[TopicPartition, tuple[Partition, IsrProposal]], failure: Failure) -> None:
        self._retry(sent, failure.getErrorMessage())

    def _defect(self, sent: dict[TopicPartition, tuple[Partition, IsrProposal]], failure: Failure) -> None:
        log.error("internal error: a response to AlterPartition could not be applied: %s", failure.getTraceback())
        self._waiting = {**sent, **self._waiting}
        self._clock.callLater(DEFECT_RETRY_S, self._next)

    def _retry(self, sent: dict[TopicPartition, tuple[Partition, IsrProposal]], reason: str) -> None:
        if not self._failing:
            self._failing = True
            log.info("the ISR changes of %s are sent again until the controller answers: %s", amount(len(sent), "partition"), reason)
        self._waiting = {**sent, **self._waiting}
        self._clock.callLater(RETRY_S, self._next)
