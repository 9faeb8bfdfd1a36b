"""DescribeLogDirs (key 35): versions 0-5, flexible from 2."""

from __future__ import annotations

from txbroker.wire.schema import Bool, Int16, Int32, Int64, Request, Response, String, Struct, v


class DescribableLogDirTopic(Struct):
    topic: String
    partitions: list[Int32]


class DescribeLogDirsRequest(Request, key=35, versions="0-5", flexible="2+"):
    topics: list[DescribableLogDirTopic] | None


class DescribeLogDirsPartition(Struct):
    partition_index: Int32
    partition_size: Int64
    offset_lag: Int64
    is_future_key: Bool


class DescribeLogDirsTopic(Struct):
    name: String
    partitions: list[DescribeLogDirsPartition]


class DescribeLogDirsResult(Struct):
    error_code: Int16
    log_dir: String
    topics: list[DescribeLogDirsTopic]
    total_bytes: Int64 = v("4+", default=-1, ignorable=True)
    usable_bytes: Int64 = v("4+", default=-1, ignorable=True)
    is_cordoned: Bool = v("5+", default=False, ignorable=True)


class DescribeLogDirsResponse(Response, key=35, versions="0-5", flexible="2+"):
    throttle_time_ms: Int32
    error_code: Int16 = v("3+", default=0, ignorable=True)
    results: list[DescribeLogDirsResult]
