"""Results of a command, printed in one of three ways: for a terminal, for scripts that read Kafka's tools, or as JSON (--json)."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from txbroker.cli.tables import table, terminal_width, visible

Row = Mapping[str, Any]


class Column(NamedTuple):
    """A column of a table: the key of a row's values, and the heading and the least width of Kafka's tool."""

    key: str
    heading: str
    width: int = 0


class Results:
    """Where a command prints what it found.

    `width` are the terminal's columns, None where standard output is none. JSON is one object a line, with keys in snake_case that stay as
    they are; a row is such an object, and may have more keys than the columns show.
    """

    def __init__(self, as_json: bool, width: int | None) -> None:
        self.as_json = as_json
        self.width = width

    def rows(self, columns: Sequence[Column], rows: Iterable[Row], plain: Callable[[Row], str] | None = None) -> None:
        """A table that fits the terminal; for scripts a line a row by `plain`, or columns divided by spaces under their headings."""
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
        """What is no row of a table: an object, or lines; for a terminal of a width others than for scripts, if need be."""
        if self.as_json:
            self.json(row)
        else:
            for line in plain() if self.width is None or terminal is None else terminal(self.width):
                self.line(line)

    def done(self, sentence: str, **row: Any) -> None:
        """That something was done, in a sentence or as an object."""
        self.either(row, lambda: [sentence])

    def json(self, row: Row) -> None:
        """One object on a line of its own."""
        only_ascii = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
        self.line(json.dumps(row, ensure_ascii=only_ascii))

    def line(self, text: str) -> None:
        """A line: as it is for scripts, and for a terminal without what that would obey."""
        sys.stdout.write(f"{text if self.width is None else visible(text)}\n")


def results(arguments: argparse.Namespace) -> Results:
    """By the flag --json (`arguments.add_client`) and standard output."""
    return Results(arguments.json, terminal_width())


def cell(value: Any) -> str:
    """The text of a value in a table: `-` for nothing, as Kafka's tools, and lists divided by commas."""
    if value is None or value in ("", [], ()):
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def aligned(headings: Sequence[str], rows: Sequence[Sequence[str]], least: Sequence[int]) -> list[str]:
    """Columns as wide as their widest cell, each cell in one line however long: what awk and cut read."""
    widths = [max(width, *map(len, column)) for width, *column in zip(least, headings, *rows, strict=True)]
    return [" ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in [headings, *rows]]
