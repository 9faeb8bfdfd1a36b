"""Lines of `txbroker produce` made into records, by the properties of Kafka's console producer (class LineMessageReader)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from txbroker.cli.failures import CommandFailed
from txbroker.cli.property_flags import from_properties

Header = tuple[str, bytes]

@dataclass(frozen=True, slots=True)
class Line:
    """A record to be produced."""

    key: bytes | None
    value: bytes | None
    headers: list[Header]


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFormat:
    """How a line is divided: headers, key and value, in this order, each of the first two only where it is parsed."""

    parse_key: bool = False
    parse_headers: bool = False
    key_separator: bytes = b"\t"
    headers_delimiter: bytes = b"\t"
    headers_separator: bytes = b","
    headers_key_separator: bytes = b":"
    null_marker: bytes | None = None
    ignore_error: bool = False

    def parse(self, line: bytes, number: int) -> Line:
        """The record in a line (without its end). CommandFailed, with the line's number, when a separator is missing."""
        headers: list[Header] = []
        key: bytes | None = None
        if self.parse_headers:
            text, line = self._divide(line, self.headers_delimiter, "headers.delimiter", number)
            if text and text != self.null_marker:
                headers = [self._header(pair, number) for pair in text.split(self.headers_separator)]
        if self.parse_key:
            key, line = self._divide(line, self.key_separator, "key.separator", number)
        value = None if line == self.null_marker else line
        if key == self.null_marker:
            key = None
        if key is None and value is None:
            raise CommandFailed(f"line {number} has neither key nor value; give it one of them")
        return Line(key, value, headers)

    def _divide(self, line: bytes, separator: bytes, what: str, number: int) -> tuple[bytes | None, bytes]:
        before, found, after = line.partition(separator)
        if found:
            return before, after
        if self.ignore_error:
            return None, line
        raise CommandFailed(f"line {number} has no {what} {_show(separator)}: {_show(line)}; correct it, or set --property {what}=…")

    def _header(self, pair: bytes, number: int) -> Header:
        key, found, value = pair.partition(self.headers_key_separator)
        if not found and not self.ignore_error:
            separator = _show(self.headers_key_separator)
            raise CommandFailed(f"line {number} has a header without headers.key.separator {separator}: {_show(pair)}; correct the line")
        return key.decode(errors="replace"), value


def _show(text: bytes) -> str:
    return repr(text[:60].decode(errors="replace")) + ("…" if len(text) > 60 else "")


def line_format(properties: Mapping[str, str]) -> LineFormat:
    """From --property flags; BadUsage."""
    return from_properties(LineFormat, properties, may_be_empty="null_marker")
