"""`load --decode-value`: decoded columns beside the raw ones. No value ends a load, and no record is left out."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer

from tests.cli.commands import run
from tests.spark.loads import Load, offsets
from tests.support.raw_admin import create_topic
from tests.support.server import Server
from txbroker.console.failures import BadUsage, CommandFailed
from txbroker.spark.decoding.decoding import Decoding
from txbroker.spark.decoding.schema_files import avro_record, json_columns
from txbroker.spark.load import LoadOptions, load
from txbroker.spark.tables.opening import open_table
from txbroker.spark.topic_source import TopicSource

FIRST = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}, {"name": "item", "type": ["null", "string"]}]}
SECOND = {**FIRST, "fields": [*FIRST["fields"], {"name": "count", "type": "int", "default": 1}]}
OTHER = {"type": "record", "name": "Other", "fields": [{"name": "name", "type": "string"}]}

RECURSIVE = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}


def send(broker: Server, topic: str, values: Sequence[bytes | None]) -> None:
    """To partition 0."""
    producer = KafkaProducer(bootstrap_servers=broker.address)
    for value in values:
        producer.send(topic, value, b"k", partition=0)
    producer.close()


def order(number: int, item: str | None, *more: int) -> bytes:
    """An Avro record of FIRST, and of SECOND with a count. Numbers are small: one zigzag byte."""
    text = b"\0" if item is None else b"\2" + bytes([2 * len(item)]) + item.encode()
    return bytes([2 * number]) + text + bytes(2 * one for one in more)


def framed(number: int, payload: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + payload


def decoded(spark: Any, table: Path) -> list[tuple[Any, str | None]]:
    """The decoded value, as a tuple, and the error, by offset."""
    rows = open_table(spark, str(table)).read().orderBy("offset").collect()
    return [(None if row.decoded is None else tuple(row.decoded), row.decode_error) for row in rows]


@pytest.fixture
def one(broker: Server, name: str) -> str:
    """An empty topic of one partition."""
    create_topic(broker, name)
    return name


@pytest.fixture
def loads(spark: Any, broker: Server, one: str, table: Path) -> Load:
    def loads(decoding: Decoding, form: str = "parquet") -> Any:
        return load(spark, LoadOptions(TopicSource(broker.address, [one]), str(table), format=form, decoding=decoding))

    return loads


@pytest.mark.parametrize("form", ["delta", "parquet"])
def test_json(spark: Any, broker: Server, one: str, table: Path, tmp_path: Path, loads: Load, form: str) -> None:
    schema = tmp_path / "order.sql"
    schema.write_text("id BIGINT, item STRING, at STRUCT<lat: DOUBLE>\n")
    values = [b'{"id": 1, "item": "book", "at": {"lat": 1.5}, "more": 1}', b'{"id": 2}', None, b"", b"no JSON", b'{"id": "two"}', b"\xff{}",
              b'{"id": 9223372036854775808}', b"[]", b"null", b"3", b'{"id": 3}{"id": 4}', b'{"id": 3} end', b'{"id": 3}] [',
              b' {"id": 6}\n']  # fmt: skip
    send(broker, one, values)
    report = loads(Decoding("json", str(schema)), form)
    wrong, text = "the value does not match the JSON schema", "the value is not valid UTF-8"
    assert decoded(spark, table) == [((1, "book", (1.5,)), None), ((2, None, None), None), (None, None), (None, wrong), (None, wrong),
                                     (None, wrong), (None, text), *[(None, wrong)] * 7, ((6, None, None), None)]  # fmt: skip
    assert (report.undecodable, report.checked[0].first_undecodable, report.wrong) == (11, 3, [])
    raw = open_table(spark, str(table)).read().orderBy("offset").collect()
    assert [None if row.value is None else bytes(row.value) for row in raw] == values, "raw values are always there"

    # Fields are added in the next load, and rows without decoding have nulls.
    schema.write_text("id BIGINT, item STRING, at STRUCT<lat: DOUBLE, lon: DOUBLE>, count INT")
    send(broker, one, [b'{"id": 4, "at": {"lon": 2}, "count": 7}'])
    loads(Decoding("json", str(schema)), form)
    send(broker, one, [b'{"id": 5}'])
    loads(Decoding(), form)
    found = decoded(spark, table)
    assert found[0] == ((1, "book", (1.5, None), None), None)
    assert found[-2:] == [((4, None, (None, 2.0), 7), None), (None, None)]
    schema.write_text("id STRING")
    send(broker, one, [b"{}"])
    with pytest.raises(CommandFailed, match=r"the column decoded\.id is bigint in the table, and string by the schema of this load"):
        loads(Decoding("json", str(schema)), form)
    assert len(offsets(spark, table)) == len(values) + 2


def test_avro(spark: Any, broker: Server, one: str, table: Path, tmp_path: Path, loads: Load) -> None:
    schema = tmp_path / "order.avsc"
    schema.write_text(json.dumps(FIRST))
    send(broker, one, [order(1, "book"), order(2, None), None, b"", b"\2", b"\2\2\xff\xff\xff\xff\x0f", b"\2\7"])
    report = loads(Decoding("avro", str(schema)))
    wrong = "the value does not match the Avro schema"
    assert decoded(spark, table) == [((1, "book"), None), ((2, None), None), (None, None), *[(None, wrong)] * 4]
    assert report.undecodable == 4 and not report.wrong


class Registry(ThreadingHTTPServer):
    """A schema registry: `GET /schemas/ids/ID`. Keeps the paths and the credentials of requests."""

    def __init__(self, schemas: Mapping[int, dict[str, Any]]) -> None:
        self.schemas = schemas
        self.requests: list[tuple[str, str | None]] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://user:pass%40word@127.0.0.1:{self.server_port}/"


class _Handler(BaseHTTPRequestHandler):
    server: Registry

    def do_GET(self) -> None:
        self.server.requests.append((self.path, self.headers["Authorization"]))
        found = self.server.schemas.get(int(self.path.removeprefix("/schemas/ids/")))
        content = json.dumps(found or {"error_code": 40403, "message": "Schema not found"}).encode()
        self.send_response(200 if found else 404)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@pytest.fixture
def registry() -> Iterator[Registry]:
    schemas = {1: {"schema": json.dumps(FIRST)}, 2: {"schema": json.dumps(SECOND)}, 3: {"schemaType": "PROTOBUF", "schema": "message"},
               4: {"schema": "no Avro"}, 5: {"schema": json.dumps(OTHER)}, 6: {"schema": json.dumps(RECURSIVE)}}  # fmt: skip
    server = Registry(schemas)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def test_values_with_the_number_of_their_schema(spark: Any, broker: Server, one: str, table: Path, tmp_path: Path, registry: Registry,
                                                loads: Load) -> None:
    reader = tmp_path / "order.avsc"
    reader.write_text(json.dumps(SECOND))
    send(broker, one, [framed(1, order(1, "book")), framed(2, order(2, None, 9)), None, b"\0\0\0\0", b"{}{}{}", framed(3, b"x"),
                       framed(4, b"x"), framed(5, b"\2x"), framed(2**32 - 1, b""), framed(2, b""), framed(6, b"\0")])  # fmt: skip
    report = loads(Decoding("registry", str(reader), registry.url))
    found = decoded(spark, table)
    assert [value for value, _ in found] == [(1, "book", 1), (2, None, 9), *[None] * 9]
    errors = [error for _, error in found]
    assert errors[:3] == [None] * 3
    assert errors[3] == errors[4] == "the value has no schema number: it does not begin with a zero byte and four more"
    assert errors[5] == "schema 3 is PROTOBUF, and only Avro is decoded"
    assert errors[6] is not None and errors[6].startswith("schema 4 is no Avro schema")
    assert errors[7] == "the value does not match the Avro schema 5"
    assert errors[8] == f"there is no schema {2**32 - 1} at http://127.0.0.1:{registry.server_port}", "without the password"
    assert errors[9] == "the value does not match the Avro schema 2"
    assert errors[10] == "schema 6 has a record within itself, which has no columns; leave the field out"
    assert report.undecodable == 8
    assert {credentials for _, credentials in registry.requests} == {"Basic dXNlcjpwYXNzQHdvcmQ="}
    assert sorted(path for path, _ in registry.requests) == [f"/schemas/ids/{number}" for number in (1, 2, 3, 4, 4294967295, 5, 6)]


def test_a_folder_of_schemas_and_the_newest_one(spark: Any, broker: Server, one: str, table: Path, tmp_path: Path, loads: Load) -> None:
    """The table's columns grow when a later load finds a newer schema; and a load without any usable schema keeps them."""
    folder = tmp_path / "schemas"
    folder.mkdir()
    (folder / "7.avsc").write_text(json.dumps(FIRST))
    send(broker, one, [framed(7, order(1, "a"))])
    loads(Decoding("registry", registry=str(folder)))
    assert decoded(spark, table) == [((1, "a"), None)]
    (folder / "12.avsc").write_text(json.dumps(SECOND))
    send(broker, one, [framed(7, order(2, "b")), framed(12, order(3, "c", 5))])
    loads(Decoding("registry", registry=str(folder)))
    send(broker, one, [b"?"])
    loads(Decoding("registry", registry=str(folder)))
    assert [value for value, _ in decoded(spark, table)] == [(1, "a", None), (2, "b", 1), (3, "c", 5), None]


def test_what_is_refused_before_a_table_is_touched(spark: Any, broker: Server, one: str, table: Path, tmp_path: Path, loads: Load) -> None:
    def written(file: str, text: str) -> str:
        (tmp_path / file).write_text(text)
        return str(tmp_path / file)

    bad, enum = written("bad", "{"), written("enum.avsc", '{"type": "enum", "name": "E", "symbols": ["A"]}')
    send(broker, one, [framed(1, b"")])
    for decoding, text in (
        (Decoding("json", bad), "is neither columns in SQL"),
        (Decoding("json", str(tmp_path / "missing")), "missing"),
        (Decoding("avro", bad), "is no Avro schema"),
        (Decoding("avro", enum), "is not the schema of a record"),
        (Decoding("registry", registry=str(tmp_path / "missing")), "does not exist; correct --registry"),
        (Decoding("registry", registry="http://127.0.0.1:1"), "cannot be reached"),
        *((Decoding("json", written(f"{number}.sql", sql)), text) for number, (sql, text) in enumerate((
            ("id INT, ID INT", "has the fields id and ID, which are one column in Spark"),
            ("a STRUCT<b: ARRAY<STRUCT<c: VOID>>>", r"has the type void in a\.b\.c, which tables do not have"),
            ("id INTERVAL DAY", "has the type interval day in id"),
            ("id INT, _txbroker_corrupt STRING", "which load uses"),
            ('{"type": "object", "properties": {"first name": {"type": "string"}}}', "a Delta table cannot have the column 'first name'"),
        ))),
        (Decoding("avro", written("case.avsc", json.dumps({**FIRST, "fields": [*FIRST["fields"], {"name": "ID", "type": "int"}]}))),
         "has the fields id and ID"),
        (Decoding("avro", written("node.avsc", json.dumps(RECURSIVE))), "has a record within itself"),
        (Decoding("avro", written("empty.avsc", json.dumps({**FIRST, "fields": []}))), "has no columns; add some"),
    ):
        with pytest.raises(CommandFailed, match=text):
            loads(decoding, "delta")
        assert not table.exists()
    # Here Spark fails while the numbers of the schemas are read.
    failing = TopicSource(broker.address, [one], properties={"fetch.max.bytes": "many"})
    with pytest.raises(CommandFailed, match=r"Invalid value many for configuration fetch\.max\.bytes"):
        load(spark, LoadOptions(failing, str(table), format="delta", decoding=Decoding("registry", registry=str(tmp_path))))
    assert not table.exists()
    unusable = (Decoding("avro"), Decoding("none", "schema"), Decoding("registry"), Decoding("json", "s", "folder"), Decoding(bad_max=1))
    for decoding in (*unusable, *(Decoding("registry", registry=f"http://{host}") for host in ("", "[::1"))):
        with pytest.raises(BadUsage):
            loads(decoding)


@pytest.mark.usefixtures("commands_share_the_session")
def test_too_many_bad_values(spark: Any, broker: Server, one: str, table: Path, tmp_path: Path) -> None:
    schema, report = tmp_path / "schema", tmp_path / "report.json"
    schema.write_text("id INT")
    send(broker, one, [b'{"id": 1}', b"x", b"y"])
    flags = ("--bootstrap-server", broker.address, "--topic", one, "--table", str(table), "--decode-value", "json", "--schema", str(schema),
             "--max-bad", "1", "--json", str(report))  # fmt: skip
    output, complaint = run("spark", "load", *flags, status=1)
    line = f"{one}-0 [0, 3): 3 rows, 2 undecodable (first at 1: the value does not match the JSON schema)"
    assert output.splitlines() == [line, "3 rows of 3 offsets in 1 partition loaded"]
    assert "2 values could not be decoded, more than --max-bad 1; all rows are loaded" in complaint
    written = json.loads(report.read_text())
    assert (written["ok"], written["undecodable"], written["partitions"][0]["first_undecodable"]) == (False, 2, 1)
    send(broker, one, [b"z"])
    run("spark", "load", *flags)


def test_a_json_schema_as_columns(spark: Any, tmp_path: Path) -> None:
    file = tmp_path / "schema.json"

    def columns(schema: dict[str, Any]) -> str:
        file.write_text(json.dumps(schema))
        return str(json_columns(spark, str(file)).simpleString())

    properties = {
        "id": {"type": "integer"}, "price": {"type": ["null", "number"]}, "paid": {"type": "boolean"},
        "note": {"type": ["string", "integer"]}, "tags": {"type": "array", "items": {"type": "string"}},
        "by day": {"type": "object", "additionalProperties": {"type": "integer"}},
        "at": {"type": "object", "properties": {"lat": {"type": "number"}}}, "any": {},
        "odd`name": {"type": "string", "format": "date-time"},
    }  # fmt: skip
    assert columns({"type": "object", "properties": properties}) == (
        "struct<id:bigint,price:double,paid:boolean,note:string,tags:array<string>,by day:map<string,bigint>,at:struct<lat:double>,"
        "any:string,odd`name:string>"
    )
    deep: dict[str, Any] = {}
    for _ in range(60):
        deep = {"type": "array", "items": deep}
    for schema, text in (
        ({"type": "array"}, "is not the schema of an object"), ({"type": "object"}, "is not the schema of an object"),
        ({"type": "object", "properties": {"a": {"$ref": "#/x"}}}, r"uses \$ref"),
        ({"type": "object", "properties": {"a": 3}}, "has 3 in place"),
        ({"type": "object", "properties": {"a": deep}}, "nested more than"),
    ):  # fmt: skip
        with pytest.raises(CommandFailed, match=text):
            columns(schema)


def test_avro_schemas_that_are_refused(spark: Any) -> None:
    assert avro_record(spark, json.dumps(FIRST), "x") == FIRST
    for text in ("", "[]", '"string"', '{"type": "record", "name": "R"}', '{"type": "record", "name": "R", "fields": [{"name": "a"}]}'):
        with pytest.raises(CommandFailed, match=r"x is (no Avro schema|not the schema of a record)"):
            avro_record(spark, text, "x")
