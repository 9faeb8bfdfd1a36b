"""Tables as text."""

from __future__ import annotations

from collections.abc import Sequence


def plain_table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns padded to their widest cell; those that hold numbers only are aligned to the right."""
    lines = [list(heading), *map(list, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(heading))]
    right = [all(_is_number(row[i]) for row in rows) for i in range(len(heading))]
    shapes = [f"{'>' if flush_right else '<'}{width}" for width, flush_right in zip(widths, right, strict=True)]
    made = ["  ".join(f"{cell:{shape}}" for cell, shape in zip(line, shapes, strict=True)) for line in lines]
    made.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(line.rstrip() for line in made)


def _is_number(text: str) -> bool:
    return not text or text.replace(",", "").replace(".", "").isdigit()
