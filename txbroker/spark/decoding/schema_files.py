"""The schemas of values, from files: columns in SQL or as JSON Schema, and Avro records. What cannot be understood is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from txbroker.console.failures import CommandFailed
from txbroker.console.input_files import read_text
from txbroker.spark.spark_failures import reason

CORRUPT_MARK = "_txbroker_corrupt"
DECODED_MARK = "_txbroker_decoded"
_TYPES = {"string": "STRING", "integer": "BIGINT", "number": "DOUBLE", "boolean": "BOOLEAN"}
_COMBINED = ("$ref", "oneOf", "anyOf", "allOf", "not")
DEPTH_MAX = 50


def json_columns(spark: Any, path: str) -> Any:
    """The StructType of a file with columns in SQL (`id BIGINT, name STRING`), or with a JSON Schema of an object; CommandFailed."""
    from pyspark.sql.types import StructType

    text = read_text(path).strip()
    try:
        if text.startswith("{"):
            found = spark._jvm.org.apache.spark.sql.types.DataType.fromDDL(_ddl(json.loads(text), 0))
        else:
            found = spark._jvm.org.apache.spark.sql.types.StructType.fromDDL(text)
        schema = StructType.fromJson(json.loads(found.json()))
    except CommandFailed as failed:
        raise CommandFailed(f"the schema {path} {failed}") from None
    except Exception as error:
        raise CommandFailed(f"the schema {path} is neither columns in SQL (id BIGINT, name STRING) nor a JSON Schema: {reason(error)}; "
                            "correct it") from None
    _check_columns(schema, f"the schema {path}", CORRUPT_MARK)
    return schema


def avro_record(spark: Any, text: str, origin: str) -> dict[str, Any]:
    """The JSON of an Avro schema; CommandFailed if it is none, or not of a record. `origin`: where it is from, for errors."""
    from pyspark.sql.types import StructType

    try:
        parsed = spark._jvm.org.apache.avro.Schema.Parser().parse(text)
        found = json.loads(text)
    except Exception as error:
        raise CommandFailed(f"{origin} is no Avro schema: {reason(error)}; correct it") from None
    if not isinstance(found, dict) or found.get("type") != "record":
        raise CommandFailed(f"{origin} is not the schema of a record; only records have columns")
    try:
        columns = StructType.fromJson(json.loads(spark._jvm.org.apache.spark.sql.avro.SchemaConverters.toSqlType(parsed).dataType().json()))
    except Exception as error:
        if "recursive" in str(error):
            raise CommandFailed(f"{origin} has a record within itself, which has no columns; leave the field out") from None
        raise CommandFailed(f"{origin} has no columns in Spark: {reason(error)}; correct it") from None
    _check_columns(columns, origin, DECODED_MARK)
    return found


def _check_columns(columns: Any, origin: str, mark: str, path: Sequence[str] = ()) -> None:
    """CommandFailed for a StructType that a table cannot have, and for one with the field `mark`, which decoding adds."""
    from pyspark.sql.types import NullType, StructType

    if not columns.fields:
        raise CommandFailed(f"{origin} has no columns{' in ' if path else ''}{'.'.join(path)}; add some")
    known: dict[str, str] = {}
    for field in columns.fields:
        name = ".".join((*path, field.name))
        if not path and field.name == mark:
            raise CommandFailed(f"{origin} has a field {mark}, which load uses; rename it")
        if field.name.lower() in known:
            raise CommandFailed(f"{origin} has the fields {known[field.name.lower()]} and {name}, which are one column in Spark: upper and "
                                "lower case do not differ; rename one")
        known[field.name.lower()] = name
        for kind in _nested(field.dataType):
            if isinstance(kind, NullType) or "INTERVAL" in kind.simpleString().upper():
                raise CommandFailed(f"{origin} has the type {kind.simpleString()} in {name}, which tables do not have; use another one")
            if isinstance(kind, StructType):
                _check_columns(kind, origin, mark, (*path, field.name))


def _nested(kind: Any) -> Iterator[Any]:
    """A type, or those in an array or a map."""
    from pyspark.sql.types import ArrayType, MapType

    if isinstance(kind, ArrayType):
        yield from _nested(kind.elementType)
    elif isinstance(kind, MapType):
        yield from _nested(kind.keyType)
        yield from _nested(kind.valueType)
    else:
        yield kind


def marked(record: Mapping[str, Any]) -> str:
    """An Avro schema to read with, which sets DECODED_MARK if a value could be read: Spark shows a failure as a record of nulls."""
    return json.dumps({**record, "fields": [*record["fields"], {"name": DECODED_MARK, "type": "boolean", "default": True}]})


def _ddl(schema: Any, depth: int) -> str:
    """A JSON Schema as a type of SQL. A value whose type is open is kept as its JSON text."""
    if depth > DEPTH_MAX:
        raise CommandFailed(f"is nested more than {DEPTH_MAX} levels deep; make it flatter")
    if schema is True or schema == {}:
        return "STRING"
    if not isinstance(schema, dict):
        raise CommandFailed(f"has {json.dumps(schema)[:80]} in place of a schema; correct it")
    combined = [word for word in _COMBINED if word in schema]
    if combined:
        raise CommandFailed(f"uses {combined[0]}, which has no columns; write the object out, or specify columns in SQL")
    kind = schema.get("type")
    kinds = [one for one in (kind if isinstance(kind, list) else [kind]) if one != "null"]
    if depth == 0 and (kinds != ["object"] or not schema.get("properties")):
        raise CommandFailed("is not the schema of an object with properties; only objects have columns")
    if kinds == ["array"]:
        return f"ARRAY<{_ddl(schema.get('items', True), depth + 1)}>"
    if kinds == ["object"]:
        properties = schema.get("properties")
        if properties:
            fields = (f"`{name.replace('`', '``')}`: {_ddl(found, depth + 1)}" for name, found in properties.items())
            return f"STRUCT<{', '.join(fields)}>"
        more = schema.get("additionalProperties", True)
        return f"MAP<STRING, {_ddl(more, depth + 1)}>" if more is not False else "STRING"
    return _TYPES.get(str(kinds[0]), "STRING") if len(kinds) == 1 else "STRING"
