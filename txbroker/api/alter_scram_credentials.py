"""AlterUserScramCredentials (key 51, KIP-554): set and remove the SCRAM credentials of users (ZkAdminManager).

The client has computed the salted password; the broker stores the keys that it derives from it, beside the user's quotas. Each user fails
or succeeds alone, and all changes of one user are made together. Only the controller serves it. Connections of a user who is removed stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from twisted.internet.defer import Deferred

from txbroker.api import admin_log
from txbroker.api.admin_log import RecordedChange
from txbroker.api.request_context import RequestContext
from txbroker.api.resources import AclOperation, on_cluster
from txbroker.client_quotas.entities import sanitized
from txbroker.cluster.config_store import ConfigAdmin
from txbroker.cluster.node_paths import USER_TYPE, Entity
from txbroker.errors import BrokerError, ErrorCode
from txbroker.security.scram import ScramCredential
from txbroker.security.scram_credentials import ITERATIONS_MAX, MECHANISM_CODES
from txbroker.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from txbroker.wire.schema import Request
from txbroker.wire.scram import ITERATIONS_MIN

_MECHANISMS = {code: mechanism for mechanism, code in MECHANISM_CODES.items()}

Alteration = ScramCredentialDeletion | ScramCredentialUpsertion


class AlterUserScramCredentialsHandler:
    """`check_controller` raises NOT_CONTROLLER. `reread`: has a changed user take effect here. `super_users`: principals."""

    request: type[Request] = AlterUserScramCredentialsRequest
    resources = on_cluster(AclOperation.ALTER)

    def __init__(
        self,
        admin: ConfigAdmin,
        check_controller: Callable[[], None],
        reread: Callable[[Entity], Deferred[None]],
        super_users: frozenset[str],
    ) -> None:
        self._admin = admin
        self._check_controller = check_controller
        self._reread = reread
        self._super_users = super_users

    def __call__(self, request: AlterUserScramCredentialsRequest, context: RequestContext) -> Deferred[AlterUserScramCredentialsResponse]:
        self._check_controller()
        return Deferred.fromCoroutine(self._alter(request, context))

    async def _alter(self, request: AlterUserScramCredentialsRequest, context: RequestContext) -> AlterUserScramCredentialsResponse:
        results = []
        for user, alterations in _by_user(request).items():
            error = None
            try:
                _check(user, alterations)
                await self._alter_user(user, alterations, context)
            except BrokerError as failure:
                error = failure
            results.append(_result(user, error))
        return AlterUserScramCredentialsResponse(throttle_time_ms=0, results=results)

    async def _alter_user(self, user: str, alterations: list[Alteration], context: RequestContext) -> None:
        node = Entity(USER_TYPE, sanitized(user))
        change = RecordedChange(partial(_changed, alterations))
        await self._admin.change(node, change)
        change.log(node, context)
        if f"User:{user}" in self._super_users:
            admin_log.super_user_changed(user, context)
        await self._reread(node)

    def failed(
        self, request: AlterUserScramCredentialsRequest, context: RequestContext, error: BrokerError
    ) -> AlterUserScramCredentialsResponse:
        """Every user with the same error."""
        return AlterUserScramCredentialsResponse(throttle_time_ms=0, results=[_result(user, error) for user in _by_user(request)])


def _by_user(request: AlterUserScramCredentialsRequest) -> dict[str, list[Alteration]]:
    users: dict[str, list[Alteration]] = {}
    alterations: Iterable[Alteration] = (*request.deletions, *request.upsertions)
    for alteration in alterations:
        users.setdefault(alteration.name, []).append(alteration)
    return users


def _check(user: str, alterations: list[Alteration]) -> None:
    """UNACCEPTABLE_CREDENTIAL, UNSUPPORTED_SASL_MECHANISM, DUPLICATE_RESOURCE."""
    if not user:
        raise BrokerError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if user in (".", ".."):
        raise BrokerError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"A user cannot be named {user!r}")
    for alteration in alterations:
        if alteration.mechanism not in _MECHANISMS:
            raise BrokerError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
        if isinstance(alteration, ScramCredentialUpsertion):
            if alteration.iterations < ITERATIONS_MIN:
                raise BrokerError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
            if alteration.iterations > ITERATIONS_MAX:
                raise BrokerError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if max(Counter(alteration.mechanism for alteration in alterations).values()) > 1:
        raise BrokerError(ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")


def _changed(alterations: list[Alteration], before: Mapping[str, str]) -> dict[str, str]:
    """The configuration of a user afterwards; RESOURCE_NOT_FOUND."""
    after = dict(before)
    for alteration in alterations:
        mechanism = _MECHANISMS[alteration.mechanism]
        if isinstance(alteration, ScramCredentialUpsertion):
            salt, salted = bytes(alteration.salt), bytes(alteration.salted_password)
            after[mechanism] = ScramCredential.of_salted(mechanism, salt, salted, alteration.iterations).format()
        elif after.pop(mechanism, None) is None:
            raise BrokerError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
    return after


def _result(user: str, error: BrokerError | None) -> AlterUserScramCredentialsResult:
    code, message = (ErrorCode.NONE, "") if error is None else (error.code, error.shown_message)
    return AlterUserScramCredentialsResult(user=user, error_code=code, error_message=message)
