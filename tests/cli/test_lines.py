"""How `txbroker produce` parses lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txbroker.cli.line_reader import Line, LineFormat, line_format
from txbroker.cli.produce import parse
from txbroker.console.failures import BadUsage, CommandFailed

KEYED = {"parse.key": "true"}
ALL = {**KEYED, "parse.headers": "true"}


@pytest.mark.parametrize(
    ("properties", "line", "expected"),
    [
        ({}, b"a\tb:c", Line(None, b"a\tb:c", [])),
        ({}, b"", Line(None, b"", [])),
        ({}, b"\xff\x00", Line(None, b"\xff\x00", [])),
        (KEYED, b"k\tv", Line(b"k", b"v", [])),
        (KEYED, b"\t", Line(b"", b"", [])),
        (KEYED, b"k\tv\tw", Line(b"k", b"v\tw", [])),
        ({**KEYED, "key.separator": "::"}, b"k:1::v", Line(b"k:1", b"v", [])),
        ({**KEYED, "key.separator": "→"}, "k→v".encode(), Line(b"k", b"v", [])),
        ({**KEYED, "ignore.error": "true"}, b"v", Line(None, b"v", [])),
        ({**KEYED, "null.marker": "NULL"}, b"k\tNULL", Line(b"k", None, [])),
        ({**KEYED, "null.marker": "NULL"}, b"NULL\tv", Line(None, b"v", [])),
        ({**KEYED, "null.marker": ""}, b"k\t", Line(b"k", None, [])),
        (ALL, b"a:1,b:2,a:3\tk\tv", Line(b"k", b"v", [("a", b"1"), ("b", b"2"), ("a", b"3")])),
        (ALL, b"\tk\tv", Line(b"k", b"v", [])),
        (ALL, b"a:\tk\tv", Line(b"k", b"v", [("a", b"")])),
        ({"parse.headers": "true"}, b"a:1\tv\tw", Line(None, b"v\tw", [("a", b"1")])),
        ({**ALL, "null.marker": "-"}, b"-\tk\tv", Line(b"k", b"v", [])),
        (
            {**ALL, "headers.delimiter": "|", "headers.separator": ";", "headers.key.separator": "=", "key.separator": "|"},
            b"a=1;b=2|k|v",
            Line(b"k", b"v", [("a", b"1"), ("b", b"2")]),
        ),
    ],
)
def test_lines(properties: dict[str, str], line: bytes, expected: Line) -> None:
    assert line_format(properties).parse(line, 1) == expected


@pytest.mark.parametrize(
    ("properties", "line", "complaint"),
    [
        (KEYED, b"value only", r"line 7 has no key.separator '\\t': 'value only'; correct the line, or set --reader-prop"),
        (KEYED, b"x" * 200, r"x{60}'…; "),
        (ALL, b"k", r"line 7 has no headers.delimiter '\\t'"),
        (ALL, b"a:1\tv", r"line 7 has no key.separator '\\t': 'v'"),
        (ALL, b"a\tk\tv", "line 7 has a header without headers.key.separator ':': 'a'"),
        ({**KEYED, "null.marker": "-"}, b"-\t-", "line 7 has neither a key nor a value"),
        ({"null.marker": "-"}, b"-", "line 7 has neither a key nor a value"),
    ],
)
def test_malformed_lines(properties: dict[str, str], line: bytes, complaint: str) -> None:
    with pytest.raises(CommandFailed, match=complaint):
        line_format(properties).parse(line, 7)


@pytest.mark.parametrize(("end", "rest"), [(b"\n", b""), (b"\r\n", b""), (b"", b""), (b"\r\r\n", b"\r"), (b"\n\r", b"\n")])
def test_line_ends_are_not_part_of_values(end: bytes, rest: bytes) -> None:
    assert parse(LineFormat(), b"v" + end, 1).value == b"v" + rest


@given(st.binary().filter(lambda key: b"\t" not in key), st.binary())
def test_keys_and_values_are_not_changed(key: bytes, value: bytes) -> None:
    assert line_format(KEYED).parse(key + b"\t" + value, 1) == Line(key, value, [])


@pytest.mark.parametrize(
    ("properties", "complaint"),
    [
        ({"parse.kye": "true"}, "parse.kye is not known; known are parse.key, parse.headers, key.separator, "),
        ({"parse_key": "true"}, "parse_key is not known"),
        ({"parse.key": "yes"}, "parse.key is 'yes'; it must be true or false"),
        ({"key.separator": ""}, "key.separator must not be empty"),
    ],
)
def test_invalid_properties(properties: dict[str, str], complaint: str) -> None:
    with pytest.raises(BadUsage, match=complaint):
        line_format(properties)
