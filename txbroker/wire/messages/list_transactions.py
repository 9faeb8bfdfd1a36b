"""ListTransactions (key 66): versions 0-2, flexible from 0."""

from __future__ import annotations

from txbroker.wire.schema import Int16, Int32, Int64, Request, Response, String, Struct, v


class ListTransactionsRequest(Request, key=66, versions="0-2", flexible="0+"):
    state_filters: list[String]
    producer_id_filters: list[Int64]
    duration_filter: Int64 = v("1+", default=-1)
    transactional_id_pattern: String | None = v("2+", default=None)


class TransactionState(Struct):
    transactional_id: String
    producer_id: Int64
    transaction_state: String


class ListTransactionsResponse(Response, key=66, versions="0-2", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    unknown_state_filters: list[String]
    transaction_states: list[TransactionState]
