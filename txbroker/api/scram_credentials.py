"""DescribeUserScramCredentials (key 50, KIP-554): which users have SCRAM credentials.

Kafka's `kafka-configs` asks for them whenever it describes users. As in Kafka a request with `users` null is one for all users. Kafka does
not answer such a request if it is denied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from twisted.internet.defer import Deferred

from txbroker.api.request_context import RequestContext
from txbroker.api.resources import AclOperation, on_cluster
from txbroker.client_quotas.entities import decoded, entity_of
from txbroker.cluster.config_store import ConfigAdmin
from txbroker.errors import BrokerError, ErrorCode
from txbroker.security.scram_credentials import MECHANISM_CODES
from txbroker.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from txbroker.wire.schema import Request


class DescribeUserScramCredentialsHandler:
    """The mechanisms and iterations of credentials, not the credentials."""

    request: type[Request] = DescribeUserScramCredentialsRequest
    resources = on_cluster(AclOperation.DESCRIBE)

    def __init__(self, admin: ConfigAdmin) -> None:
        self._admin = admin

    def __call__(
        self, request: DescribeUserScramCredentialsRequest, context: RequestContext
    ) -> Deferred[DescribeUserScramCredentialsResponse]:
        return Deferred.fromCoroutine(self._describe(request))

    async def _describe(self, request: DescribeUserScramCredentialsRequest) -> DescribeUserScramCredentialsResponse:
        known: dict[str, list[CredentialInfo]] = {}
        for node, properties in (await self._admin.clients()).items():
            entity = entity_of(node)
            if entity is not None and entity.user is not None and entity.client_id is None:
                name, credentials = decoded(entity.user), _credentials(properties)
                if name is not None and credentials:
                    known[name] = credentials
        named = Counter([user.name for user in request.users] if request.users else list(known))
        results = [_result(name, count, known.get(name, [])) for name, count in named.items()]
        return DescribeUserScramCredentialsResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, error_message=None, results=results)

    def failed(
        self, request: DescribeUserScramCredentialsRequest, context: RequestContext, error: BrokerError
    ) -> DescribeUserScramCredentialsResponse:
        """The error of the request, and as in Kafka for each user, without its name."""
        result = DescribeUserScramCredentialsResult(user="", error_code=error.code, error_message=error.shown_message, credential_infos=[])
        return DescribeUserScramCredentialsResponse(
            throttle_time_ms=0, error_code=error.code, error_message=error.shown_message, results=[result] * len(request.users or ())
        )


def _credentials(properties: Mapping[str, str]) -> list[CredentialInfo]:
    found = []
    for name, mechanism in MECHANISM_CODES.items():
        fields = dict(field.partition("=")[::2] for field in properties.get(name, "").split(","))
        iterations = fields.get("iterations", "")
        if iterations.isascii() and iterations.isdecimal() and len(iterations) < 10:
            found.append(CredentialInfo(mechanism=mechanism, iterations=int(iterations)))
    return found


def _result(name: str, count: int, credentials: list[CredentialInfo]) -> DescribeUserScramCredentialsResult:
    error = None  # cuts its text: a name can be as long as a string of a response
    if count > 1:
        error, credentials = BrokerError(ErrorCode.DUPLICATE_RESOURCE, f"The user {name} is named twice."), []
    elif not credentials:
        error = BrokerError(ErrorCode.RESOURCE_NOT_FOUND, f"The user {name} has no SCRAM credentials.")
    code, message = (ErrorCode.NONE, None) if error is None else (error.code, error.message)
    return DescribeUserScramCredentialsResult(user=name, error_code=code, error_message=message, credential_infos=credentials)
