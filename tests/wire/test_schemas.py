"""Every declaration is compared with the schemas of kafka-python, and every message with kio's codec."""

from __future__ import annotations

import importlib
import importlib.resources
import json
import pkgutil
import re
from typing import Any

import pytest

import txbroker.wire.messages as messages_package
from txbroker.wire import codec
from txbroker.wire.fieldkinds import Kind, resolve
from txbroker.wire.schema import Data, Message, Request, Response, Struct, VersionRange, parse_versions, response_class


def declared() -> dict[str, type[Message]]:
    found = {}
    for info in pkgutil.iter_modules(messages_package.__path__):
        module = importlib.import_module(f"{messages_package.__name__}.{info.name}")
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Message) and value.__module__ == module.__name__:
                found[value.__name__] = value
    return found


DECLARED = declared()


def oracle() -> dict[str, dict[str, Any]]:
    folder = importlib.resources.files("kafka.protocol.schemas.resources")
    schemas = {}
    for entry in folder.iterdir():
        if entry.name.endswith(".json"):
            text = re.sub(r"^\s*//.*$", "", entry.read_text(), flags=re.M)
            schema = json.loads(text)
            schemas[schema["name"]] = schema
    return schemas


ORACLE = oracle()
COMMON = sorted(set(DECLARED) & set(ORACLE))


def snake(name: str) -> str:
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()


def overlap(a: VersionRange, b: VersionRange) -> VersionRange:
    return VersionRange(max(a.low, b.low), min(a.high, b.high))


def wire_type(kind: Kind) -> str:
    return f"[]{wire_type(kind.element)}" if kind.element is not None else "struct" if kind.struct is not None else kind.name


def schema_type(text: str) -> str:
    inner = text.removeprefix("[]")
    prefix = "[]" if text.startswith("[]") else ""
    return prefix + ("struct" if inner[0].isupper() else inner)


def struct_of(kind: Kind) -> type[Struct] | None:
    return struct_of(kind.element) if kind.element is not None else kind.struct


def compare(cls: type[Struct], fields: list[dict[str, Any]], common: dict[str, Any], valid: VersionRange, flexible: VersionRange) -> int:
    ours = {f.name: f for f in resolve(cls)}
    checked = 0
    order = list(ours)
    last = -1
    for schema in fields:
        versions = overlap(parse_versions(schema["versions"]), valid)
        if versions.low > versions.high:
            continue
        name = snake(schema["name"])
        assert name in ours, f"{cls.__name__} lacks {name}"
        field = ours[name]
        where = f"{cls.__name__}.{name}"
        assert wire_type(field.kind) == schema_type(schema["type"]), where
        for version in range(valid.low, valid.high + 1):
            there = version in versions
            assert (field.carried(version) or field.tagged(version)) == there, (where, version)
            if there:
                tagged = version in parse_versions(schema.get("taggedVersions", "none"))
                assert field.tagged(version) == tagged, (where, version)
                assert not tagged or field.field.tag == schema["tag"], where
                nullable = version in parse_versions(schema.get("nullableVersions", "none"))
                assert field.nullable(version) == nullable, (where, version)
        if "taggedVersions" not in schema:
            assert order.index(name) > last, f"{where} is not in order"
            last = order.index(name)
        default = schema.get("default")
        if default is not None and schema_type(schema["type"]) in ("int8", "int16", "int32", "int64"):
            assert field.field.default == int(str(default), 0), where
        inner = struct_of(field.kind)
        if inner is not None:
            inner_fields = schema.get("fields") or common[schema["type"].removeprefix("[]")]
            checked += compare(inner, inner_fields, common, versions, flexible)
        checked += 1
    theirs = {snake(f["name"]) for f in fields}
    for name, field in ours.items():
        extra = overlap(field.field.versions, valid)
        assert name in theirs or extra.low > extra.high or valid.high < extra.low, f"{cls.__name__}.{name} is not in the schema"
    return checked


@pytest.mark.parametrize("name", COMMON)
def test_declaration_agrees_with_kafka_python(name: str) -> None:
    schema = ORACLE[name]
    if schema["validVersions"] == "none":
        return
    cls = DECLARED[name]
    valid = overlap(parse_versions(schema["validVersions"]), cls.versions)
    flexible = parse_versions(schema.get("flexibleVersions", "none"))
    for version in range(valid.low, valid.high + 1):
        assert (version in cls.flexible) == (version in flexible), version
    common = {c["name"]: c["fields"] for c in schema.get("commonStructs", [])}
    assert compare(cls, schema["fields"], common, valid, flexible) > 0 or not schema["fields"]


def test_most_declarations_are_compared() -> None:
    assert len(COMMON) > 100


def test_every_request_has_its_response_with_the_same_versions() -> None:
    requests = [c for c in DECLARED.values() if issubclass(c, Request)]
    assert len(requests) == 84
    for request in requests:
        response = response_class(request)
        assert issubclass(response, Response)
        assert (response.versions, response.flexible, response.api_key) == (request.versions, request.flexible, request.api_key)


def test_records_of_internal_topics_are_declared() -> None:
    kept = {n for n, c in DECLARED.items() if issubclass(c, Data)}
    assert kept >= {"OffsetCommitKey", "OffsetCommitValue", "GroupMetadataKey", "GroupMetadataValue", "TransactionLogKey"}
    assert kept >= {"TransactionLogValue", "ProducerSnapshot"}


@pytest.mark.parametrize("name", sorted(DECLARED))
def test_every_version_compiles(name: str) -> None:
    cls = DECLARED[name]
    for version in range(cls.versions.low, cls.versions.high + 1):
        codec.decoder(cls, version)
        codec.encoder(cls, version)
