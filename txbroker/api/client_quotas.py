"""DescribeClientQuotas and AlterClientQuotas (keys 48, 49, KIP-546): read and change the quotas of users, client ids and addresses.

Any broker serves them, as Kafka's do with ZooKeeper. The quotas take effect at all brokers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from twisted.internet.defer import Deferred

from txbroker.api.admin_log import RecordedChange
from txbroker.api.request_context import RequestContext
from txbroker.api.resources import AclOperation, on_cluster
from txbroker.client_quotas.connection_rates import IP_RATE, address
from txbroker.client_quotas.entities import NAME_LENGTH_MAX, QuotaEntity, decoded, encoded, entity_of
from txbroker.client_quotas.quotas import CONSUMER_RATE, KINDS, PRODUCER_RATE
from txbroker.cluster.config_store import ConfigAdmin
from txbroker.cluster.node_paths import DEFAULT_NAME
from txbroker.config.keys import INT_MAX
from txbroker.errors import BrokerError, ErrorCode
from txbroker.wire.messages import alter_client_quotas, describe_client_quotas
from txbroker.wire.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse, EntryDataResult, OpData
from txbroker.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest, DescribeClientQuotasResponse
from txbroker.wire.schema import Request

USER, CLIENT_ID, IP = "user", "client-id", "ip"
EXACT, DEFAULT, ANY = 0, 1, 2  # match types of a filter
LONG_MAX = 2**63 - 1
EPSILON = 1e-6  # Kafka's tolerance for the numbers of bytes, which are doubles in the request
# Quotas that are whole numbers: the lowest and the highest.
_WHOLE = {PRODUCER_RATE: (1, LONG_MAX), CONSUMER_RATE: (1, LONG_MAX), IP_RATE: (0, INT_MAX)}


class DescribeClientQuotasHandler:
    """The quotas that match a filter."""

    request: type[Request] = DescribeClientQuotasRequest
    resources = on_cluster(AclOperation.DESCRIBE_CONFIGS)

    def __init__(self, admin: ConfigAdmin) -> None:
        self._admin = admin

    def __call__(self, request: DescribeClientQuotasRequest, context: RequestContext) -> Deferred[DescribeClientQuotasResponse]:
        return Deferred.fromCoroutine(self._describe(request))

    async def _describe(self, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
        wanted = _Filter.of(request.components, request.strict)
        entries = []
        for node, properties in (await self._admin.clients()).items():
            entity = entity_of(node)
            values = [] if entity is None else _values(entity, properties)
            if entity is not None and values and wanted.matches(entity):
                named = [describe_client_quotas.EntityData(entity_type=kind, entity_name=decoded(name)) for kind, name in _parts(entity)]
                entries.append(describe_client_quotas.EntryData(entity=named, values=values))
        return DescribeClientQuotasResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, error_message=None, entries=entries)

    def failed(
        self, request: DescribeClientQuotasRequest, context: RequestContext, error: BrokerError
    ) -> DescribeClientQuotasResponse:
        """The error of the request."""
        return DescribeClientQuotasResponse(throttle_time_ms=0, error_code=error.code, error_message=error.shown_message, entries=None)


class AlterClientQuotasHandler:
    """Sets and removes quotas; each entity fails or succeeds alone."""

    request: type[Request] = AlterClientQuotasRequest
    resources = on_cluster(AclOperation.ALTER_CONFIGS)

    def __init__(self, admin: ConfigAdmin) -> None:
        self._admin = admin

    def __call__(self, request: AlterClientQuotasRequest, context: RequestContext) -> Deferred[AlterClientQuotasResponse]:
        return Deferred.fromCoroutine(self._alter(request, context))

    async def _alter(self, request: AlterClientQuotasRequest, context: RequestContext) -> AlterClientQuotasResponse:
        results = []
        for entry in request.entries:
            error = None
            try:
                entity = _entity([(part.entity_type, part.entity_name) for part in entry.entity])
                changes = _changes(_kinds(entity), entry.ops)
                if not request.validate_only:
                    change = RecordedChange(partial(_changed, changes))
                    await self._admin.change(entity.node, change)
                    change.log(entity.node, context)
            except BrokerError as failure:
                error = failure
            results.append(_result(entry, error))
        return AlterClientQuotasResponse(throttle_time_ms=0, entries=results)

    def failed(self, request: AlterClientQuotasRequest, context: RequestContext, error: BrokerError) -> AlterClientQuotasResponse:
        """Every entity with the same error."""
        return AlterClientQuotasResponse(throttle_time_ms=0, entries=[_result(entry, error) for entry in request.entries])


class _Filter(NamedTuple):
    user: ComponentData | None
    client_id: ComponentData | None
    ip: ComponentData | None
    strict: bool

    @classmethod
    def of(cls, components: Sequence[ComponentData], strict: bool) -> _Filter:
        """INVALID_REQUEST, UNSUPPORTED_VERSION."""
        found: dict[str, ComponentData] = {}
        for component in components:
            kind = component.entity_type
            if kind in found:
                raise BrokerError(ErrorCode.INVALID_REQUEST, f"The filter has the entity type {kind} twice.")
            if kind not in (USER, CLIENT_ID, IP):
                raise BrokerError(ErrorCode.UNSUPPORTED_VERSION, f"The entity type {kind!r} is not supported; use user, client-id or ip.")
            if component.match_type not in (EXACT, DEFAULT, ANY):
                raise BrokerError(ErrorCode.INVALID_REQUEST, f"The match type {component.match_type} does not exist; use 0, 1 or 2.")
            if (component.match_type == EXACT) != (component.match is not None):
                raise BrokerError(ErrorCode.INVALID_REQUEST, "A filter has a name if, and only if, its match type is 0 (exact).")
            found[kind] = component
        if IP in found and len(found) > 1:
            raise BrokerError(ErrorCode.INVALID_REQUEST, "A filter for ip cannot be combined with others.")
        return cls(found.get(USER), found.get(CLIENT_ID), found.get(IP), strict)

    def matches(self, entity: QuotaEntity) -> bool:
        """Whether it selects the entity."""
        if entity.ip is not None:
            return self.user is None and self.client_id is None and self._one(self.ip, entity.ip)
        return self.ip is None and self._one(self.user, entity.user) and self._one(self.client_id, entity.client_id)

    def _one(self, component: ComponentData | None, name: str | None) -> bool:
        if component is None:
            return name is None or not self.strict
        if component.match_type == ANY:
            return name is not None
        return name == (DEFAULT_NAME if component.match is None else encoded(component.match))


def _parts(entity: QuotaEntity) -> Iterable[tuple[str, str]]:
    return [(kind, name) for kind, name in ((USER, entity.user), (CLIENT_ID, entity.client_id), (IP, entity.ip)) if name is not None]


def _kinds(entity: QuotaEntity) -> tuple[str, ...]:
    """The quotas that an entity can have."""
    return KINDS if entity.ip is None else (IP_RATE,)


def _values(entity: QuotaEntity, properties: Mapping[str, str]) -> list[describe_client_quotas.ValueData]:
    values = []
    for key in _kinds(entity):
        try:
            values.append(describe_client_quotas.ValueData(key=key, value=float(properties[key])))
        except (KeyError, ValueError):
            continue  # a malformed one is not in effect; the broker has logged it
    return values


def _entity(parts: Sequence[tuple[str, str | None]]) -> QuotaEntity:
    """INVALID_REQUEST."""
    names: dict[str, str] = {}
    for kind, name in parts:
        if kind not in (USER, CLIENT_ID, IP):
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"The entity type {kind!r} is not supported; use user, client-id or ip.")
        if kind in names:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"The entity has the type {kind} twice.")
        if name is not None and (not 0 < len(name) <= NAME_LENGTH_MAX or name in (".", "..") or not name.isprintable()):
            raise BrokerError(
                ErrorCode.INVALID_REQUEST, f"The name of a {kind} with quotas has 1 to {NAME_LENGTH_MAX} printable characters."
            )
        if kind == IP and name is not None:
            ip = address(name)
            if ip is None:
                raise BrokerError(ErrorCode.INVALID_REQUEST, f"{name} is not an address; names of hosts are not resolved.")
            name = ip
        names[kind] = DEFAULT_NAME if name is None else encoded(name)
    if not names:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "No user, no client-id and no ip is named.")
    if IP in names and len(names) > 1:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "The entity type ip cannot be combined with user or client-id.")
    return QuotaEntity(names.get(USER), names.get(CLIENT_ID), names.get(IP))


def _changes(kinds: Sequence[str], ops: Sequence[OpData]) -> dict[str, str | None]:
    """The new values as text, None for those to be removed; INVALID_REQUEST."""
    changes: dict[str, str | None] = {}
    for op in ops:
        if op.key not in kinds:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"The quota {op.key!r} is not supported here: the quotas are {', '.join(kinds)}.")
        if op.key in changes:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"The quota {op.key} is changed twice.")
        changes[op.key] = None if op.remove else _text(op.key, op.value)
    return changes


def _text(key: str, value: float) -> str:
    if key in _WHOLE:
        low, high = _WHOLE[key]
        whole = int(value + EPSILON) if abs(value) < float("inf") else low - 1
        if not low <= whole <= high or abs(whole - value) > EPSILON:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"The quota {key} must be a whole number from {low} to {high}.")
        return str(whole)
    if not 0 < value < float("inf"):
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"The quota {key} must be a number above 0.")
    return str(value)


def _changed(changes: Mapping[str, str | None], before: Mapping[str, str]) -> dict[str, str]:
    """All else that a user's node has, such as credentials, stays."""
    merged: dict[str, str | None] = {**before, **changes}
    return {key: value for key, value in merged.items() if value is not None}


def _result(entry: alter_client_quotas.EntryData, error: BrokerError | None) -> EntryDataResult:
    code, message = (ErrorCode.NONE, None) if error is None else (error.code, error.message)
    return EntryDataResult(error_code=code, error_message=message, entity=entry.entity)
