"""DescribeCluster (key 60): versions 0-2, flexible from 0."""

from __future__ import annotations

from txbroker.wire.schema import Bool, Int8, Int16, Int32, Request, Response, String, Struct, v


class DescribeClusterRequest(Request, key=60, versions="0-2", flexible="0+"):
    include_cluster_authorized_operations: Bool
    endpoint_type: Int8 = v("1+", default=1)
    include_fenced_brokers: Bool = v("2+", default=False)


class DescribeClusterBroker(Struct):
    broker_id: Int32
    host: String
    port: Int32
    rack: String | None = v(default=None)
    is_fenced: Bool = v("2+", default=False)


class DescribeClusterResponse(Response, key=60, versions="0-2", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = v(default=None)
    endpoint_type: Int8 = v("1+", default=1)
    cluster_id: String
    controller_id: Int32 = v(default=-1)
    brokers: list[DescribeClusterBroker]
    cluster_authorized_operations: Int32 = v(default=-2147483648)
