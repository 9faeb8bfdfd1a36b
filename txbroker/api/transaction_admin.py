"""DescribeTransactions and ListTransactions (keys 65, 66): the transactional ids that this broker coordinates (KIP-664).

Version notes: ListTransactions v1 has a filter by duration (KIP-994). v2 has one by a regular expression (KIP-1152), and is served where
the library for it is installed (`linear_patterns.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from txbroker.api import linear_patterns
from txbroker.api.request_context import RequestContext
from txbroker.api.resources import AclOperation, AclResource, Rights, in_place, on_each
from txbroker.errors import BrokerError, ErrorCode
from txbroker.transactions.coordinator import TransactionCoordinator
from txbroker.transactions.transaction_record import TransactionRecord
from txbroker.transactions.transaction_states import TransactionState
from txbroker.wire.messages import list_transactions
from txbroker.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
)
from txbroker.wire.messages.describe_transactions import TransactionState as DescribedTransaction
from txbroker.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from txbroker.wire.schema import Request, VersionRange

PATTERN_VERSION = 2  # of ListTransactions

_TITLES = frozenset(state.title for state in TransactionState)
_NO_RECORD = TransactionRecord(producer_id=-1, producer_epoch=-1, timeout_ms=0, state=TransactionState.DEAD, update_ms=-1)


class DescribeTransactionsHandler:
    """Transactional ids with their transactions."""

    request: type[Request] = DescribeTransactionsRequest
    rights: Rights = ((AclOperation.DESCRIBE, AclResource.TRANSACTIONAL_ID), (AclOperation.DESCRIBE, AclResource.TOPIC))
    refused: Sequence[AclResource] = (AclResource.TRANSACTIONAL_ID,)
    resources = on_each(AclOperation.DESCRIBE, AclResource.TRANSACTIONAL_ID, "transactional_ids", "transaction_states")

    def __init__(self, coordinator: TransactionCoordinator) -> None:
        self._coordinator = coordinator

    def __call__(self, request: DescribeTransactionsRequest, context: RequestContext) -> DescribeTransactionsResponse:
        states = [self._describe(transactional_id) for transactional_id in dict.fromkeys(request.transactional_ids)]
        for state in states if context.is_checked else ():
            seen = partial(context.may, AclOperation.DESCRIBE, AclResource.TOPIC, logged=False)
            state.topics = [topic for topic in state.topics if seen(topic.topic)]
        return DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=states)

    def _describe(self, transactional_id: str) -> DescribedTransaction:
        try:
            return _described(transactional_id, self._coordinator.describe(transactional_id))
        except BrokerError as error:
            return _described(transactional_id, None, error.code)

    def failed(self, request: DescribeTransactionsRequest, context: RequestContext, error: BrokerError) -> DescribeTransactionsResponse:
        """Every id with the same error."""
        states = [_described(transactional_id, None, error.code) for transactional_id in request.transactional_ids]
        return DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=states)


def _described(transactional_id: str, known: TransactionRecord | None, code: ErrorCode = ErrorCode.NONE) -> DescribedTransaction:
    record = known or _NO_RECORD
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(record.partitions):
        topics.setdefault(topic, []).append(index)
    return DescribedTransaction(
        error_code=code,
        transactional_id=transactional_id,
        transaction_state="" if known is None else record.state.title,
        transaction_timeout_ms=record.timeout_ms,
        transaction_start_time_ms=record.start_ms if known is not None else 0,
        producer_id=record.producer_id if known is not None else 0,
        producer_epoch=record.producer_epoch if known is not None else 0,
        topics=[TopicData(topic=name, partitions=indexes) for name, indexes in topics.items()],
    )


class ListTransactionsHandler:
    """The transactional ids of this broker that pass the filters."""

    request: type[Request] = ListTransactionsRequest
    rights: Rights = ((AclOperation.DESCRIBE, AclResource.TRANSACTIONAL_ID),)
    refused: Sequence[AclResource] = ()
    resources = staticmethod(in_place)

    def __init__(self, coordinator: TransactionCoordinator, now_ms: Callable[[], int]) -> None:
        self.versions = VersionRange(0, PATTERN_VERSION if linear_patterns.is_available() else PATTERN_VERSION - 1)
        self._coordinator = coordinator
        self._now_ms = now_ms

    def __call__(self, request: ListTransactionsRequest, context: RequestContext) -> ListTransactionsResponse:
        now_ms = self._now_ms()
        producers, states = frozenset(request.producer_id_filters), frozenset(request.state_filters)
        pattern = request.transactional_id_pattern
        matches = linear_patterns.matcher(pattern) if pattern else None

        def passes(transactional_id: str, record: TransactionRecord) -> bool:
            if matches is not None and not matches(transactional_id):
                return False
            if producers and record.producer_id not in producers:
                return False
            if states and record.state.title not in states:
                return False
            if 0 <= request.duration_filter >= now_ms - record.start_ms:
                return False
            return context.may(AclOperation.DESCRIBE, AclResource.TRANSACTIONAL_ID, transactional_id, logged=False)

        return ListTransactionsResponse(
            throttle_time_ms=0,
            error_code=ErrorCode.NONE,
            unknown_state_filters=[state for state in dict.fromkeys(request.state_filters) if state not in _TITLES],
            transaction_states=[
                list_transactions.TransactionState(
                    transactional_id=transactional_id, producer_id=record.producer_id, transaction_state=record.state.title
                )
                for transactional_id, record in self._coordinator.states().items()
                if passes(transactional_id, record)
            ],
        )

    def failed(self, request: ListTransactionsRequest, context: RequestContext, error: BrokerError) -> ListTransactionsResponse:
        """Only the error."""
        return ListTransactionsResponse(throttle_time_ms=0, error_code=error.code, unknown_state_filters=[], transaction_states=[])
