"""The commit that this code was built from: written into wheel and sdist by setup.py, or from the files of git in a checkout.

It runs no command, so that it costs a start nothing.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

UNKNOWN = "unknown"
COMMIT_FILE = "_commit.txt"  # in the package, of an installed txbroker
SHOWN = 12  # digits
_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")  # SHA-1 or SHA-256


@cache
def commit() -> str:
    """The commit's full id; UNKNOWN without one."""
    package = Path(__file__).parent
    return find_commit(package, package.parent)


def find_commit(package: Path, checkout: Path) -> str:
    """The commit by the file in the package, otherwise by the git directory of the checkout; UNKNOWN."""
    written = _text(package / COMMIT_FILE)
    if _COMMIT.fullmatch(written):
        return written
    if not (checkout / "setup.cfg").is_file():
        return UNKNOWN  # installed into a directory that may belong to another repository
    found = _of_head(checkout / ".git")
    return found if _COMMIT.fullmatch(found) else UNKNOWN


def version_text(version: str) -> str:
    """The version with the beginning of the commit, for people."""
    return f"{version} (commit {commit()[:SHOWN]})"


def _of_head(git: Path) -> str:
    """The commit that is checked out (gitrepository-layout(5)), or other text."""
    common = git
    if git.is_file():  # a worktree
        git = (git.parent / _text(git).removeprefix("gitdir: ")).resolve()
        common = (git / (_text(git / "commondir") or ".")).resolve()
    head = _text(git / "HEAD")
    reference = head.removeprefix("ref: ")
    if reference == head:
        return head
    loose = _text(git / reference) or _text(common / reference)
    if loose:
        return loose
    packed = (line.split(" ", 1) for line in _text(common / "packed-refs").splitlines() if not line.startswith(("#", "^")))
    return next((found[0] for found in packed if found[1:] == [reference]), "")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
