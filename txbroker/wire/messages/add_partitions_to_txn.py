"""AddPartitionsToTxn (key 24): versions 0-5, flexible from 3."""

from __future__ import annotations

from txbroker.wire.schema import Bool, Int16, Int32, Int64, Request, Response, String, Struct, v


class AddPartitionsToTxnTopic(Struct):
    name: String
    partitions: list[Int32]


class AddPartitionsToTxnTransaction(Struct):
    transactional_id: String = v("4+", default="")
    producer_id: Int64 = v("4+", default=0)
    producer_epoch: Int16 = v("4+", default=0)
    verify_only: Bool = v("4+", default=False)
    topics: list[AddPartitionsToTxnTopic] = v("4+", factory=list)


class AddPartitionsToTxnRequest(Request, key=24, versions="0-5", flexible="3+"):
    transactions: list[AddPartitionsToTxnTransaction] = v("4+", factory=list)
    v3_and_below_transactional_id: String = v("0-3", default="")
    v3_and_below_producer_id: Int64 = v("0-3", default=0)
    v3_and_below_producer_epoch: Int16 = v("0-3", default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = v("0-3", factory=list)


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: Int32
    partition_error_code: Int16


class AddPartitionsToTxnTopicResult(Struct):
    name: String
    results_by_partition: list[AddPartitionsToTxnPartitionResult]


class AddPartitionsToTxnResult(Struct):
    transactional_id: String = v("4+", default="")
    topic_results: list[AddPartitionsToTxnTopicResult] = v("4+", factory=list)


class AddPartitionsToTxnResponse(Response, key=24, versions="0-5", flexible="3+"):
    throttle_time_ms: Int32
    error_code: Int16 = v("4+", default=0, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = v("4+", factory=list)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = v("0-3", factory=list)
