"""The description of the control port in OpenAPI 3.1, from the list of its operations."""

from __future__ import annotations

from collections.abc import Iterable

from txbroker import __version__
from txbroker.testing.control_forms import COUNT, EMPTY, TEXT, Operation, Schema, object_of

ROOT = "/v1"
_JSON = "application/json"


def openapi_document(operations: Iterable[Operation]) -> dict[str, object]:
    """The document, for JSON."""
    paths: dict[str, dict[str, object]] = {}
    for operation in operations:
        paths.setdefault(ROOT + operation.path, {})[operation.method.lower()] = _described(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "The control port of a txbroker for tests",
            "version": __version__,
            "description": "Rules for faults, and the journal of requests. It listens on 127.0.0.1; the Host header must name its port.",
        },
        "paths": paths,
        "components": {"schemas": {"Error": object_of(error={**TEXT, "description": "what is wrong, and what to do, in one line"})}},
    }


def _described(operation: Operation) -> dict[str, object]:
    parameters = [_parameter(name, "path", COUNT, required=True) for name in operation.variables]
    parameters += [_parameter(name, "query", schema, required=False) for name, schema in operation.query.items()]
    described: dict[str, object] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": parameters,
        "responses": {
            "200": {"description": "It is done.", "content": {_JSON: {"schema": operation.answer}}},
            "default": {"description": "It is refused.", "content": {_JSON: {"schema": {"$ref": "#/components/schemas/Error"}}}},
        },
    }
    if operation.method == "POST":
        described["requestBody"] = {"required": operation.needs_body, "content": {_JSON: {"schema": operation.body or EMPTY}}}
    return described


def _parameter(name: str, place: str, schema: Schema, *, required: bool) -> dict[str, object]:
    return {"name": name, "in": place, "required": required, "schema": schema}
