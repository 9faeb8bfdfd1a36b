"""AlterClientQuotas (key 49): versions 0-1, flexible from 1."""

from __future__ import annotations

from txbroker.wire.schema import Bool, Float64, Int16, Int32, Request, Response, String, Struct


class EntityData(Struct):
    entity_type: String
    entity_name: String | None


class OpData(Struct):
    key: String
    value: Float64
    remove: Bool


class EntryData(Struct):
    entity: list[EntityData]
    ops: list[OpData]


class AlterClientQuotasRequest(Request, key=49, versions="0-1", flexible="1+"):
    entries: list[EntryData]
    validate_only: Bool


class EntryDataResult(Struct):
    error_code: Int16
    error_message: String | None
    entity: list[EntityData]


class AlterClientQuotasResponse(Response, key=49, versions="0-1", flexible="1+"):
    throttle_time_ms: Int32
    entries: list[EntryDataResult]
