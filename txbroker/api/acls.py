"""DescribeAcls, CreateAcls and DeleteAcls (keys 29, 30, 31): refused, because there is no authorizer.

Some tools request ACLs before anything else. They continue after SECURITY_DISABLED, Kafka's error for an empty authorizer.class.name; they
would stop if the APIs were missing.
"""

from __future__ import annotations

from txbroker.api.request_context import RequestContext
from txbroker.api.resources import AclOperation, on_cluster
from txbroker.errors import BrokerError, ErrorCode
from txbroker.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from txbroker.wire.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from txbroker.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from txbroker.wire.schema import Request

_DISABLED = BrokerError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker.")


class DescribeAclsHandler:
    """No ACLs are kept."""

    request: type[Request] = DescribeAclsRequest
    resources = on_cluster(AclOperation.DESCRIBE)

    def __call__(self, request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
        return self.failed(request, context, _DISABLED)

    def failed(self, request: DescribeAclsRequest, context: RequestContext, error: BrokerError) -> DescribeAclsResponse:
        """The error alone."""
        return DescribeAclsResponse(throttle_time_ms=0, error_code=error.code, error_message=error.message, resources=[])


class CreateAclsHandler:
    """No ACLs are kept."""

    request: type[Request] = CreateAclsRequest
    resources = on_cluster(AclOperation.ALTER)

    def __call__(self, request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
        return self.failed(request, context, _DISABLED)

    def failed(self, request: CreateAclsRequest, context: RequestContext, error: BrokerError) -> CreateAclsResponse:
        """The error for each creation."""
        results = [AclCreationResult(error_code=error.code, error_message=error.message) for _ in request.creations]
        return CreateAclsResponse(throttle_time_ms=0, results=results)


class DeleteAclsHandler:
    """No ACLs are kept."""

    request: type[Request] = DeleteAclsRequest
    resources = on_cluster(AclOperation.ALTER)

    def __call__(self, request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
        return self.failed(request, context, _DISABLED)

    def failed(self, request: DeleteAclsRequest, context: RequestContext, error: BrokerError) -> DeleteAclsResponse:
        """The error for each filter."""
        results = [DeleteAclsFilterResult(error_code=error.code, error_message=error.message, matching_acls=[]) for _ in request.filters]
        return DeleteAclsResponse(throttle_time_ms=0, filter_results=results)
