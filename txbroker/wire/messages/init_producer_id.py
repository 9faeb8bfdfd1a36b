"""InitProducerId (key 22): versions 0-6, flexible from 2."""

from __future__ import annotations

from txbroker.wire.schema import Bool, Int16, Int32, Int64, Request, Response, String, v


class InitProducerIdRequest(Request, key=22, versions="0-6", flexible="2+"):
    transactional_id: String | None
    transaction_timeout_ms: Int32
    producer_id: Int64 = v("3+", default=-1)
    producer_epoch: Int16 = v("3+", default=-1)
    enable2_pc: Bool = v("6+", default=False)
    keep_prepared_txn: Bool = v("6+", default=False)


class InitProducerIdResponse(Response, key=22, versions="0-6", flexible="2+"):
    throttle_time_ms: Int32
    error_code: Int16
    producer_id: Int64 = v(default=-1)
    producer_epoch: Int16
    ongoing_txn_producer_id: Int64 = v("6+", default=-1)
    ongoing_txn_producer_epoch: Int16 = v("6+", default=-1)
