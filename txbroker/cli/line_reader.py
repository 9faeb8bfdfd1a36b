"""Parses the lines of `txbroker produce`, by the properties of Kafka's class LineMessageReader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from txbroker.cli.property_flags import from_properties
from txbroker.console.failures import CommandFailed

Header = tuple[str, bytes]

FLAG = "--reader-property"


@dataclass(frozen=True, slots=True)
class Line:
    """The record of one line."""

    key: bytes | None
    value: bytes | None
    headers: list[Header]


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFormat:
    """The format of a line: headers, key and value, in this order, the first two only if they are to be parsed."""

    parse_key: bool = False
    parse_headers: bool = False
    key_separator: bytes = b"\t"
    headers_delimiter: bytes = b"\t"
    headers_separator: bytes = b","
    headers_key_separator: bytes = b":"
    null_marker: bytes | None = None
    ignore_error: bool = False

    def parse(self, line: bytes, number: int) -> Line:
        """The record of a line, without its end. CommandFailed, with the line's number, if a separator is missing."""
        headers: list[Header] = []
        key: bytes | None = None
        if self.parse_headers:
            text, line = self._split(line, self.headers_delimiter, "headers.delimiter", number)
            if text and text != self.null_marker:
                headers = [self._header(pair, number) for pair in text.split(self.headers_separator)]
        if self.parse_key:
            key, line = self._split(line, self.key_separator, "key.separator", number)
        value = None if line == self.null_marker else line
        if key == self.null_marker:
            key = None
        if key is None and value is None:
            raise CommandFailed(f"line {number} has neither a key nor a value; add one of them")
        return Line(key, value, headers)

    def _split(self, line: bytes, separator: bytes, what: str, number: int) -> tuple[bytes | None, bytes]:
        before, found, after = line.partition(separator)
        if found:
            return before, after
        if self.ignore_error:
            return None, line
        raise CommandFailed(f"line {number} has no {what} {_show(separator)}: {_show(line)}; correct the line, or set {FLAG} {what}=...")

    def _header(self, pair: bytes, number: int) -> Header:
        key, found, value = pair.partition(self.headers_key_separator)
        if not found and not self.ignore_error:
            separator = _show(self.headers_key_separator)
            raise CommandFailed(f"line {number} has a header without headers.key.separator {separator}: {_show(pair)}; correct the line")
        return key.decode(errors="replace"), value


def _show(text: bytes) -> str:
    return repr(text[:60].decode(errors="replace")) + ("…" if len(text) > 60 else "")


def line_format(properties: Mapping[str, str]) -> LineFormat:
    """The format by these properties; BadUsage."""
    return from_properties(LineFormat, properties, FLAG, may_be_empty="null_marker")
