"""Tables for the terminal, in which no line is wider than the terminal."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence
from itertools import zip_longest

from txbroker.console.texts import visible

GAP = 2
NARROWEST = 8


def terminal_width() -> int | None:
    """The columns of the terminal; None if standard output is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def table(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """The lines of a table. If it would be wider than `width`, the widest columns become narrower and their cells are wrapped.

    On a terminal that is too narrow for all columns, each row is a paragraph with a line for each cell.
    """
    rows = [[visible(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    while sum(widths) + GAP * (len(widths) - 1) > width and max(widths) > NARROWEST:
        widths[widths.index(max(widths))] -= 1
    if sum(widths) + GAP * (len(widths) - 1) > width:
        return [line for row in rows for line in _paragraphs(header, row, width)]
    return [line for row in [header, *rows] for line in _lines(row, widths)]


def _paragraphs(header: Sequence[str], row: Sequence[str], width: int) -> list[str]:
    return [*(line for name, cell in zip(header, row, strict=True) for line in paragraph(f"{name}: {cell}", width)), ""]


def _lines(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    cells = [textwrap.wrap(cell, width, break_on_hyphens=False) for cell, width in zip(row, widths, strict=True)]
    gap = " " * GAP
    return [
        gap.join(part.ljust(width) for part, width in zip(parts, widths, strict=True)).rstrip()
        for parts in zip_longest(*cells, fillvalue="")
    ]


def paragraph(text: str, width: int) -> list[str]:
    """Lines of at most `width`, indented from the second on."""
    return textwrap.wrap(visible(text), max(width, NARROWEST), subsequent_indent="    ", break_on_hyphens=False)
