"""Decodes the values of records into a struct, beside the raw columns: `decoded`, and `decode_error` where that failed.

No record is dropped and no error of Spark is caused by a value: `decoded` is null then, and `decode_error` says why. A null value (a
tombstone) is no error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from txbroker.console.failures import BadUsage, CommandFailed
from txbroker.console.input_files import read_text
from txbroker.spark.decoding.schema_files import CORRUPT_MARK, DECODED_MARK, avro_record, json_columns, marked
from txbroker.spark.decoding.schema_registry import SchemaRegistry, UnknownSchema, registry

DECODED, ERROR = "decoded", "decode_error"
KINDS = ("none", "json", "avro", "registry")
SCHEMAS_MAX = 200  # of one load; each is a branch of Spark's plan
Decode = Callable[[Any], Any]


@dataclass(frozen=True)
class Decoding:
    """`kind`: one of KINDS. `schema`: a file. `registry`: a folder or an URL. `bad_max`: more undecodable values are wrong data."""

    kind: str = "none"
    schema: str | None = None
    registry: str | None = None
    bad_max: int | None = None

    def check(self) -> None:
        """BadUsage for options that do not belong together."""
        if self.kind in ("json", "avro") and self.schema is None:
            raise BadUsage(f"--decode-value {self.kind} needs --schema FILE")
        if self.kind == "none" and self.schema is not None:
            raise BadUsage("--schema is without --decode-value; add --decode-value json, avro or registry")
        if (self.kind == "registry") is (self.registry is None):
            raise BadUsage("specify --registry with --decode-value registry, and only with it")
        if self.kind == "none" and self.bad_max is not None:
            raise BadUsage("--max-bad is without --decode-value; add --decode-value json, avro or registry")

    def prepare(self, spark: Any) -> Decode:
        """Read the schema; what decodes a DataFrame of records. CommandFailed for a schema that cannot be used."""
        if self.kind == "json":
            assert self.schema is not None
            return _JsonValues(json_columns(spark, self.schema))
        if self.kind == "none":
            return lambda records: records
        given = None if self.schema is None else avro_record(spark, read_text(self.schema), f"the schema {self.schema}")
        if self.kind == "avro":
            assert given is not None
            return _AvroValues(given)
        assert self.registry is not None
        return _RegistryValues(spark, registry(self.registry), given)


NOT_DECODED = Decoding()


class _JsonValues:
    def __init__(self, schema: Any) -> None:
        from pyspark.sql.types import StringType, StructField, StructType

        self._schema = StructType([*schema.fields, StructField(CORRUPT_MARK, StringType())])

    def __call__(self, records: Any) -> Any:
        from pyspark.sql import functions as f

        text = f.try_validate_utf8(f.col("value").cast("string"))
        parsed = f.from_json(text, self._schema, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT_MARK})
        frame = records.withColumn(DECODED, parsed)
        # Spark's parser ignores what follows the object; an array of it and a number then is no array of two.
        is_one = f.json_array_length(f.concat(f.lit("["), text, f.lit(",0]"))).eqNullSafe(2)
        bad = f.col(DECODED).isNull() | f.col(DECODED)[CORRUPT_MARK].isNotNull() | ~is_one
        reason = f.when(text.isNull(), "the value is not valid UTF-8").when(bad, "the value does not match the JSON schema")
        return _finished(frame, f.when(f.col("value").isNotNull(), reason), CORRUPT_MARK)


class _AvroValues:
    def __init__(self, record: Mapping[str, Any]) -> None:
        self._record = record

    def __call__(self, records: Any) -> Any:
        from pyspark.sql import functions as f

        frame = records.withColumn(DECODED, _from_avro(f.col("value"), self._record, self._record))
        reason = f.when(f.col(DECODED)[DECODED_MARK].isNull(), "the value does not match the Avro schema")
        return _finished(frame, f.when(f.col("value").isNotNull(), reason), DECODED_MARK)


class _RegistryValues:
    """Finds the schemas of the values first, in a job of its own; then decodes each value with the schema that wrote it, as `given`.

    Without `given` as the schema with the highest number: registries count up, so it is the newest.
    """

    def __init__(self, spark: Any, schemas: SchemaRegistry, given: Mapping[str, Any] | None) -> None:
        self._spark = spark
        self._schemas = schemas
        self._given = given

    def __call__(self, records: Any) -> Any:
        from pyspark.sql import functions as f

        value = f.col("value")
        framed = (f.length(value) >= 5) & (f.substring(value, 1, 1) == f.lit(b"\0"))
        number = f.when(framed, f.conv(f.hex(f.substring(value, 2, 4)), 16, 10).cast("bigint"))
        counted = records.select(number.alias("number")).where("number IS NOT NULL").groupBy("number").count()
        numbers = [row[0] for row in counted.orderBy(f.desc("count"), "number").limit(SCHEMAS_MAX).collect()]
        found, unusable = self._find(numbers)
        reader = self._given or (found[max(found)] if found else None)
        reason = f.when(~framed, "the value has no schema number: it does not begin with a zero byte and four more")
        for one, why in sorted(unusable.items()):
            reason = reason.when(number == one, why)
        if reader is None:
            return records.withColumn(ERROR, f.when(value.isNotNull(), reason.otherwise("the value's schema is not known")))
        payload = f.expr("substring(value, 6)")
        decoded = f.lit(None)
        for one, writer in sorted(found.items()):
            decoded = f.when(number == one, _from_avro(payload, writer, reader)).otherwise(decoded)
        frame = records.withColumn(DECODED, decoded)
        failed = f.concat(f.lit("the value does not match the Avro schema "), number.cast("string"))
        reason = reason.when(f.col(DECODED)[DECODED_MARK].isNull(), failed)
        return _finished(frame, f.when(value.isNotNull(), reason), DECODED_MARK)

    def _find(self, numbers: Sequence[int]) -> tuple[dict[int, Mapping[str, Any]], dict[int, str]]:
        """The schemas that can be used, and why others cannot."""
        found: dict[int, Mapping[str, Any]] = {}
        unusable: dict[int, str] = {}
        for number in numbers:
            try:
                text = self._schemas.schema(number)
            except UnknownSchema as unknown:
                unusable[number] = str(unknown)
                continue
            try:
                found[number] = avro_record(self._spark, text, f"schema {number}")
            except CommandFailed as failed:
                unusable[number] = str(failed)
        return found, unusable


def _from_avro(payload: Any, writer: Mapping[str, Any], reader: Mapping[str, Any]) -> Any:
    from pyspark.sql.avro.functions import from_avro

    return from_avro(payload, json.dumps(writer), {"mode": "PERMISSIVE", "avroSchema": marked(reader)})


def _finished(frame: Any, reason: Any, mark: str) -> Any:
    """With `decode_error`, and `decoded` null where that is set, and without the field that showed it."""
    from pyspark.sql import functions as f

    frame = frame.withColumn(ERROR, reason)
    decoded = f.when(f.col(ERROR).isNull() & f.col("value").isNotNull(), f.col(DECODED).dropFields(mark))
    return frame.withColumn(DECODED, decoded)
