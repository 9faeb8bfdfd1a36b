"""ApiVersions (key 18): what this broker serves, computed from what handlers registered.

Behaviour: a version above ours is answered in v0 with UNSUPPORTED_VERSION and our own range (KIP-511); that answer is made by the
connection, as no handler sees such a request. A client's name and version must look like names (KIP-511), else INVALID_REQUEST.
No features are announced: those of Kafka (metadata.version, transaction.version, group.version) belong to KRaft.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from txbroker.api.request_context import RequestContext
from txbroker.errors import BrokerError, ErrorCode
from txbroker.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from txbroker.wire.schema import Request, VersionRange

SOFTWARE_VERSION = 3  # from here on a client says what it is
SOFTWARE_CHARACTERS_MAX = 100  # as much of its name and version is kept
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class ApiVersionsHandler:
    """Answers with the ranges of the registry that it is itself a part of."""

    request: type[Request] = ApiVersionsRequest

    def __init__(self, ranges: Callable[[], Mapping[int, VersionRange]]) -> None:
        self._ranges = ranges

    def __call__(self, request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
        named = (request.client_software_name, request.client_software_version)
        if context.api_version >= SOFTWARE_VERSION:
            if not all(_SOFTWARE.fullmatch(text) for text in named):
                raise BrokerError(ErrorCode.INVALID_REQUEST, "client software name or version has characters that are not allowed")
            context.session.software = " ".join(named)[:SOFTWARE_CHARACTERS_MAX]
        keys = [ApiVersion(api_key=key, min_version=r.low, max_version=r.high) for key, r in self._ranges().items()]
        return ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=keys)

    def failed(self, request: ApiVersionsRequest, context: RequestContext, error: BrokerError) -> ApiVersionsResponse:
        """The error and nothing else."""
        return ApiVersionsResponse(error_code=error.code, api_keys=[])
