"""CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken, DescribeDelegationToken (keys 38 to 41, KIP-48, KIP-373).

Every broker serves them. A client must have logged in as itself: one without a login, or with a token, gets
DELEGATION_TOKEN_REQUEST_NOT_ALLOWED. DescribeDelegationToken leaves out what the client may not see.
Version notes: CreateDelegationToken v3 can name another owner; responses of v3 name who has asked for a token.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred

from txbroker.api.admin_log import token_changed
from txbroker.api.request_context import RequestContext
from txbroker.api.resources import AclOperation, AclResource, in_place
from txbroker.errors import BrokerError, ErrorCode
from txbroker.security.delegation_tokens import DelegationTokens
from txbroker.security.principals import ANONYMOUS
from txbroker.security.token_nodes import USER_TYPE, Token
from txbroker.wire.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from txbroker.wire.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from txbroker.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from txbroker.wire.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from txbroker.wire.schema import Request

REQUESTER_VERSION = 3


def _check_sender(context: RequestContext) -> None:
    """As KafkaApis.allowTokenRequests."""
    login = context.session.login
    is_known = login is not None or (context.session.has_tls and context.principal != ANONYMOUS)
    if not is_known or (login is not None and login.by_token):
        raise BrokerError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def _split(principal: str) -> tuple[str, str]:
    """Type and name."""
    kind, _, name = principal.partition(":")
    return kind, name


class CreateDelegationTokenHandler:
    """Makes a token for the client, or for another owner."""

    request: type[Request] = CreateDelegationTokenRequest
    resources = staticmethod(in_place)
    rights = ((AclOperation.CREATE_TOKENS, AclResource.USER),)
    refused = ()

    def __init__(self, tokens: DelegationTokens) -> None:
        self._tokens = tokens

    def __call__(self, request: CreateDelegationTokenRequest, context: RequestContext) -> Deferred[CreateDelegationTokenResponse]:
        _check_sender(context)
        if request.owner_principal_name and request.owner_principal_type is None:
            raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, "Name the type of the owner, too.")  # as Kafka
        owner = _owner(request, context)
        if owner != context.principal and not context.may(AclOperation.CREATE_TOKENS, AclResource.USER, owner):
            raise BrokerError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
        if _split(owner)[0] != USER_TYPE or any(renewer.principal_type != USER_TYPE for renewer in request.renewers):
            raise BrokerError(ErrorCode.INVALID_PRINCIPAL_TYPE)
        renewers = tuple(f"{renewer.principal_type}:{renewer.principal_name}" for renewer in request.renewers)

        def respond(token: Token) -> CreateDelegationTokenResponse:
            token_changed("created", token, context)
            return _created(
                owner, context, issue_timestamp_ms=token.issued_ms, expiry_timestamp_ms=token.expires_ms, max_timestamp_ms=token.max_ms,
                token_id=token.id, hmac=self._tokens.hmac_of(token),
            )  # fmt: skip

        return self._tokens.create(owner, context.principal, renewers, request.max_lifetime_ms).addCallback(respond)

    def failed(self, request: CreateDelegationTokenRequest, context: RequestContext, error: BrokerError) -> CreateDelegationTokenResponse:
        """The error, and who would have been the owner."""
        return _created(_owner(request, context), context, error, issue_timestamp_ms=-1, expiry_timestamp_ms=-1, max_timestamp_ms=-1,
                        token_id="", hmac=b"")  # fmt: skip


def _owner(request: CreateDelegationTokenRequest, context: RequestContext) -> str:
    kind, name = request.owner_principal_type or "", request.owner_principal_name
    return f"{kind}:{name}" if name else context.principal


def _created(owner: str, context: RequestContext, error: BrokerError | None = None, **values: Any) -> CreateDelegationTokenResponse:
    owner_type, owner_name = _split(owner)
    return CreateDelegationTokenResponse(
        error_code=ErrorCode.NONE if error is None else error.code,
        principal_type=owner_type,
        principal_name=owner_name,
        throttle_time_ms=0,
        **{**_requester(context.principal, context), **values},
    )


def _requester(principal: str, context: RequestContext) -> dict[str, Any]:
    """Fields of responses that name who has asked for a token."""
    kind, name = _split(principal)
    is_named = context.api_version >= REQUESTER_VERSION
    return {"token_requester_principal_type": kind, "token_requester_principal_name": name} if is_named else {}


class RenewDelegationTokenHandler:
    """Lets a token end later."""

    request: type[Request] = RenewDelegationTokenRequest
    resources = staticmethod(in_place)

    def __init__(self, tokens: DelegationTokens) -> None:
        self._tokens = tokens

    def __call__(self, request: RenewDelegationTokenRequest, context: RequestContext) -> Deferred[RenewDelegationTokenResponse]:
        _check_sender(context)

        def respond(token: Token) -> RenewDelegationTokenResponse:
            token_changed("renewed", token, context)
            return RenewDelegationTokenResponse(error_code=ErrorCode.NONE, expiry_timestamp_ms=token.expires_ms, throttle_time_ms=0)

        return self._tokens.renew(context.principal, bytes(request.hmac), request.renew_period_ms).addCallback(respond)

    def failed(self, request: RenewDelegationTokenRequest, context: RequestContext, error: BrokerError) -> RenewDelegationTokenResponse:
        """The error alone."""
        return RenewDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=-1, throttle_time_ms=0)


class ExpireDelegationTokenHandler:
    """Lets a token end after a time, or removes it."""

    request: type[Request] = ExpireDelegationTokenRequest
    resources = staticmethod(in_place)

    def __init__(self, tokens: DelegationTokens) -> None:
        self._tokens = tokens

    def __call__(self, request: ExpireDelegationTokenRequest, context: RequestContext) -> Deferred[ExpireDelegationTokenResponse]:
        _check_sender(context)

        def respond(token: Token) -> ExpireDelegationTokenResponse:
            token_changed("removed" if request.expiry_time_period_ms < 0 else "expiry changed", token, context)
            return ExpireDelegationTokenResponse(error_code=ErrorCode.NONE, expiry_timestamp_ms=token.expires_ms, throttle_time_ms=0)

        return self._tokens.expire(context.principal, bytes(request.hmac), request.expiry_time_period_ms).addCallback(respond)

    def failed(self, request: ExpireDelegationTokenRequest, context: RequestContext, error: BrokerError) -> ExpireDelegationTokenResponse:
        """The error alone."""
        return ExpireDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=-1, throttle_time_ms=0)


class DescribeDelegationTokenHandler:
    """Tokens with their passwords: those of the client, and those that it may describe."""

    request: type[Request] = DescribeDelegationTokenRequest
    resources = staticmethod(in_place)
    rights = ((AclOperation.DESCRIBE, AclResource.DELEGATION_TOKEN), (AclOperation.DESCRIBE_TOKENS, AclResource.USER))
    refused = ()

    def __init__(self, tokens: DelegationTokens) -> None:
        self._tokens = tokens

    def __call__(self, request: DescribeDelegationTokenRequest, context: RequestContext) -> DescribeDelegationTokenResponse:
        _check_sender(context)
        owners = None if request.owners is None else {f"{owner.principal_type}:{owner.principal_name}" for owner in request.owners}
        found = [self._described(token, context) for token in self._tokens.all() if _is_seen(token, owners, context)]
        return DescribeDelegationTokenResponse(error_code=ErrorCode.NONE, tokens=found, throttle_time_ms=0)

    def failed(
        self, request: DescribeDelegationTokenRequest, context: RequestContext, error: BrokerError
    ) -> DescribeDelegationTokenResponse:
        """The error alone."""
        return DescribeDelegationTokenResponse(error_code=error.code, tokens=[], throttle_time_ms=0)

    def _described(self, token: Token, context: RequestContext) -> DescribedDelegationToken:
        owner_type, owner_name = _split(token.owner)
        return DescribedDelegationToken(
            principal_type=owner_type,
            principal_name=owner_name,
            **_requester(token.requester, context),
            issue_timestamp=token.issued_ms,
            expiry_timestamp=token.expires_ms,
            max_timestamp=token.max_ms,
            token_id=token.id,
            hmac=self._tokens.hmac_of(token),
            renewers=[
                DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name) for kind, name in map(_split, token.renewers)
            ],
        )


def _is_seen(token: Token, owners: set[str] | None, context: RequestContext) -> bool:
    if owners is not None and not any(token.is_of(owner) for owner in owners):
        return False
    return (
        token.is_of(context.principal)
        or context.may(AclOperation.DESCRIBE, AclResource.DELEGATION_TOKEN, token.id, logged=False)
        or context.may(AclOperation.DESCRIBE_TOKENS, AclResource.USER, token.owner)
    )
