"""Links of README, the documentation and the other pages lead to files and headings that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.reference_pages import REFERENCE_PAGES
from tests.docs.pages import PAGES, anchors, inline, links, read
from tests.support.cache import CHECKOUT

METRICS = "reference/metrics.md"  # generated from a running broker: test_build.py has it


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_relative_links_lead_somewhere(page: Path) -> None:
    broken = [link for link in links(read(page)) if not link.startswith(("http://", "https://")) and not exists(page, link)]
    assert broken == []


def exists(page: Path, link: str) -> bool:
    """Whether the target of a relative link exists: a file, or a page that is generated, and a heading in it."""
    place, _, anchor = link.partition("#")
    target = (page.parent / place).resolve() if place else page
    name = str(target.relative_to(CHECKOUT / "docs")) if target.is_relative_to(CHECKOUT / "docs") else ""
    if name in REFERENCE_PAGES:
        return page.parent == CHECKOUT / "docs" and (not anchor or name == METRICS or anchor in anchors(REFERENCE_PAGES[name]()))
    return target.exists() and (not anchor or anchor in anchors(read(target)))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(CHECKOUT)))
def test_modules_that_are_named_exist(page: Path) -> None:
    named = {text for text in inline(read(page)) if re.fullmatch(r"[\w/.-]+\.py", text)}
    places = (CHECKOUT, CHECKOUT / "txbroker", page.parent)
    assert [name for name in sorted(named) if not any((place / name).exists() for place in places)] == []


def test_the_check_can_fail() -> None:
    page = CHECKOUT / "docs" / "operations.md"
    assert exists(page, "limits.md") and exists(page, "../README.md") and exists(page, "#sizing")
    assert exists(page, "reference/commands.md#txbroker-topics")
    assert not exists(page, "missing.md") and not exists(page, "#missing") and not exists(page, "limits.md#missing")
    assert not exists(page, "reference/commands.md#missing") and not exists(CHECKOUT / "README.md", "docs/reference/commands.md")
