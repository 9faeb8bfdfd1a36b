"""The documentation's Markdown as tests read it: code blocks, inline code, links and headings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.cache import CHECKOUT

PAGES = sorted(path for pattern in ("*.md", "docs/*.md", "bench/*.md", "compat/*.md") for path in CHECKOUT.glob(pattern))
_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[\w{}]*)[^\n]*\n(?P<text>.*?)^(?P=indent)```", re.M | re.S)
_INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.M)


def blocks(text: str, language: str) -> list[str]:
    """The code blocks of a page in one language."""
    return [_without(match["indent"], match["text"]) for match in _FENCE.finditer(text) if match["language"] == language]


def inline(text: str) -> Iterator[str]:
    """What stands as `code` within sentences."""
    return (match[1] for match in _INLINE.finditer(_FENCE.sub("", text)))


def links(text: str) -> Iterator[str]:
    """The targets of links and images."""
    return (match[1] for match in _LINK.finditer(_FENCE.sub("", text)))


def anchors(text: str) -> set[str]:
    """The anchors of headings, as GitHub and the documentation's generator make them."""
    found: set[str] = set()
    for match in _HEADING.finditer(_FENCE.sub("", text)):
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", match[1]).lower()
        found.add(re.sub(r"[^\w\- ]", "", title).replace(" ", "-"))
    return found


def read(path: Path) -> str:
    """A page's text."""
    return path.read_text(encoding="utf-8")


def _without(indent: str, text: str) -> str:
    return "".join(line.removeprefix(indent) for line in text.splitlines(keepends=True)).strip("\n") + "\n"
