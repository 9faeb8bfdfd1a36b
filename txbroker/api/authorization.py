"""Asks the authorizer before a handler is called, and answers what is denied in its place."""

from __future__ import annotations

import copy
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from twisted.internet.defer import Deferred

from txbroker.api.encoded.cached_response import CachedResponse
from txbroker.api.parking import ParkedRequest
from txbroker.api.request_context import RequestContext, Session
from txbroker.api.resources import CLUSTER_NAME, AclOperation, AclResource, Need, Resources
from txbroker.errors import BrokerError, ErrorCode
from txbroker.log.region import Region
from txbroker.security.acl_index import EVERYONE, Rule
from txbroker.security.principals import java_address
from txbroker.wire.codec import decoder, encoder
from txbroker.wire.headers import response_body_position, response_header_version
from txbroker.wire.schema import Request, Response, response_class

log = logging.getLogger("txbroker.authorizer")

LOGGED_MAX = 100  # resources of one request: a request of some kilobytes can name thousands

_DENIED = {
    AclResource.TOPIC: (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."),
    AclResource.GROUP: (ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."),
    AclResource.CLUSTER: (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."),
    AclResource.TRANSACTIONAL_ID: (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Transactional Id authorization failed."),
}
_SIZE_BYTES = 4


class Authorizer(Protocol):
    """Who may do what (Kafka's Authorizer)."""

    @property
    def allows_all(self) -> bool:
        """Whether it never denies anything. Then it is not asked."""

    def authorize(self, session: Session, operation: AclOperation, resource: AclResource, name: str) -> bool:
        """Whether a client may do this."""

    def authorize_any(self, session: Session, operation: AclOperation, resource: AclResource) -> bool:
        """Whether there can be a resource of this type with which the client may do this (KIP-679)."""

    def rule(self, session: Session, operation: AclOperation, resource: AclResource, name: str) -> Rule:
        """What a decision follows from."""

    @property
    def denials(self) -> Counter[tuple[str, str]]:
        """How many there were, by API and operation: counted here."""

    @property
    def records_use(self) -> bool:
        """Whether the audit log has what is allowed, too."""


class AllowAll:
    """Every client may do everything."""

    allows_all = True
    records_use = False

    def __init__(self) -> None:
        self.denials: Counter[tuple[str, str]] = Counter()

    def authorize(self, session: Session, operation: AclOperation, resource: AclResource, name: str) -> bool:
        return True

    def authorize_any(self, session: Session, operation: AclOperation, resource: AclResource) -> bool:
        return True

    def rule(self, session: Session, operation: AclOperation, resource: AclResource, name: str) -> Rule:
        return Rule(EVERYONE)


class CheckedContext(RequestContext):
    """The context of a request whose client may not do everything."""

    __slots__ = ("_api", "_authorizer", "_logged")

    is_checked = True

    def __init__(self, context: RequestContext, authorizer: Authorizer, api: str) -> None:
        """`api`: the name of the request's API, for the log."""
        # Not by the base class: this is for each request.
        self.api_key = context.api_key
        self.api_version = context.api_version
        self.correlation_id = context.correlation_id
        self.client_id = context.client_id
        self.session = context.session
        self._authorizer = authorizer
        self._api = api
        self._logged: set[tuple[AclOperation, AclResource, str]] | None = None

    def may(self, operation: AclOperation, resource: AclResource, name: str = CLUSTER_NAME, *, logged: bool = True) -> bool:
        allowed = self._authorizer.authorize(self.session, operation, resource, name)
        if logged:
            if not allowed or _log_is_verbose():
                self._log(allowed, operation, resource, name, 1)
            if allowed and self._authorizer.records_use:
                self._record_use(operation, resource, name)
        return allowed

    def is_allowed(self, need: Need) -> bool:
        """Whether the client may do it with all of the resources, and nothing is logged: the usual case. If not, `satisfies` decides."""
        if self._authorizer.records_use or _log_is_verbose():
            return False
        authorize, session, operation, resource = self._authorizer.authorize, self.session, need.operation, need.resource
        for name in need.names:  # noqa: SIM110 - each request comes here, and a generator costs more than the decision
            if name is not None and not authorize(session, operation, resource, name):
                return False
        return True

    def satisfies(self, need: Need, name: str, count: int) -> bool:
        """Whether the client may do with this resource what a request needs. `count`: how often the request names it."""
        allowed = self.may(need.operation, need.resource, name, logged=False)
        if not allowed:
            if need.instead is not None and self.may(need.instead, AclResource.CLUSTER, logged=False):
                if self._authorizer.records_use:
                    self._record_use(need.instead, AclResource.CLUSTER, CLUSTER_NAME)
                return True
            if need.anywhere is not None and self._authorizer.authorize_any(self.session, *need.anywhere):
                return True
        if not allowed or _log_is_verbose():
            self._log(allowed, need.operation, need.resource, name, count)
        if allowed and self._authorizer.records_use:
            self._record_use(need.operation, need.resource, name)
        return allowed

    def _record_use(self, operation: AclOperation, resource: AclResource, name: str) -> None:
        audit, session = self.session.audit, self.session
        if audit is not None:
            rule = partial(self._authorizer.rule, session, operation, resource, name)
            audit.used(session, self.client_id, self._api, operation, resource, name, rule)

    def _log(self, allowed: bool, operation: AclOperation, resource: AclResource, name: str, count: int) -> None:
        """In the form of Kafka's AclAuthorizer, which tools look for; once for a request."""
        key = operation, resource, name
        if self._logged is None:
            self._logged = set()
        if key in self._logged:
            return
        audit = None if allowed else self.session.audit
        if not allowed:
            self._authorizer.denials[self._api, operation.title] += 1
        if len(self._logged) > LOGGED_MAX:
            if audit is not None:
                audit.denied_more(self.session)
            return
        self._logged.add(key)
        if audit is not None:
            rule = self._authorizer.rule(self.session, operation, resource, name)
            audit.denied(self.session, self.client_id, self._api, operation, resource, name, rule)
        if len(self._logged) > LOGGED_MAX:
            log.info("Principal = %s: further resources of the same %s request are not logged", self.principal, self._api)
            return
        log.log(
            logging.DEBUG if allowed else logging.INFO,
            "Principal = %s is %s Operation = %s from host = %s on resource = %s:LITERAL:%s for request = %s with resourceRefCount = %d",
            self.principal,
            "Allowed" if allowed else "Denied",
            operation.title,
            java_address(self.peer_host),
            resource.title,
            name,
            self._api,
            count,
        )


Call = Callable[[Any, RequestContext], Any]
Failed = Callable[[Any, RequestContext, BrokerError], Any]


def _log_is_verbose() -> bool:
    return log.isEnabledFor(logging.DEBUG)


class Guard:
    """A handler's call of one version, with the authorizer before it. `call` returns and raises as `__call__` of a handler."""

    def __init__(
        self, request: type[Request], version: int, call: Call, failed: Failed | None, resources: Resources, authorizer: Authorizer
    ):
        self._request = request
        self._api = request.__name__.removesuffix("Request")
        self._version = version
        self._call = call
        self._failed = failed
        self._resources = resources
        self._authorizer = authorizer

    def call(self, request: Any, context: RequestContext) -> Any:
        """Handle what the client may do. BrokerError if the request as a whole is denied."""
        checked = CheckedContext(context, self._authorizer, self._api)
        needs = self._resources(request, checked)
        for need in needs:
            if not checked.is_allowed(need):
                return self._call_allowed(request, checked, needs)
        return self._call(request, checked)

    def _call_allowed(self, request: Any, checked: CheckedContext, needs: Sequence[Need]) -> Any:
        denied: dict[int, AclResource] = {}
        split = None
        for need in needs:
            counts = Counter(need.names)
            satisfied = {name: name is None or checked.satisfies(need, name, count) for name, count in counts.items()}
            if all(satisfied.values()):
                continue
            for index, name in enumerate(need.names):
                if satisfied[name] or index in denied:
                    continue
                if not need.items:
                    raise denial(need.resource)
                denied[index] = need.resource
                split = need
        if split is None:
            return self._call(request, checked)
        return self._split(request, checked, split, denied)

    def _split(self, request: Any, context: CheckedContext, need: Need, denied: Mapping[int, AclResource]) -> Any:
        items = getattr(request, need.items)
        refused: dict[int, Any] = {}
        unanswered: BrokerError | None = None
        for resource in set(denied.values()):
            indexes = [index for index, kind in denied.items() if kind is resource]
            part = _with(request, need.items, [items[index] for index in indexes])
            failed = None if self._failed is None else self._failed(part, context, denial(resource))
            if failed is None:
                unanswered = denial(resource)
            else:
                refused.update(zip(indexes, getattr(failed, need.answers), strict=False))
        allowed = _with(request, need.items, [item for index, item in enumerate(items) if index not in denied])
        response = self._call(allowed, context)
        if isinstance(response, ParkedRequest):
            response = response.deferred()
        if isinstance(response, Deferred):
            return response.addCallback(self._joined, need, refused, unanswered)
        return self._joined(response, need, refused, unanswered)

    def _joined(self, response: Any, need: Need, refused: Mapping[int, Any], unanswered: BrokerError | None) -> Any:
        """The response with the answers to what was refused in their places. `unanswered`: the error of a request that has no response."""
        if unanswered is not None:
            raise unanswered
        whole = self._decoded(response)
        answers = list(getattr(whole, need.answers))
        for index in sorted(refused):
            answers.insert(index, refused[index])
        setattr(whole, need.answers, answers)
        return whole

    def _decoded(self, response: Any) -> Response:
        cls = response_class(self._request)
        if isinstance(response, CachedResponse):
            body = memoryview(response.body(encoder(cls, self._version)))
        elif isinstance(response, tuple):
            frame = memoryview(b"".join(part.read() if isinstance(part, Region) else part for part in response[0]))[_SIZE_BYTES:]
            body = frame[response_body_position(frame, response_header_version(self._request, self._version)) :]
        else:
            plain: Response = response
            return plain
        return decoder(cls, self._version)(body)


def denial(resource: AclResource) -> BrokerError:
    """The error of a resource that may not be used."""
    return BrokerError(*_DENIED[resource])


def _with(request: Any, items: str, kept: Sequence[Any]) -> Any:
    part = copy.copy(request)
    setattr(part, items, kept)
    return part
