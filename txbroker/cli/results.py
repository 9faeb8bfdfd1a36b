"""Results of a command in one of three forms: for a terminal, for scripts that parse the output of Kafka's tools, or JSON (--json)."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from txbroker.cli.tables import table, terminal_width
from txbroker.console.texts import visible

Row = Mapping[str, Any]


class Column(NamedTuple):
    """A column of a table: the key of its values in a row, and the heading and the minimum width in Kafka's tool."""

    key: str
    heading: str
    width: int = 0


class Results:
    """Prints the results of a command to standard output.

    `width`: the columns of the terminal; None if standard output is not a terminal. JSON is one object per line; its keys are stable. A row
    is such an object, and may have more keys than there are columns.
    """

    def __init__(self, as_json: bool, width: int | None) -> None:
        self.as_json = as_json
        self.width = width

    def rows(self, columns: Sequence[Column], rows: Iterable[Row], plain: Callable[[Row], str] | None = None) -> None:
        """A table that fits the terminal; for scripts, a line per row by `plain`, or columns separated by spaces below their headings."""
        if self.as_json:
            for row in rows:
                self.json(row)
            return
        if plain is not None and self.width is None:
            for row in rows:
                self.line(plain(row))
            return
        headings = [column.heading for column in columns]
        cells = [[cell(row.get(column.key)) for column in columns] for row in rows]
        least = [column.width for column in columns]
        for line in aligned(headings, cells, least) if self.width is None else table(headings, cells, self.width):
            self.line(line)

    def either(self, row: Row, plain: Callable[[], Iterable[str]], terminal: Callable[[int], Iterable[str]] | None = None) -> None:
        """A result that is not a table: an object, or lines; `terminal` makes the lines for a terminal of that width, if they differ."""
        if self.as_json:
            self.json(row)
        else:
            for line in plain() if self.width is None or terminal is None else terminal(self.width):
                self.line(line)

    def done(self, sentence: str, **row: Any) -> None:
        """A completed action, as a sentence or an object."""
        self.either(row, lambda: [sentence])

    def json(self, row: Row) -> None:
        """One object on one line."""
        only_ascii = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
        self.line(json.dumps(row, ensure_ascii=only_ascii))

    def line(self, text: str) -> None:
        """A line, unchanged for scripts; for a terminal, control characters are escaped."""
        sys.stdout.write(f"{text if self.width is None else visible(text)}\n")


def results(arguments: argparse.Namespace) -> Results:
    """The form by --json and by standard output."""
    return Results(arguments.json, terminal_width())


def cell(value: Any) -> str:
    """The text of a value in a table: `-` for nothing, as in Kafka's tools, and lists separated by commas."""
    if value is None or value in ("", [], ()):
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def aligned(headings: Sequence[str], rows: Sequence[Sequence[str]], least: Sequence[int]) -> list[str]:
    """Columns as wide as their widest cell, and each row on one line, for tools like awk."""
    widths = [max(width, *map(len, column)) for width, *column in zip(least, headings, *rows, strict=True)]
    return [" ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in [headings, *rows]]
