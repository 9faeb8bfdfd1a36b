"""DescribeCluster (key 60): the live brokers and the controller (KIP-700).

Version notes: v1 requests brokers or controllers (KIP-919); there are no separate controllers here. v2 fenced brokers (KIP-1073): without
KRaft no broker is fenced.
"""

from __future__ import annotations

from txbroker.api.authorized_operations import CLUSTER_OPERATIONS, authorized_operations
from txbroker.api.endpoints import Endpoints
from txbroker.api.request_context import RequestContext
from txbroker.api.resources import AclResource, in_place
from txbroker.cluster.image import ClusterImage
from txbroker.errors import BrokerError, ErrorCode
from txbroker.wire.messages.describe_cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse
from txbroker.wire.schema import Request

BROKERS = 1
CONTROLLERS = 2


class DescribeClusterHandler:
    """Answers from the cluster image."""

    request: type[Request] = DescribeClusterRequest
    resources = staticmethod(in_place)

    def __init__(self, image: ClusterImage, endpoints: Endpoints, cluster_id: str) -> None:
        self._image = image
        self._endpoints = endpoints
        self._cluster_id = cluster_id

    def __call__(self, request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
        if request.endpoint_type == CONTROLLERS:
            raise BrokerError(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this is the listener of a broker, not of a controller")
        if request.endpoint_type != BROKERS:
            raise BrokerError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"there is no endpoint type {request.endpoint_type}")
        nodes = self._endpoints.nodes(context)
        return DescribeClusterResponse(
            throttle_time_ms=0,
            error_code=ErrorCode.NONE,
            cluster_id=self._cluster_id,
            controller_id=self._image.controller_id,
            brokers=[DescribeClusterBroker(broker_id=n.id, host=n.host, port=n.port, rack=n.rack) for n in nodes],
            cluster_authorized_operations=authorized_operations(
                request.include_cluster_authorized_operations, CLUSTER_OPERATIONS, context, AclResource.CLUSTER
            ),
        )

    def failed(self, request: DescribeClusterRequest, context: RequestContext, error: BrokerError) -> DescribeClusterResponse:
        """The error alone."""
        return DescribeClusterResponse(
            throttle_time_ms=0, error_code=error.code, error_message=error.message, cluster_id=self._cluster_id, brokers=[]
        )
