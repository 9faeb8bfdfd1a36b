"""Charts as inline SVG for HTML reports: no scripts and no network. Colours are classes of the page's style sheet (`html_report`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

WIDTH = 960
_LABEL_PX = 6.6  # of a character at the font size of the axes


class Part(NamedTuple):
    """A part of a bar: a class of the style sheet, a name for people and a number."""

    style: str
    name: str
    value: int


class Bar(NamedTuple):
    """A bar of stacked parts. `note`: above it."""

    label: str
    parts: Sequence[Part]
    note: str = ""

    @property
    def total(self) -> int:
        """The sum of the parts."""
        return sum(part.value for part in self.parts)


class Cell(NamedTuple):
    """A cell of a map. `strength`: 0 to 1, of its colour. `title`: for the pointer."""

    column: int
    style: str
    strength: float
    title: str


def bars(found: Sequence[Bar], height: int = 240) -> str:
    """Vertical bars with their numbers, on one scale."""
    top, bottom, left = 40, 34, 8
    highest = max((bar.total for bar in found), default=0) or 1
    step = (WIDTH - 2 * left) / max(len(found), 1)
    width = min(step * 0.7, 80)
    drawn = []
    for i, bar in enumerate(found):
        middle = left + step * (i + 0.5)
        y = float(height - bottom)
        for part in bar.parts:
            if part.value:
                size = max((height - top - bottom) * part.value / highest, 1.5)
                y -= size
                drawn.append(_rect(middle - width / 2, y, width, size, part.style, f"{bar.label}: {part.value:,} {part.name}"))
        drawn.append(_text(middle, y - 6, f"{bar.total:,}"))
        if bar.note:
            drawn.append(_text(middle, y - 20, bar.note, "note"))
        drawn.append(_text(middle, height - bottom + 18, bar.label, "axis"))
    drawn.append(f'<line x1="0" x2="{WIDTH}" y1="{height - bottom + 0.5}" y2="{height - bottom + 0.5}" class="line"/>')
    return _svg(WIDTH, height, drawn)


def share(parts: Sequence[Part], width: int = 160, height: int = 12) -> str:
    """One small horizontal bar: the parts of a whole. A part that is there is visible, however small."""
    total = sum(part.value for part in parts)
    drawn, x = [], 0.0
    there = [part for part in parts if part.value]
    for part in there:
        size = max((width - 3 * len(there)) * part.value / total + 3, 3)
        drawn.append(_rect(x, 0, size, height, part.style, f"{part.value:,} {part.name}"))
        x += size
    return _svg(width, height, drawn or [_rect(0, 0, width, height, "none", "nothing")], fixed=True)


def heat_map(rows: Mapping[str, Sequence[Cell]], columns: int, labels: Mapping[int, str]) -> str:
    """A row of cells for each name, with the labels of some columns below."""
    left = 12 + _LABEL_PX * max((len(name) for name in rows), default=0)
    size = 18
    step = (WIDTH - left) / max(columns, 1)
    drawn = []
    for i, (name, cells) in enumerate(rows.items()):
        drawn.append(_text(left - 8, i * size + 13, name, "axis", "end", _LABEL_PX * len(name)))
        for cell in cells:
            opacity = f' fill-opacity="{0.25 + 0.75 * min(max(cell.strength, 0.0), 1.0):.2f}"'
            drawn.append(_rect(left + cell.column * step, i * size, step - 1, size - 2, cell.style, cell.title, opacity))
    bottom = len(rows) * size
    for column, label in labels.items():
        x = left + column * step
        drawn.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 5}" class="line"/>')
        anchor = "end" if x + len(label) * _LABEL_PX > WIDTH else "start"
        drawn.append(_text(x, bottom + 18, label, "axis", anchor))
    return _svg(WIDTH, bottom + 24, drawn)


def legend(parts: Sequence[tuple[str, str]]) -> str:
    """Names of colours, as HTML."""
    found = [f'<span><svg width="12" height="12" aria-hidden="true">{_rect(0, 0, 12, 12, style, name)}</svg> {escape(name)}</span>'
             for style, name in parts]  # fmt: skip
    return f'<p class="legend">{" ".join(found)}</p>'


def _rect(x: float, y: float, width: float, height: float, style: str, title: str, more: str = "") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.5):.1f}" height="{height:.1f}"'
    return f'<rect {place} class="{style}"{more}><title>{escape(title)}</title></rect>'


def _text(x: float, y: float, text: str, style: str = "number", anchor: str = "middle", length: float | None = None) -> str:
    """`length`: the width to which the text is fitted, so that it is not cut whatever the font is."""
    fitted = "" if length is None else f' textLength="{length:.1f}" lengthAdjust="spacingAndGlyphs"'
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{style}" text-anchor="{anchor}"{fitted}>{escape(text)}</text>'


def _svg(width: int, height: float, drawn: Sequence[str], *, fixed: bool = False) -> str:
    size = f'width="{width}" height="{height:.0f}"' if fixed else f'viewBox="0 0 {width} {height:.0f}" width="100%"'
    return f'<svg {size} role="img">{"".join(drawn)}</svg>'
