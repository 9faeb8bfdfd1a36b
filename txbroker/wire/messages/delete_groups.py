"""DeleteGroups (key 42): versions 0-2, flexible from 2."""

from __future__ import annotations

from txbroker.wire.schema import Int16, Int32, Request, Response, String, Struct


class DeleteGroupsRequest(Request, key=42, versions="0-2", flexible="2+"):
    groups_names: list[String]


class DeletableGroupResult(Struct):
    group_id: String
    error_code: Int16


class DeleteGroupsResponse(Response, key=42, versions="0-2", flexible="2+"):
    throttle_time_ms: Int32
    results: list[DeletableGroupResult]
