"""The reference pages of the documentation, generated from the code when the documentation is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from docs.reference_pages.commands import commands_page
from docs.reference_pages.configuration import broker_page, topic_page
from docs.reference_pages.metrics import metrics_page
from docs.reference_pages.project_pages import DOCS, PROJECT_PAGES, ROOT
from docs.reference_pages.protocol import protocol_page

# Page below docs/ -> what makes its text.
REFERENCE_PAGES: Mapping[str, Callable[[], str]] = {
    "reference/broker-configuration.md": broker_page,
    "reference/topic-configuration.md": topic_page,
    "reference/commands.md": commands_page,
    "reference/metrics.md": metrics_page,
    "reference/protocol.md": protocol_page,
}


def write_pages() -> None:
    """Write every page that is not a file of docs/ itself. Pages without changes are not written: Sphinx does not read them again."""
    for name, page in REFERENCE_PAGES.items():
        _write(DOCS / name, page())
    for name, file in PROJECT_PAGES.items():
        _write(DOCS / name, (ROOT / file).read_text(encoding="utf-8"))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
