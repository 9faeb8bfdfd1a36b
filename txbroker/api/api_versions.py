"""ApiVersions (key 18): what this broker serves, computed from what handlers registered.

Behaviour: a request of an unknown version gets UNSUPPORTED_VERSION in v0, with the range that is served (KIP-511); the connection makes
that response, because it cannot decode the request. The name and version of a client's software must match a pattern (KIP-511), otherwise
INVALID_REQUEST. Of the features only transaction.version is advertised, finalized at 2 while every broker of the cluster serves
transactions v2 (KIP-890): clients then leave it to the partitions' leaders to add partitions to transactions. Kafka's other features
(metadata.version, group.version) belong to KRaft.
Version notes: before v4 the minimum of a feature cannot be 0, which clients of v3 do not read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from txbroker.api.request_context import RequestContext
from txbroker.api.resources import in_place
from txbroker.errors import BrokerError, ErrorCode
from txbroker.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from txbroker.wire.schema import Request, VersionRange

SOFTWARE_VERSION = 3  # from here on a client sends its software's name and version
MINIMUM_ZERO_VERSION = 4
TRANSACTION_FEATURE = "transaction.version"
TRANSACTION_VERSION_MAX = 2
SOFTWARE_CHARACTERS_MAX = 100  # of its name and version that are kept
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class FinalizedLevel(NamedTuple):
    """The level of a feature that clients may use, 0 for none. A client that knows several takes the one with the highest epoch."""

    level: int
    epoch: int


class ApiVersionsHandler:
    """Returns the version ranges of the registry, which includes this handler, and the version of transactions."""

    request: type[Request] = ApiVersionsRequest
    resources = staticmethod(in_place)

    def __init__(
        self,
        ranges: Callable[[bool], Mapping[int, VersionRange]],
        transaction_version: Callable[[], FinalizedLevel] = lambda: FinalizedLevel(0, -1),
    ) -> None:
        """`ranges`: what is served on a listener with SASL, or on another."""
        self._ranges = ranges
        self._transaction_version = transaction_version

    def __call__(self, request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
        named = (request.client_software_name, request.client_software_version)
        if context.api_version >= SOFTWARE_VERSION:
            if not all(_SOFTWARE.fullmatch(text) for text in named):
                raise BrokerError(ErrorCode.INVALID_REQUEST, "client software name or version has characters that are not allowed")
            context.session.software = " ".join(named)[:SOFTWARE_CHARACTERS_MAX]
        level, epoch = self._transaction_version()
        served = self._ranges(context.session.login is not None)
        keys = [ApiVersion(api_key=key, min_version=r.low, max_version=r.high) for key, r in served.items()]
        return ApiVersionsResponse(
            error_code=ErrorCode.NONE,
            api_keys=keys,
            supported_features=[
                SupportedFeatureKey(
                    name=TRANSACTION_FEATURE,
                    min_version=0 if context.api_version >= MINIMUM_ZERO_VERSION else 1,
                    max_version=TRANSACTION_VERSION_MAX,
                )
            ],
            finalized_features_epoch=epoch,
            finalized_features=_finalized(level),
        )

    def failed(self, request: ApiVersionsRequest, context: RequestContext, error: BrokerError) -> ApiVersionsResponse:
        """Only the error."""
        return ApiVersionsResponse(error_code=error.code, api_keys=[])


def _finalized(level: int) -> list[FinalizedFeatureKey]:
    return [FinalizedFeatureKey(name=TRANSACTION_FEATURE, max_version_level=level, min_version_level=level)] if level else []
