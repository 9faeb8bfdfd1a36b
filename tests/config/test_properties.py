from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txbroker.config.properties import Origin, parse_overrides, parse_properties
from txbroker.errors import ConfigError


def texts(data: str, **environment: str) -> dict[str, str]:
    return {name: written.text for name, written in parse_properties(data.encode(), "f", environment).items()}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a = b c ", {"a": "b c "}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a\t:\fb", {"a": "b"}),
        ("  a  =  b", {"a": "b"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a==b", {"a": "=b"}),
        ("a: =b", {"a": "=b"}),
        ("=b", {"": "b"}),
        ("# a=b\n  ! c=d\n\n \t\ne=f", {"e": "f"}),
        ("a=#b!", {"a": "#b!"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=b,\\\n    c,\\\r\n  d", {"a": "b,c,d"}),
        ("a=b\\\n# no comment here", {"a": "b# no comment here"}),
        ("# a comment does not go on \\\na=b", {"a": "b"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\", {"a": "b"}),
        ("a=b\\\n", {"a": "b"}),
        ("a\\ b\\=c\\:d = e", {"a b=c:d": "e"}),
        ("a=\\t\\n\\r\\f\\x\\\"", {"a": "\t\n\r\fx\""}),
        ("a=\\u00e4\\u20AC", {"a": "ä€"}),
        ("a=\\ud83d\\ude00", {"a": "😀"}),
        ("a=\\ud83d!", {"a": "\ufffd!"}),
        ("\\u0061=b", {"a": "b"}),
        ("a=ä😀", {"a": "ä😀"}),
        ("\ufeffa=b", {"a": "b"}),
    ],
)
def test_the_format_of_java_properties(data: str, expected: dict[str, str]) -> None:
    assert texts(data) == expected


def test_files_that_are_not_utf_8_are_read_as_latin_1() -> None:
    assert parse_properties(b"a=\xe4", "f", {})["a"].text == "ä"


def test_each_value_has_the_number_of_its_first_line() -> None:
    parsed = parse_properties(b"# one\na=1\n\nb=2\\\n  3\nc=4\na=5", "server.properties", {})
    assert {name: str(written.origin) for name, written in parsed.items()} == {
        "a": "server.properties:7", "b": "server.properties:4", "c": "server.properties:6",
    }


def test_environment_variables() -> None:
    assert texts("a=${env:HOST}:${env:PORT}/${other:x}${env", HOST="h", PORT="1") == {"a": "h:1/${other:x}${env"}
    assert texts("a=${env:A}", A="${env:B}") == {"a": "${env:B}"}  # expanded once, not recursively


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("a=1\nb=${env:NOPE}", "f:2: b: the environment variable NOPE is not set"),
        ("\n\na=\\u12g4", "f:3: a: \\u must be followed by four hexadecimal digits"),
        ("a=\\u12", "f:1: a: \\u must be followed by four hexadecimal digits"),
        ("a=\\u12\nb=1\nc=${env:NOPE}",
         "f:1: a: \\u must be followed by four hexadecimal digits\nf:3: c: the environment variable NOPE is not set"),
    ],
)
def test_syntax_errors_name_the_line(data: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        texts(data)
    assert str(caught.value) == message


def test_overrides() -> None:
    parsed = parse_overrides(["a=1", " b =x=y", "c=", "a=2", "d=${env:D}", "e=a\\tb"], {"D": "4"})
    assert {name: written.text for name, written in parsed.items()} == {"a": "2", "b": "x=y", "c": "", "d": "4", "e": "a\\tb"}
    assert parsed["a"].origin == Origin("--override")
    assert str(parsed["a"].origin) == "--override"


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("a", "--override must be key=value, not 'a'"),
        ("=b", "--override must be key=value, not '=b'"),
        ("", "--override must be key=value, not ''"),
        ("a=${env:NOPE}", "--override a: the environment variable NOPE is not set"),
    ],
)
def test_malformed_overrides(argument: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_overrides([argument], {})
    assert str(caught.value) == message


def escaped(text: str, specials: str) -> str:
    """A text as java.util.Properties writes it."""
    units = text.encode("utf-16-be")
    characters = [chr(units[i] << 8 | units[i + 1]) for i in range(0, len(units), 2)]
    return "".join(
        f"\\{c}" if c in specials else c if " " <= c <= "~" else f"\\u{ord(c):04x}" for c in characters
    )


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_files_written_by_java_are_parsed(values: dict[str, str]) -> None:
    lines = [f"{escaped(name, ' #!=:' + chr(92))}={escaped(value, ' #!=:' + chr(92))}"
             for name, value in values.items()]
    parsed = parse_properties("\n".join(lines).encode("latin-1"), "f", {})
    assert {name: written.text for name, written in parsed.items()} == values


@given(st.binary())
def test_parsing_any_bytes_returns_values_or_an_error(data: bytes) -> None:
    try:
        parse_properties(data, "f", {})
    except ConfigError as error:
        assert str(error).startswith("f:")
