"""Markdown for generated pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def escape(text: str) -> str:
    """Text from the code, such that Markdown shows it as it is: outside of `code`, and in the cell of a table."""
    parts = text.replace("|", "\\|").split("`")
    for index in range(0, len(parts), 2):
        for character in "*_<>[]$":
            parts[index] = parts[index].replace(character, f"\\{character}")
    return "`".join(parts)


def code(text: str) -> str:
    """Text as code, in the cell of a table."""
    escaped = text.replace("|", "\\|")
    return f"`` {escaped} ``" if "`" in text else f"`{escaped}`"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; the cells are Markdown already."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def block(text: str) -> str:
    """Text as a block of preformatted lines."""
    return f"```text\n{text.rstrip()}\n```\n"
