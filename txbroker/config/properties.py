"""Java properties files and `--override key=value` arguments, with the place of each value.

The format is that of `java.util.Properties`. `${env:NAME}` in a value is replaced by that environment variable, as with Kafka's
EnvVarConfigProvider. The caller reads the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from txbroker.errors import ConfigError
from txbroker.lazy_dataclass import lazy_dataclass


class Origin(NamedTuple):
    """The place of a value: a file and line, or a place without lines such as `--override`."""

    place: str
    line: int | None = None

    def __str__(self) -> str:
        return self.place if self.line is None else f"{self.place}:{self.line}"


@lazy_dataclass(frozen=True, slots=True)
class Property:
    """The text of a value and its place."""

    text: str
    origin: Origin


class MalformedProperties(ConfigError):
    """Lines or arguments that cannot be read; `others` has the properties of the others."""

    def __init__(self, problems: Sequence[str], others: Mapping[str, Property]) -> None:
        super().__init__(*problems)
        self.others = others


# Of several mappings the last one wins: {**parse_properties(...), **parse_overrides(...)}.
Properties = Mapping[str, Property]

OVERRIDE = Origin("--override")


def parse_properties(data: bytes, place: str, environment: Mapping[str, str]) -> dict[str, Property]:
    """The properties in the content of a file named `place`; of a repeated key, the last.

    UTF-8, or else Latin-1 as in Java. MalformedProperties, with file and line, for malformed \\u escapes and variables that are not in
    `environment`.
    """
    properties, problems = {}, []
    for number, line in _logical_lines(_decode(data)):
        origin = Origin(place, number)
        key, value = _split(line)
        try:
            name = _unescape(key)
            properties[name] = Property(_expand(_unescape(value), environment), origin)
        except ValueError as error:
            problems.append(f"{origin}: {key}: {error}")
    if problems:
        raise MalformedProperties(problems, properties)
    return properties


def parse_overrides(arguments: Sequence[str], environment: Mapping[str, str]) -> dict[str, Property]:
    """The properties of `--override key=value` arguments, without escapes; MalformedProperties if one has no key or no `=`."""
    properties, problems = {}, []
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals or not key.strip():
            problems.append(f"{OVERRIDE} must be key=value, not '{argument}'")
            continue
        try:
            properties[key.strip()] = Property(_expand(value, environment), OVERRIDE)
        except ValueError as error:
            problems.append(f"{OVERRIDE} {key.strip()}: {error}")
    if problems:
        raise MalformedProperties(problems, properties)
    return properties


def _decode(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


_BLANK = " \t\f"
_NEW_LINE = re.compile(r"\r\n|\r|\n")


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their continuations joined, and the number of their first line; without comments and blank lines."""
    lines = enumerate(_NEW_LINE.split(text), 1)
    for number, line in lines:
        line = line.lstrip(_BLANK)
        if not line or line[0] in "#!":
            continue
        while _continues(line):
            _, following = next(lines, (0, ""))
            line = line[:-1] + following.lstrip(_BLANK)
        yield number, line


def _continues(line: str) -> bool:
    """Whether the line ends with an odd number of backslashes."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


# The key ends at the first `=`, `:` or blank that has no backslash before it. A single backslash may end the file.
_KEY_AND_VALUE = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)


def _split(line: str) -> tuple[str, str]:
    match = _KEY_AND_VALUE.fullmatch(line)
    assert match is not None  # every part of the pattern may be empty
    return match.group(1), match.group(2)


_ESCAPE = re.compile(r"\\(u([0-9a-fA-F]{4})?|.)?", re.DOTALL)
_SPECIAL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    plain = _ESCAPE.sub(_escaped, text)
    # Java's characters are UTF-16: two escapes may be one character, and half of a pair is not a character.
    return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _escaped(match: re.Match[str]) -> str:
    letter, code = match.group(1) or "", match.group(2)
    if code is not None:
        return chr(int(code, 16))
    if letter == "u":
        raise ValueError("\\u must be followed by four hexadecimal digits")
    return _SPECIAL.get(letter, letter)


_VARIABLE = re.compile(r"\$\{env:([^}]+)\}")


def _expand(text: str, environment: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in environment:
            raise ValueError(f"the environment variable {name} is not set")
        return environment[name]

    return _VARIABLE.sub(value, text)
