"""Markdown files of the repository that are pages of the documentation too, and links between files outside and inside docs/.

Links are written as they work in the repository, relative to their file. A build rewrites those whose target is another page there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent
ROOT = DOCS.parent
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")

# Page below docs/ -> file of the repository.
PROJECT_PAGES: Mapping[str, str] = {
    "project/architecture.md": "ARCHITECTURE.md",
    "project/contributing.md": "CONTRIBUTING.md",
    "project/changelog.md": "CHANGELOG.md",
    "project/tests.md": "tests/README.md",
    "project/results.md": "bench/RESULTS.md",
    "project/scale.md": "bench/SCALE.md",
    "project/overload.md": "bench/OVERLOAD.md",
    "project/limits-of-speed.md": "bench/LIMITS.md",
    "project/cleaner-schedule.md": "bench/CLEANER_SCHEDULE.md",
    "project/pipeline.md": "bench/PIPELINE.md",
    "project/cluster.md": "bench/CLUSTER.md",
    "project/processes.md": "bench/PROCESSES.md",
    "project/compatibility.md": "compat/TABLE.md",
    "project/compatibility-cluster.md": "compat/CLUSTER.md",
    "project/compatibility-security.md": "compat/SECURITY.md",
    "project/compatibility-tests.md": "compat/README.md",
}
_PAGE_OF = {ROOT / file: DOCS / page for page, file in PROJECT_PAGES.items()}


def rewrite_links(page: str, text: str) -> str:
    """The text of a page (its path below docs/), with links to files of PROJECT_PAGES leading to their pages."""
    written_in = (ROOT / PROJECT_PAGES[page] if page in PROJECT_PAGES else DOCS / page).parent

    def rewritten(match: re.Match[str]) -> str:
        target = Path(os.path.normpath(written_in / match[1]))
        return os.path.relpath(_PAGE_OF.get(target, target), (DOCS / page).parent)

    return _LINK.sub(rewritten, text)
