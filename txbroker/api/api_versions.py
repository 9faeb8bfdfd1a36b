"""ApiVersions (key 18): what this broker serves, computed from what handlers registered.

Behaviour: a request of an unknown version gets UNSUPPORTED_VERSION in v0, with the range that is served (KIP-511); the connection makes
that response, because it cannot decode the request. The name and version of a client's software must match a pattern (KIP-511), otherwise
INVALID_REQUEST. No features are advertised: those of Kafka (metadata.version, transaction.version, group.version) belong to KRaft.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from txbroker.api.request_context import RequestContext
from txbroker.errors import BrokerError, ErrorCode
from txbroker.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from txbroker.wire.schema import Request, VersionRange

SOFTWARE_VERSION = 3  # from here on a client sends its software's name and version
SOFTWARE_CHARACTERS_MAX = 100  # of its name and version that are kept
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class ApiVersionsHandler:
    """Returns the version ranges of the registry, which includes this handler."""

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
        """Only the error."""
        return ApiVersionsResponse(error_code=error.code, api_keys=[])
